//! The settings that must be equal at both ends: perftest's two halves do not tell each other, and
//! end in errors or in figures of something else.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::settings::RdmaSettings;

/// What a partner must have set alike, by name.
pub fn parameters(settings: &RdmaSettings) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("size", settings.size.into()),
        ("queue_pairs", settings.queue_pairs.into()),
        ("seconds", settings.seconds.into()),
        ("most_messages", settings.most_messages.into()),
        ("repeats", settings.repeats.into()),
        ("latency_size", settings.latency_size.into()),
        ("latency_messages", settings.latency_messages.into()),
        ("traffic_class", settings.traffic_class.into()),
        ("mtu", settings.mtu.into()),
    ])
}

/// The first parameter that differs, in words; none if the two can measure together.
pub fn difference(ours: &BTreeMap<&'static str, Value>, theirs: &BTreeMap<String, Value>) -> Option<String> {
    ours.iter().find_map(|(name, here)| match theirs.get(*name) {
        Some(there) if there == here => None,
        Some(there) => Some(format!("{name} is {} here and {} there", shown(here), shown(there))),
        None => Some(format!("{name} is {} here and not told by the other side", shown(here))),
    })
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_string(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_differs_is_named_with_both_values() {
        let ours = sample::settings().rdma;
        let sent = |settings: &RdmaSettings| -> BTreeMap<String, Value> {
            serde_json::from_str(&serde_json::to_string(&parameters(settings)).unwrap()).unwrap()
        };
        let change = |change: fn(&mut RdmaSettings)| {
            let mut settings = ours.clone();
            change(&mut settings);
            sent(&settings)
        };
        let mut silent = sent(&ours);
        silent.remove("mtu");
        let table = [
            (sent(&ours), None),
            (change(|s| s.tolerance = 0.5), None),
            (change(|s| s.rails = vec!["mlx5_7".into()]), None),
            (change(|s| s.size = 1 << 20), Some("size is 65536 here and 1048576 there")),
            (change(|s| s.queue_pairs = 1), Some("queue_pairs is 2 here and 1 there")),
            (change(|s| s.seconds = 0.25), Some("seconds is 0.1 here and 0.25 there")),
            (change(|s| s.most_messages = 1000), Some("most_messages is 10000 here and 1000 there")),
            (change(|s| s.repeats = 1), Some("repeats is 2 here and 1 there")),
            (change(|s| s.latency_size = 2), Some("latency_size is 8 here and 2 there")),
            (change(|s| s.latency_messages = 100), Some("latency_messages is 500 here and 100 there")),
            (change(|s| s.traffic_class = None), Some("traffic_class is 104 here and not set there")),
            (change(|s| s.mtu = Some(4096)), Some("mtu is not set here and 4096 there")),
            (silent, Some("mtu is not set here and not told by the other side")),
        ];
        for (theirs, want) in table {
            assert_eq!(difference(&parameters(&ours), &theirs).as_deref(), want);
        }
    }
}
