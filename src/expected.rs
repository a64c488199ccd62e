//! The tables of what healthy parts do, read from the text that is built in.

use probes::expected::{FILES, Sku};

/// All tables, by the names of their files.
pub(crate) fn tables() -> Vec<(&'static str, Sku)> {
    FILES
        .iter()
        .map(|(name, text)| {
            let sku =
                toml::from_str(text).unwrap_or_else(|error| panic!("probes/expected/{name}.toml: {error}"));
            (*name, sku)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use probes::{
        MetricSpec, PROBES,
        expected::{Expected, find},
    };

    use super::*;

    fn metric(expected: &Expected) -> &'static MetricSpec {
        let known = PROBES.iter().flat_map(|probe| probe.metrics());
        let found = known.copied().find(|metric| metric.name == expected.metric);
        found.unwrap_or_else(|| panic!("no metric {}", expected.metric))
    }

    /// What no part of these years is below or above.
    fn sane(expected: &Expected) -> bool {
        let range = match metric(expected).unit {
            "flops" => 1e13..1e17,
            "bytes_per_second" => 1e10..2e13,
            "seconds" => 1e-6..1e-3,
            _ => return false,
        };
        range.contains(&expected.value)
    }

    #[test]
    fn every_value_has_a_source_a_metric_and_a_size_that_can_be() {
        for (name, sku) in tables() {
            assert!(!sku.expected.is_empty() && !sku.models.is_empty(), "{name}");
            for (word, source) in &sku.sources {
                assert!(sku.expected.iter().any(|expected| expected.source == *word), "{name}: {word}");
                assert!(source.title.len() > 10, "{name}: {word}");
                assert!(source.url.as_ref().is_none_or(|url| url.starts_with("https://")), "{name}: {word}");
            }
            for expected in &sku.expected {
                assert!(sane(expected), "{name}: {expected:?}");
                assert!(sku.sources.contains_key(&expected.source), "{name}: {expected:?}");
                for label in expected.labels.keys() {
                    assert!(metric(expected).labels.contains(&label.as_str()), "{name}: {label}");
                }
                let collective = expected.metric.starts_with("collective_");
                assert_eq!(
                    expected.gpus.is_some() && expected.bytes.is_some(),
                    collective,
                    "{name}: {expected:?}"
                );
            }
        }
    }

    #[test]
    fn parts_find_their_table_and_no_other() {
        let skus: Vec<Sku> = tables().into_iter().map(|(_, sku)| sku).collect();
        let ids: Vec<(u16, u16)> =
            skus.iter().flat_map(|sku| sku.devices.iter().map(|device| (sku.vendor, *device))).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let table = [
            (0x1002, 0x74a1, None, Some("AMD Instinct MI300X")),
            (0x1002, 0x0000, Some("AMD Instinct MI355X OAM"), Some("AMD Instinct MI355X")),
            (0x10de, 0x2330, None, Some("NVIDIA H100 SXM")),
            (0x1002, 0x75a3, None, Some("AMD Instinct MI355X")),
            (0x10de, 0x2335, Some("NVIDIA H200"), Some("NVIDIA H200 SXM")),
            (0x10de, 0x0000, Some("NVIDIA GB200"), None),
            (0x10de, 0x0000, Some("NVIDIA H200 NVL"), None),
            (0x10de, 0x0000, Some("NVIDIA B200"), Some("NVIDIA B200")),
            (0x1002, 0x0000, Some("NVIDIA B200"), None),
            (0x10de, 0x20b0, Some("NVIDIA A100-SXM4-40GB"), None),
        ];
        for (vendor, device, model, name) in table {
            assert_eq!(
                find(&skus, vendor, device, model).map(|sku| sku.name.as_str()),
                name,
                "{device:#x} {model:?}"
            );
        }
    }
}
