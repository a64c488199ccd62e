use super::*;
use crate::{
    Stage,
    inventory::{Function, Gpu, Nic as NicPart, Rdma},
    sample::{context, output, settings},
};

fn port(counters: &[(&str, u64)]) -> Port {
    Port {
        number: 1,
        state: Some("4: ACTIVE".into()),
        phys_state: Some("5: LinkUp".into()),
        rate: Some("400 Gb/sec (4X NDR)".into()),
        link_layer: Some("InfiniBand".into()),
        gids: Some(1),
        netdev: None,
        counters: counters.iter().map(|(name, value)| ((*name).to_string(), *value)).collect(),
    }
}

fn device(name: &str, port: Port) -> Device {
    Device {
        name: name.into(),
        node_type: Some("1: CA".into()),
        firmware: Some("28.39.1002".into()),
        board: Some("MT_0000000838".into()),
        ports: vec![port],
        unread: Vec::new(),
    }
}

fn inventory() -> Inventory {
    let function = |pci: &str, driver: &str| Function {
        pci: pci.into(),
        driver: Some(driver.into()),
        ..Function::default()
    };
    let rdma = |name: &str, pci: Option<&str>| Rdma {
        name: name.into(),
        pci: pci.map(Into::into),
        ports: vec![1],
        ..Rdma::default()
    };
    Inventory {
        gpus: vec![Gpu::default()],
        nics: vec![NicPart { function: function("0000:03:00.0", "mlx5_core"), ..NicPart::default() }],
        rdma: vec![
            rdma("mlx5_0", Some("0000:03:00.0")),
            rdma("mlx5_1", Some("0000:23:00.0")),
            rdma("rxe0", None),
        ],
        ..Inventory::default()
    }
}

fn read(
    settings: &Settings,
    memory: &mut Memory,
    at: f64,
    devices: &[Device],
    problems: &[Problem],
) -> Vec<Reading> {
    let inventory = inventory();
    let targets = Nic.targets(&inventory, settings);
    let ctx = context(&targets, &inventory, settings);
    Nic.parse(&ctx, &[output(at, devices, problems)], memory).unwrap()
}

fn value(reading: &Reading, metric: &str, kind: Option<&str>) -> Option<f64> {
    let found = reading.measurements.iter().find(|found| {
        found.metric.name == metric && kind.is_none_or(|kind| found.labels.iter().any(|label| label == kind))
    });
    found.map(|found| found.value)
}

fn verdict(reading: &Reading, check: &str) -> Option<Verdict> {
    reading.findings.iter().find(|finding| finding.check == check)?.verdict
}

#[test]
fn a_healthy_port_is_exported_in_bytes() {
    let device =
        device("mlx5_0", port(&[("counters/port_rcv_data", 1_210_498_127_347), ("counters/link_downed", 0)]));
    let reading = &read(&settings(), &mut Memory::default(), 0.0, &[device], &[])[0];
    assert_eq!(value(reading, "nic_received_bytes", None), Some(4_841_992_509_388.0));
    assert_eq!(value(reading, "nic_rate_bytes_per_second", None), Some(50e9));
    assert_eq!(value(reading, "nic_width_lanes", None), Some(4.0));
    assert_eq!(value(reading, "nic_port_up", None), Some(1.0));
    assert_eq!(value(reading, "nic_mtu_bytes", None), None);
    assert_eq!(verdict(reading, "port_state"), Some(Verdict::Pass));
    let info = reading.measurements.iter().find(|found| found.metric.name == "nic_device").unwrap();
    let labels =
        ["mlx5_0", "0000:03:00.0", "mlx5_core", "28.39.1002", "MT_0000000838", "InfiniBand", "", "CA"];
    assert_eq!(info.labels, labels);
    for measurement in &reading.measurements {
        assert!(METRICS.contains(&measurement.metric), "{}", measurement.metric.name);
    }
}

