//! STUB
use crate::{
    Context, Inventory, Measurement, Settings, Unsupported, inventory::Rdma, partner::HostBandwidth,
    settings::RdmaSettings,
};
use std::{collections::BTreeMap, net::Ipv6Addr};
/// S
pub struct End {
    /// g
    pub gid: Option<Ipv6Addr>,
    /// b
    pub bits_per_second: Option<f64>,
}
/// S
pub fn end(_: &Context<'_>) -> Result<End, Unsupported> {
    Ok(End { gid: None, bits_per_second: None })
}
/// S
pub fn rails<'a>(inventory: &'a Inventory, _: &Settings) -> Vec<&'a Rdma> {
    inventory.rdma.iter().collect()
}
/// S
pub fn parameters(_: &RdmaSettings) -> BTreeMap<String, serde_json::Value> {
    BTreeMap::new()
}
/// S
pub fn difference(
    _: &BTreeMap<String, serde_json::Value>,
    _: &BTreeMap<String, serde_json::Value>,
) -> Option<String> {
    None
}
/// S
pub fn host_bandwidth(_: &[Measurement]) -> Option<HostBandwidth> {
    None
}
