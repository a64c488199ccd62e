//! NICs that are known by their RDMA devices alone: Soft-RoCE over the machine's two cards.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use crate::{
    agent::{Agent, Scrape},
    machine::Machine,
};

const CONFIG: &str = r#"
[inventory]
interval = "1s"
nic_drivers = []

[probe.nic]
interval = "2s"
"#;

/// An interval, and a run on an emulated processor.
const WITHIN: Duration = Duration::from_secs(6);

pub(crate) fn run() {
    let mut machine = Machine::boot();
    machine.sh(". /lib.sh; rxe_mod\n\
         nic0=$(netdev_of 0000:23:00.0); nic1=$(netdev_of 0000:41:00.0)\n\
         rxe_join $nic0 $nic1\n\
         ib_device rxe0 0000:23:00.0; ib_device rxe1 0000:41:00.0");
    let measured = machine.sh(". /lib.sh\n\
         ib_write_bw -d rxe1 -F -D 1 >/tmp/server 2>&1 &\n\
         wait_listen 18515\n\
         ib_write_bw -d rxe0 -F -D 1 10.0.0.2");
    assert!(measured.contains("#bytes"), "ib_write_bw between the cards printed:\n{measured}");
    let mut agent = Agent::start(machine, CONFIG);

    let list = agent.list();
    let nics: BTreeMap<String, &serde_json::Value> = list["inventory"]["nics"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|nic| (nic["function"]["pci"].to_string(), &nic["rdma"]))
        .collect();
    assert_eq!(json!(nics), json!({"\"0000:23:00.0\"": ["rxe0"], "\"0000:41:00.0\"": ["rxe1"]}), "{list:#}");

    agent.until(WITHIN, "both ports pass", |scrape| verdicts(scrape) == [Some(0.0), Some(0.0)]);
    // The cable, not the interface: that would be the operator's doing.
    agent.machine.monitor("set_link nic1 off");
    let failed =
        agent.until(WITHIN, "a port without a cable", |scrape| verdicts(scrape) == [Some(0.0), Some(2.0)]);
    agent.machine.monitor("set_link nic1 on");
    let passed = agent.until(WITHIN, "its cable back", |scrape| verdicts(scrape) == [Some(0.0), Some(0.0)]);
    println!("a port without a cable: seen {failed:.2?}, cleared {passed:.2?}");
}

fn verdicts(scrape: &Scrape) -> [Option<f64>; 2] {
    ["rxe0", "rxe1"].map(|device| scrape.value("lane_verdict", &[("probe", "nic"), ("target", device)]))
}
