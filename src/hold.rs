//! The maintenance hold: while it lasts, no active probe starts. Kept in a file, so that it
//! survives a restart.
