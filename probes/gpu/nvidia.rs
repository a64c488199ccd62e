//! What NVML tells of an NVIDIA GPU.
//!
//! Everything that a driver or a model does not support is absent, never zero: NVML says
//! `NVML_ERROR_NOT_SUPPORTED` there. Names and meanings are those of `nvml.h`.

use serde::{Deserialize, Serialize};

use super::Errors;
use crate::lines::Problem;

mod judge;
#[cfg(test)]
mod tests;

/// How it ended to ask NVML for a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Nvml {
    /// It answered. What other vendors tell too is in [`super::Gpu`].
    Told(Box<Facts>),
    /// The library was not opened, and why not.
    NotOpened(String),
    /// It refused.
    Refused(Refused),
}

/// What NVML said instead of answering.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// The function: `nvmlInit_v2`.
    pub call: String,
    /// What it is.
    pub reason: Reason,
    /// NVML's own words, with the number.
    pub words: String,
}

/// The kinds of refusals that mean something of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// `NVML_ERROR_GPU_IS_LOST`
    Lost,
    /// `NVML_ERROR_RESET_REQUIRED`
    ResetRequired,
    /// `NVML_ERROR_INSUFFICIENT_POWER`
    PowerCables,
    /// `NVML_ERROR_IRQ_ISSUE`
    Interrupts,
    /// `NVML_ERROR_LIB_RM_VERSION_MISMATCH`
    VersionMismatch,
    /// `NVML_ERROR_DRIVER_NOT_LOADED`: it can't open `/dev/nvidiactl`.
    NoDriver,
    /// `NVML_ERROR_NO_PERMISSION` or `NVML_ERROR_OPERATING_SYSTEM`
    Forbidden,
    /// `NVML_ERROR_NOT_FOUND`
    NotFound,
    /// Any other.
    Other,
}

/// What NVML tells and other vendors do not.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Facts {
    /// `GPU-4c2e…`
    pub uuid: Option<String>,
    /// The driver's state stays when its last user ends.
    pub persistence: Option<bool>,
    /// Whether memory is protected by ECC.
    pub ecc: Option<Ecc>,
    /// Errors of the device's whole life. Those in [`super::Gpu::errors`] are since the driver was
    /// loaded, which without persistence mode is each time that somebody comes to use the GPU.
    pub lifetime: Option<Errors>,
    /// Rows of memory that spare rows stand in for; Ampere and later.
    pub rows: Option<Rows>,
    /// A page of memory is to be retired by the next reset; before Ampere.
    pub retirement_pending: Option<bool>,
    /// What holds the clocks back at this moment.
    pub held: Option<Limits<bool>>,
    /// The hardware halves the clocks at this moment, or worse, for any of its reasons.
    pub slowdown: Option<bool>,
    /// For how long something has held the clocks back since the driver was loaded, in nanoseconds.
    pub held_for: Limits<Option<u64>>,
    /// NVLinks that the GPU has, in order.
    pub links: Vec<Link>,
    /// Errors of all its NVLinks since the driver was loaded.
    pub link_errors: LinkErrors,
    /// How far the GPU has come in joining the NVSwitch fabric.
    pub fabric: Option<Fabric>,
    /// `nvmlDeviceGpuRecoveryAction_t`: what the driver wants to be done; 0 is nothing.
    pub recovery_action: Option<u64>,
    /// Calls that failed for no reason that is expected; the rest stands.
    pub failed: Vec<Problem>,
}

/// Whether memory is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ecc {
    /// Now.
    pub on: bool,
    /// After the next reset.
    pub next: bool,
    /// As the model is delivered.
    pub by_default: Option<bool>,
}

/// The row remapper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Rows {
    /// Rows replaced because of correctable errors.
    pub correctable: u32,
    /// Rows replaced because of uncorrectable errors.
    pub uncorrectable: u32,
    /// A row is to be replaced by the next reset.
    pub pending: bool,
    /// A row could not be replaced.
    pub failed: bool,
}

/// What can hold clocks back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Limits<T> {
    /// The power cap: usual under full load.
    pub power: T,
    /// Too hot: the driver lowers the clocks.
    pub thermal: T,
    /// Much too hot: the hardware halves them, or worse.
    pub hardware_thermal: T,
    /// Somebody outside pulls the power brake: a power supply, the board.
    pub power_brake: T,
}

/// An NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Link {
    /// From 0.
    pub number: u32,
    /// It carries data.
    pub active: bool,
}

/// Error counts of NVLinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct LinkErrors {
    /// Packets sent again.
    pub replay: Option<u64>,
    /// Links that were trained again.
    pub recovery: Option<u64>,
    /// Checksums that were wrong.
    pub crc: Option<u64>,
}

impl LinkErrors {
    /// Each with its label value.
    pub fn each(self) -> [(&'static str, Option<u64>); 3] {
        [("replay", self.replay), ("recovery", self.recovery), ("crc", self.crc)]
    }
}

/// `nvmlGpuFabricInfo_v2_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Fabric {
    /// `NVML_GPU_FABRIC_STATE_…`: 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// `nvmlReturn_t` of the registration, once it has completed; 0 is success.
    pub status: i32,
}
