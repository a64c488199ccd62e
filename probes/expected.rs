//! What healthy parts do, as far as somebody says so in public: each value with its source.
//!
//! A value is what somebody measured, what somebody demands, or the peak of a data sheet, which no
//! part reaches. Where there is no source there is no value.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The tables, by name, as they are written.
pub const FILES: [(&str, &str); 11] = [
    ("a100", include_str!("expected/a100.toml")),
    ("b200", include_str!("expected/b200.toml")),
    ("h100", include_str!("expected/h100.toml")),
    ("h200", include_str!("expected/h200.toml")),
    ("mi210", include_str!("expected/mi210.toml")),
    ("mi250", include_str!("expected/mi250.toml")),
    ("mi300a", include_str!("expected/mi300a.toml")),
    ("mi300x", include_str!("expected/mi300x.toml")),
    ("mi325x", include_str!("expected/mi325x.toml")),
    ("mi350x", include_str!("expected/mi350x.toml")),
    ("mi355x", include_str!("expected/mi355x.toml")),
];

/// A model of GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sku {
    /// As its vendor calls it.
    pub name: String,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device ids; none where no public list has them.
    pub devices: Vec<u16>,
    /// Names that drivers give it.
    pub models: Vec<String>,
    /// Who says so, by a short word.
    pub sources: BTreeMap<String, Source>,
    /// What it does.
    pub expected: Vec<Expected>,
}

/// Who says a value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is, with its version or date as far as known.
    pub title: String,
    /// Where it is; none if it is not on the web.
    pub url: Option<String>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The metric, without the common prefix.
    pub metric: String,
    /// Labels that it is for.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// GPUs that take part; none for one, or for a pair.
    pub gpus: Option<u32>,
    /// Message size, in bytes.
    pub bytes: Option<u64>,
    /// In the metric's base unit.
    pub value: f64,
    /// What the number is.
    pub kind: Kind,
    /// The program that measured it, sizes and versions, as far as is known.
    #[serde(default)]
    pub conditions: String,
    /// The word of its source.
    pub source: String,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Somebody measured it.
    Measured,
    /// Somebody demands it.
    Threshold,
    /// A data sheet promises it, and nothing reaches it.
    Peak,
}

impl Kind {
    /// The word in the tables.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Measured => "measured",
            Kind::Threshold => "threshold",
            Kind::Peak => "peak",
        }
    }
}

/// The table of a part, by its ids or by the name that its driver gives it.
pub fn find<'a>(skus: &'a [Sku], vendor: u16, device: u16, model: Option<&str>) -> Option<&'a Sku> {
    let of = |sku: &&Sku| sku.vendor == vendor;
    let named = |sku: &&Sku| model.is_some_and(|model| sku.models.iter().any(|name| name == model));
    skus.iter()
        .filter(of)
        .find(|sku| sku.devices.contains(&device))
        .or_else(|| skus.iter().filter(of).find(named))
}
