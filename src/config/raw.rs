//! The configuration as it is written: every leaf by itself, right or wrong.
//!
//! A wrong leaf does not stop the reading, so that all mistakes are told at once.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use humantime_serde::re::humantime;
use probes::{Cost, gemm::Dtype};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::LogFormat;

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) node_name: Leaf<String>,
    pub(super) active: Leaf<bool>,
    pub(super) web: Web,
    pub(super) state: State,
    pub(super) log: Log,
    pub(super) roots: Roots,
    pub(super) inventory: Inventory,
    pub(super) budget: Budget,
    pub(super) baseline: Baseline,
    pub(super) occupancy: Occupancy,
    pub(super) peers: Peers,
    pub(super) compute: Compute,
    pub(super) rdma: Rdma,
    pub(super) probe: Probe,
}

#[derive(Deserialize)]
pub(super) struct Web {
    pub(super) listen_address: Leaf<Vec<Address>>,
    pub(super) config_file: Leaf<PathBuf>,
    pub(super) socket: Leaf<PathBuf>,
    pub(super) max_requests: Leaf<usize>,
}

#[derive(Deserialize)]
pub(super) struct State {
    pub(super) directory: Leaf<PathBuf>,
    pub(super) journal_mib: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Baseline {
    pub(super) samples: Leaf<u64>,
    pub(super) confirm_every: Leaf<Span>,
}

#[derive(Deserialize)]
pub(super) struct Log {
    pub(super) level: Leaf<String>,
    pub(super) format: Leaf<Format>,
}

#[derive(Deserialize)]
pub(super) struct Roots {
    pub(super) sysfs: Leaf<PathBuf>,
    pub(super) proc: Leaf<PathBuf>,
    pub(super) etc: Leaf<PathBuf>,
}

#[derive(Deserialize)]
pub(super) struct Inventory {
    pub(super) interval: Leaf<Span>,
    pub(super) nic_drivers: Leaf<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Budget {
    pub(super) gpu_seconds_per_hour: Leaf<f64>,
    pub(super) network_mib_per_hour: Leaf<u32>,
    pub(super) heavy_runs_per_hour: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Occupancy {
    pub(super) check: Leaf<bool>,
}

#[derive(Deserialize)]
pub(super) struct Peers {
    #[serde(rename = "static")]
    pub(super) members: Leaf<Vec<String>>,
    pub(super) file_sd: Leaf<Vec<PathBuf>>,
    pub(super) listen_address: Leaf<Vec<Address>>,
    pub(super) port: Leaf<u16>,
    pub(super) certificate_file: Leaf<PathBuf>,
    pub(super) key_file: Leaf<PathBuf>,
    pub(super) ca_file: Leaf<PathBuf>,
    pub(super) first_port: Leaf<u16>,
    pub(super) ports: Leaf<u16>,
    pub(super) slot: Leaf<Span>,
    pub(super) lease: Leaf<Span>,
}

#[derive(Deserialize)]
pub(super) struct Compute {
    pub(super) library_directories: Leaf<Vec<PathBuf>>,
    pub(super) environment: Leaf<Vec<Variable>>,
}

#[derive(Deserialize)]
pub(super) struct Rdma {
    pub(super) perftest_directory: Leaf<PathBuf>,
    pub(super) rails: Leaf<Vec<String>>,
    pub(super) gid_networks: Leaf<Vec<Network>>,
    pub(super) size: Leaf<u32>,
    pub(super) queue_pairs: Leaf<u32>,
    pub(super) seconds: Leaf<f64>,
    pub(super) most_messages: Leaf<u32>,
    pub(super) repeats: Leaf<u32>,
    pub(super) latency_size: Leaf<u32>,
    pub(super) latency_messages: Leaf<u32>,
    pub(super) traffic_class: Leaf<i32>,
    pub(super) mtu: Leaf<u32>,
    pub(super) tolerance: Leaf<f64>,
}

#[derive(Deserialize)]
pub(super) struct Probe {
    pub(super) node: Node,
    pub(super) pcie: Pcie,
    pub(super) nic: Nic,
    pub(super) gpu: Gpu,
    pub(super) gemm: Gemm,
    pub(super) gemm_sustained: Sustained,
    pub(super) hbm: Copies,
    pub(super) host_copy: Copies,
    pub(super) p2p: Copies,
    pub(super) collectives: Collectives,
    pub(super) collectives_sweep: Sweep,
    pub(super) ib_write_bw: Bandwidth,
    pub(super) ib_read_bw: OnDemand,
    pub(super) ib_send_bw: OnDemand,
    pub(super) ib_write_lat: Latency,
    pub(super) gdr: Gdr,
    pub(super) loopback: Loopback,
    pub(super) exec: Exec,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) ignore: Leaf<Vec<String>>,
    pub(super) user: Leaf<String>,
    pub(super) cpu_governor: Leaf<String>,
    pub(super) huge_pages: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Pcie {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) pcid_socket: Leaf<PathBuf>,
    pub(super) nic_max_read_request: Leaf<u32>,
    pub(super) error_window: Leaf<Span>,
    pub(super) correctable_errors: Leaf<u64>,
    pub(super) busy_percent: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Nic {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) error_window: Leaf<Span>,
    pub(super) flaps: Leaf<u64>,
    pub(super) errors: Leaf<u64>,
    pub(super) unused: Leaf<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Gpu {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) error_window: Leaf<Span>,
    pub(super) correctable_errors: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Gemm {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) types: Leaf<Vec<Dtype>>,
    pub(super) size: Leaf<u32>,
    pub(super) burst: Leaf<Span>,
}

#[derive(Deserialize)]
pub(super) struct Sustained {
    pub(super) enabled: Leaf<bool>,
    pub(super) timeout: Leaf<Span>,
    pub(super) load: Leaf<Span>,
}

#[derive(Deserialize)]
pub(super) struct Copies {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) size_mib: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Collectives {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) sizes_mib: Leaf<Vec<u32>>,
    pub(super) latency_bytes: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Sweep {
    pub(super) enabled: Leaf<bool>,
    pub(super) timeout: Leaf<Span>,
    pub(super) most_mib: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Bandwidth {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) expected: Leaf<Rate>,
}

#[derive(Deserialize)]
pub(super) struct OnDemand {
    pub(super) enabled: Leaf<bool>,
    pub(super) timeout: Leaf<Span>,
}

#[derive(Deserialize)]
pub(super) struct Latency {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) expected: Leaf<Microseconds>,
}

#[derive(Deserialize)]
pub(super) struct Gdr {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) expected: Leaf<Rate>,
    pub(super) expected_ratio: Leaf<f64>,
}

