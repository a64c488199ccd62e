//! fabricpulse: a Prometheus exporter and continuous health prober for GPU nodes.

mod read;
mod run;
mod sysfs;
mod worker;

fn main() -> std::process::ExitCode {
    worker::main("x")
}
