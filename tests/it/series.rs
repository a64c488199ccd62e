//! The ledger of series: how many each family has on a full node, and that the sum stays bounded.

use std::{collections::BTreeMap, fs, path::Path};

use crate::agent::Machine;

/// What a node may export with all probes and three partners, whatever the size of the fleet.
const MOST: usize = 1600;

#[test]
fn the_ledger_counts_every_family_and_stays_bounded() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    let metrics = agent.settled(33);
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        *families.entry(family).or_default() += 1;
    }
    let total: usize = families.values().sum();
    let mut ledger =
        String::from("Series of a node of 8 GPUs and 8 NICs, by family. Most: 1600 with all probes.\n");
    for (family, count) in &families {
        ledger.push_str(&format!("{count:5} {family}\n"));
    }
    ledger.push_str(&format!("{total:5} in all\n"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/series.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &ledger).unwrap();
    }
    assert!(total <= MOST, "{total} series");
    assert_eq!(ledger, fs::read_to_string(&file).unwrap_or_default(), "UPDATE_GOLDEN=1 renews it");
}