#[test]
fn a_port_that_flaps_is_degraded_although_it_is_active() {
    let (settings, mut memory) = (settings(), Memory::default());
    let counters = |downed| port(&[("counters/link_downed", downed), ("counters/link_error_recovery", 1)]);
    let before = read(&settings, &mut memory, 0.0, &[device("mlx5_0", counters(4))], &[]);
    assert_eq!(verdict(&before[0], "link_errors"), None, "one reading says nothing of growth");
    let after = read(&settings, &mut memory, 3599.0, &[device("mlx5_0", counters(17))], &[]);
    let finding = after[0].findings.iter().find(|finding| finding.check == "link_flaps").unwrap();
    assert_eq!(finding.verdict, Some(Verdict::Degraded));
    assert_eq!(finding.found, "link_downed +13 in 60 min");
    assert_eq!(verdict(&after[0], "port_state"), Some(Verdict::Pass));
    let later = read(&settings, &mut memory, 3700.0 + 3600.0, &[device("mlx5_0", counters(17))], &[]);
    assert_eq!(verdict(&later[0], "link_flaps"), None);
    assert_eq!(verdict(&later[0], "link_errors"), Some(Verdict::Pass));
}

#[test]
fn faults_are_judged_and_marks_of_congestion_are_not() {
    let (settings, mut memory) = (settings(), Memory::default());
    let counters = |n| {
        port(&[
            ("counters/symbol_error", n),
            ("counters/port_xmit_wait", n * 1000),
            ("hw_counters/np_cnp_sent", n * 1000),
            ("hw_counters/out_of_buffer", n * 1000),
            ("hw_counters/local_ack_timeout_err", n * 1000),
        ])
    };
    for (at, count, bad) in [(0.0, 0, 0), (60.0, 10, 0), (120.0, 11, 1)] {
        let reading = &read(&settings, &mut memory, at, &[device("mlx5_0", counters(count))], &[])[0];
        let degraded = reading.findings.iter().filter(|finding| finding.verdict == Some(Verdict::Degraded));
        assert_eq!(degraded.count(), bad, "{count}");
        assert_eq!(
            value(reading, "nic_errors", Some("symbol")),
            Some(f64::from(u32::try_from(count).unwrap()))
        );
    }
}

#[test]
fn a_full_field_and_a_cleared_one_are_said_to_be_so() {
    let (settings, mut memory) = (settings(), Memory::default());
    let mut at = |at, value| {
        let device = device("mlx5_0", port(&[("counters/link_downed", value)]));
        read(&settings, &mut memory, at, &[device], &[]).remove(0)
    };
    assert_eq!(verdict(&at(0.0, 255), "link_flaps"), Some(Verdict::Unknown));
    let reading = at(60.0, 12);
    let finding = reading.findings.iter().find(|finding| finding.check == "link_flaps").unwrap();
    assert_eq!(finding.found, "link_downed +12 in 60 s, and was cleared in between");
}

#[test]
fn a_port_that_is_down_fails_and_has_no_rate() {
    let down = Port {
        state: Some("1: DOWN".into()),
        phys_state: Some("2: Polling".into()),
        rate: Some("10 Gb/sec (4X SDR)".into()),
        ..port(&[])
    };
    let mut settings = settings();
    let reading = &read(&settings, &mut Memory::default(), 0.0, &[device("mlx5_0", down.clone())], &[])[0];
    assert_eq!(verdict(reading, "port_state"), Some(Verdict::Fail));
    assert_eq!(value(reading, "nic_rate_bytes_per_second", None), None);
    assert_eq!(value(reading, "nic_port_up", None), Some(0.0));
    for name in ["mlx5_0", "mlx5_0/1"] {
        settings.nic.unused = vec![name.into()];
        let reading =
            &read(&settings, &mut Memory::default(), 0.0, &[device("mlx5_0", down.clone())], &[])[0];
        assert_eq!(verdict(reading, "port_state"), None, "{name}");
    }
}

#[test]
fn fewer_lanes_than_the_same_product_beside_it_are_degraded() {
    let narrow = Port { rate: Some("200 Gb/sec (2X NDR)".into()), ..port(&[]) };
    let wide = device("mlx5_1", port(&[]));
    let readings = read(
        &settings(),
        &mut Memory::default(),
        0.0,
        &[device("mlx5_0", narrow.clone()), wide.clone()],
        &[],
    );
    assert_eq!(verdict(&readings[0], "link_width"), Some(Verdict::Degraded));
    assert_eq!(verdict(&readings[1], "link_width"), Some(Verdict::Pass));
    let other = Device { board: Some("MT_0000000999".into()), ..device("mlx5_0", narrow) };
    let readings = read(&settings(), &mut Memory::default(), 0.0, &[other, wide], &[]);
    assert_eq!(verdict(&readings[0], "link_width"), Some(Verdict::Pass), "another product may be narrower");
}