#[derive(Deserialize)]
pub(super) struct Loopback {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) expected: Leaf<Rate>,
    pub(super) neighbour: Leaf<bool>,
}

#[derive(Deserialize)]
pub(super) struct Exec {
    pub(super) enabled: Leaf<bool>,
    #[serde(default)]
    pub(super) check: Vec<Check>,
}

#[derive(Deserialize)]
pub(super) struct Check {
    pub(super) name: Option<Leaf<String>>,
    pub(super) argv: Option<Leaf<Vec<String>>>,
    pub(super) cost: Option<Leaf<CheckCost>>,
    pub(super) interval: Option<Leaf<Span>>,
    pub(super) timeout: Option<Leaf<Span>>,
    pub(super) gpu_seconds: Option<Leaf<f64>>,
    pub(super) network_mib: Option<Leaf<u32>>,
}

/// A value that may be wrong.
pub(super) struct Leaf<T>(pub(super) Result<T, String>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Leaf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Leaf<T>, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Leaf(T::deserialize(value).map_err(|error| error.to_string())))
    }
}

/// A duration with its unit.
#[derive(Default)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("not a duration: write \"90s\", \"10m\" or \"6h\""))?;
        humantime::parse_duration(&text)
            .map(Span)
            .map_err(|error| serde::de::Error::custom(format!("{text:?} is not a duration: {error}")))
    }
}

/// Bytes per second, written as `390Gb/s` or `48GB/s`; empty is none.
#[derive(Default)]
pub(super) struct Rate(pub(super) Option<f64>);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [("Gb/s", 1e9 / 8.0), ("GB/s", 1e9)];
        quantity(&text, &units).map(Rate).map_err(|()| {
            serde::de::Error::custom(format!("{text:?} is not a rate: write \"390Gb/s\" or \"48GB/s\""))
        })
    }
}

/// Seconds, written as `2.5us`; empty is none.
#[derive(Default)]
pub(super) struct Microseconds(pub(super) Option<f64>);

impl<'de> Deserialize<'de> for Microseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Microseconds, D::Error> {
        let text = String::deserialize(deserializer)?;
        quantity(&text, &[("us", 1e-6)])
            .map(Microseconds)
            .map_err(|()| serde::de::Error::custom(format!("{text:?} is not a latency: write \"2.5us\"")))
    }
}

/// A positive number with one of these units; none if there is no text.
fn quantity(text: &str, units: &[(&str, f64)]) -> Result<Option<f64>, ()> {
    if text.is_empty() {
        return Ok(None);
    }
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor))).ok_or(())?;
    let number: f64 = number.trim().parse().map_err(|_| ())?;
    if number.is_finite() && number > 0.0 { Ok(Some(number * factor)) } else { Err(()) }
}

/// A variable of the environment, written as `NCCL_DEBUG=WARN`.
pub(super) struct Variable(pub(super) (String, String));

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Variable, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_name = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with("LD_")
        };
        match text.split_once('=') {
            Some((name, value)) if is_name(name) && !value.contains('\0') => {
                Ok(Variable((name.to_string(), value.to_string())))
            }
            Some(_) | None => Err(serde::de::Error::custom(format!(
                "{text:?} is not a variable: write \"NCCL_DEBUG=WARN\"; LD_* can't be set"
            ))),
        }
    }
}

/// A network, written as `10.1.0.0/16`.
pub(super) struct Network(pub(super) (IpAddr, u8));

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Network, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network = || {
            let (address, length) = text.split_once('/')?;
            let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (length <= most).then_some(Network((address, length)))
        };
        network().ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not a network: write \"10.1.0.0/16\""))
        })
    }
}

/// A socket address; `:10950` is any IPv4 address.
pub(super) struct Address(pub(super) SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let text = String::deserialize(deserializer)?;
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.clone() };
        full.parse().map(Address).map_err(|_| {
            serde::de::Error::custom(format!(
                "{text:?} is not an address: write \"0.0.0.0:10950\" or \"[::]:10950\""
            ))
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Format(pub(super) LogFormat);

impl Default for Format {
    fn default() -> Format {
        Format(LogFormat::Logfmt)
    }
}

#[derive(Deserialize)]
pub(super) struct CheckCost(pub(super) Cost);

impl Default for CheckCost {
    fn default() -> CheckCost {
        CheckCost(Cost::Passive)
    }
}