#[test]
fn an_unknown_speed_code_is_a_doubt_and_a_software_device_is_none() {
    let odd = Port { rate: Some("10 Gb/sec (4X SDR)".into()), ..port(&[]) };
    let software =
        Port { rate: Some("2.5 Gb/sec (1X SDR)".into()), link_layer: Some("Ethernet".into()), ..port(&[]) };
    let devices = [device("mlx5_0", odd), device("rxe0", software)];
    let readings = read(&settings(), &mut Memory::default(), 0.0, &devices, &[]);
    assert_eq!(verdict(&readings[0], "link_rate"), Some(Verdict::Unknown));
    assert_eq!(value(&readings[0], "nic_rate_bytes_per_second", None), None);
    let finding = readings[2].findings.iter().find(|finding| finding.check == "link_rate").unwrap();
    assert_eq!(finding.verdict, None);
}

#[test]
fn one_device_that_can_not_be_read_hides_no_other() {
    let stuck =
        Problem { part: "mlx5_1".into(), path: "/sys/x/rate".into(), error: "no answer within 3 s".into() };
    let mut odd = device("mlx5_0", port(&[]));
    odd.unread.push(Problem { part: "mlx5_0".into(), path: "/sys/x/lid".into(), error: "EIO".into() });
    let readings = read(&settings(), &mut Memory::default(), 0.0, &[odd], &[stuck]);
    assert_eq!(verdict(&readings[0], "port_state"), Some(Verdict::Pass));
    assert_eq!(verdict(&readings[0], "device_files"), Some(Verdict::Unknown));
    assert_eq!(readings[1].findings.len(), 1);
    assert_eq!(verdict(&readings[1], "device_files"), Some(Verdict::Unknown));
    assert_eq!(
        verdict(&readings[2], "presence"),
        Some(Verdict::Fail),
        "rxe0 is neither there nor unreadable"
    );
}

#[test]
fn a_listing_that_failed_is_a_doubt_about_each_device_and_no_loss() {
    let failed =
        Problem { part: lines::NODE.into(), path: "/sys/class/infiniband".into(), error: "EMFILE".into() };
    for reading in read(&settings(), &mut Memory::default(), 0.0, &[], &[failed]) {
        let [finding] = reading.findings.as_slice() else { panic!("{:?}", reading.findings) };
        assert_eq!((finding.verdict, finding.part.as_str()), (Some(Verdict::Unknown), reading.target.id()));
        assert!(finding.found.contains("/sys/class/infiniband: EMFILE"), "{finding:?}");
    }
}

#[test]
fn a_node_without_rdma_devices_is_not_measured() {
    let (settings, inventory) = (settings(), Inventory::default());
    assert!(Nic.targets(&inventory, &settings).is_empty());
    assert!(Nic.plan(&context(&[], &inventory, &settings)).is_err());
}

#[test]
fn the_plan_is_one_worker_that_is_told_where_to_read() {
    let (settings, inventory) = (settings(), inventory());
    let targets = Nic.targets(&inventory, &settings);
    let plan = Nic.plan(&context(&targets, &inventory, &settings)).unwrap();
    let [Stage::Alone(step)] = plan.stages.as_slice() else { panic!("{plan:?}") };
    assert_eq!(step.program, crate::Program::Worker("nic"));
    let request: serde_json::Value = serde_json::from_str(&step.stdin).unwrap();
    assert_eq!(request["roots"]["sysfs"], "/sys");
    assert_eq!(request["targets"], serde_json::json!(["mlx5_0", "mlx5_1", "rxe0"]));
}

#[test]
fn a_port_slower_than_all_others_of_its_product_is_degraded() {
    let at = |rate: &str| Port { rate: Some(rate.into()), ..port(&[]) };
    let (fast, slow) = ("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)");
    let table = [
        (vec![slow, fast, fast, fast], Some(Verdict::Degraded)),
        (vec![slow, fast, fast], None),
        (vec![slow, fast, fast, fast, slow], None),
        (vec![fast, slow, slow, slow], None),
        (vec![slow, slow, slow, slow], None),
    ];
    for (rates, want) in table {
        let devices: Vec<Device> = rates
            .iter()
            .enumerate()
            .map(|(number, rate)| device(&format!("mlx5_{number}"), at(rate)))
            .collect();
        let reading = read(&settings(), &mut Memory::default(), 0.0, &devices, &[]).remove(0);
        assert_eq!(verdict(&reading, "link_rate"), want, "{rates:?}");
    }
}
