//! What recorded outputs come to.

use super::{
    tests::{context, ipv4, node, partner, rail},
    *,
};
use crate::{
    Finding, Memory, Output, ParseError, Partner, Probe, Reading, Verdict, find,
    inventory::{AMD, Gpu, NVIDIA},
    partner::{HostBandwidth, Side, Terms},
    sample,
};

const WRITE: &str = include_str!("../testdata/ib_write_bw/client.txt");
const WRITE_2: &str = include_str!("../testdata/ib_write_bw/client-2.txt");
const WRITE_SERVER: &str = include_str!("../testdata/ib_write_bw/server.txt");
const NOTHING: &str = include_str!("../testdata/ib_write_bw/nothing-measured.txt");
/// 400 Gb/s, both directions at once, all sizes.
const BOTH_WAYS: &str = include_str!("../testdata/ib_write_bw/bidirectional.txt");
const READ: &str = include_str!("../testdata/ib_read_bw/client.txt");
const READ_SERVER: &str = include_str!("../testdata/ib_read_bw/server.txt");
const SEND: &str = include_str!("../testdata/ib_send_bw/client.txt");
const SEND_SERVER: &str = include_str!("../testdata/ib_send_bw/server.txt");
const LATENCY: &str = include_str!("../testdata/ib_write_lat/client.txt");
const LATENCY_2: &str = include_str!("../testdata/ib_write_lat/client-2.txt");
/// From GPU memory, 400 Gb/s, both directions at once, all sizes.
const GPU: &str = include_str!("../testdata/gdr/client.txt");
const LOOPBACK: &str = include_str!("../testdata/loopback/client.txt");

/// Bytes per second in 1 MiB/s.
const MIB: f64 = 1_048_576.0;

fn output(stdout: &str) -> Output {
    Output { stdout: stdout.into(), ..Output::default() }
}

/// What the other end would have printed, whose addresses are the other way round.
fn mirrored(text: &str) -> String {
    let (one, two) = ("GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01", "GID: first");
    let other = one.replace(":01", ":02");
    text.replace(one, two).replace(&other, one).replace(two, &other)
}

fn parse(
    probe: &dyn Probe,
    inventory: &Inventory,
    settings: &Settings,
    partner: Option<&Partner>,
    printed: &[&str],
) -> Result<Reading, ParseError> {
    let outputs: Vec<Output> = printed.iter().map(|stdout| output(stdout)).collect();
    let targets = rail("mlx5_0");
    let ctx = context(&targets, inventory, settings, partner);
    let mut readings = probe.parse(&ctx, &outputs, &mut Memory::default())?;
    assert_eq!(readings.len(), 1);
    Ok(readings.remove(0))
}

fn finding<'a>(reading: &'a Reading, check: &str) -> &'a Finding {
    let mut of_check = reading.findings.iter().filter(|finding| finding.check == check);
    let found = of_check.next().unwrap_or_else(|| panic!("{check} in {:#?}", reading.findings));
    assert_eq!(of_check.next(), None);
    found
}

/// The value of the series with these labels behind the device's.
fn value(reading: &Reading, metric: &str, labels: &[&str]) -> f64 {
    let known = |m: &&crate::Measurement| m.metric.name == metric && m.labels[1..] == *labels;
    let found: Vec<_> = reading.measurements.iter().filter(known).collect();
    assert_eq!(found.len(), 1, "{metric} {labels:?} in {:#?}", reading.measurements);
    assert_eq!(found[0].labels[0], "mlx5_0");
    found[0].value
}

fn close(found: f64, want: f64) {
    assert!((found / want - 1.0).abs() < 1e-3, "{found} is not {want}");
}

#[test]
fn the_best_repeat_of_each_direction_counts() {
    let (inventory, settings) = (node(AMD), sample::settings());
    let mirrored_write = mirrored(WRITE_SERVER);
    let (mirrored_read, mirrored_send) = (mirrored(READ_SERVER), mirrored(SEND_SERVER));
    /// The probe, our side, what was printed, the metric, and MiB/s sent and received.
    type Row<'a> = (&'a str, Side, [&'a str; 4], &'a str, f64, f64);
    let table: [Row<'_>; 4] = [
        (
            "ib_write_bw",
            Side::Opener,
            [WRITE, WRITE_2, &mirrored_write, &mirrored_write],
            "rdma_write_bandwidth_bytes_per_second",
            37.97,
            35.46,
        ),
        (
            "ib_write_bw",
            Side::Server,
            [&mirrored_write, NOTHING, WRITE_2, WRITE],
            "rdma_write_bandwidth_bytes_per_second",
            37.97,
            35.46,
        ),
        (
            "ib_read_bw",
            Side::Server,
            [READ, READ, &mirrored_read, &mirrored_read],
            "rdma_read_bandwidth_bytes_per_second",
            41.98,
            41.98,
        ),
        (
            "ib_send_bw",
            Side::Opener,
            [SEND, SEND, &mirrored_send, &mirrored_send],
            "rdma_send_bandwidth_bytes_per_second",
            // Each side of a send measures by itself.
            40.49,
            44.36,
        ),
    ];
    for (probe, side, printed, metric, sent, received) in table {
        let partner = partner(side);
        let probe = find(probe).unwrap();
        let reading = parse(probe, &inventory, &settings, Some(&partner), &printed).unwrap();
        close(value(&reading, metric, &["node-b", "host", "sent"]), sent * MIB);
        close(value(&reading, metric, &["node-b", "host", "received"]), received * MIB);
        assert_eq!(reading.measurements.len(), 2);
        assert_eq!(finding(&reading, "transfer").verdict, Some(Verdict::Pass));
        assert_eq!(reading.bounds, [], "nobody said what to expect");
    }
}

#[test]
fn a_transfer_is_told_in_words() {
    let (inventory, settings) = (node(AMD), sample::settings());
    let back = mirrored(WRITE_SERVER);
    let printed = [WRITE, WRITE_2, &back, NOTHING];
    let opener = partner(Side::Opener);
    let reading = parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &printed).unwrap();
    assert_eq!(finding(&reading, "transfer").found, "0.3185 Gb/s sent, 0.2975 Gb/s received, with node-b");
    assert_eq!(
        finding(&reading, "spread").found,
        "between the best repeat and the worst: sent 6.6 %; received 0.0 %, 1 of 2 measured nothing"
    );
}

#[test]
fn what_the_operator_expects_is_told_for_each_direction_with_what_repeats_the_run() {
    let (inventory, mut settings) = (node(AMD), sample::settings());
    let (back, opener) = (mirrored(WRITE_SERVER), partner(Side::Opener));
    let printed = [WRITE, WRITE_2, &back, &back];
    settings.expected.write = Some(1.25e8);
    let reading = parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &printed).unwrap();
    let told: Vec<(&str, f64, f64, &str)> = reading
        .bounds
        .iter()
        .map(|bound| (bound.series[2].1.as_str(), bound.expected, bound.tolerance, bound.section))
        .collect();
    assert_eq!(
        told,
        [("sent", 1.25e8, 0.9, "probe.ib_write_bw"), ("received", 1.25e8, 0.9, "probe.ib_write_bw")]
    );
    assert_eq!(
        finding(&reading, "transfer").command,
        "/usr/bin/ib_write_bw -d mlx5_0 -i 1 -p 18700 -s 65536 -n 5000 -q 2 -N -F -x 3 --tclass=104 10.9.0.2 \
         # while node-b runs: ib_write_bw -d mlx5_4 -p 18700 -s 65536 -n 5000 -q 2 -N -F"
    );
}

#[test]
fn both_directions_at_once_are_halved() {
    let (inventory, mut settings) = (node(AMD), sample::settings());
    settings.rdma.size = 8_388_608;
    settings.rdma.repeats = 1;
    let mut opener = partner(Side::Opener);
    opener.terms.as_mut().unwrap().gid =
        Some([253, 147, 22, 211, 89, 182, 1, 80, 6, 144, 129, 255, 254, 54, 91, 176]);
    let reading =
        parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &[BOTH_WAYS, BOTH_WAYS]).unwrap();
    assert_eq!(finding(&reading, "transfer").found, "389.6 Gb/s sent, 389.6 Gb/s received, with node-b");
    let metric = "rdma_write_bandwidth_bytes_per_second";
    close(value(&reading, metric, &["node-b", "host", "sent"]), 779.21e9 / 8.0 / 2.0);
}

#[test]
fn latency_is_that_of_the_repeat_with_the_best_median() {
    let (inventory, mut settings) = (node(AMD), sample::settings());
    settings.rdma.latency_size = 2;
    for side in [Side::Opener, Side::Server] {
        let partner = partner(side);
        let reading =
            parse(&latency::Latency, &inventory, &settings, Some(&partner), &[LATENCY, LATENCY_2]).unwrap();
        let of = |quantile| value(&reading, "rdma_write_latency_seconds", &["node-b", quantile]);
        close(of("0.5"), 68.08e-6);
        close(of("0.99"), 324.88e-6);
        assert_eq!(reading.measurements.len(), 2);
        assert_eq!(
            finding(&reading, "transfer").found,
            "68.08 us typical, 324.88 us for 99 %, 731.07 us for 99.9 %, 82.02 us on average, with node-b"
        );
        assert!(finding(&reading, "spread").found.ends_with("typical 24.9 %"));
    }
    settings.expected.latency = Some(61e-6);
    let opener = partner(Side::Opener);
    let reading =
        parse(&latency::Latency, &inventory, &settings, Some(&opener), &[LATENCY, LATENCY_2]).unwrap();
    let bounds: Vec<(&str, f64)> =
        reading.bounds.iter().map(|bound| (bound.series[1].1.as_str(), bound.expected)).collect();
    assert_eq!(bounds, [("0.5", 61e-6)]);
}

/// The node of the recorded run from GPU memory: its GPU is on bus 15.
fn recorded_gpu() -> (Inventory, Settings, Partner) {
    let (mut inventory, mut settings) = (node(AMD), sample::settings());
    inventory.gpus[1].function.pci = "0000:15:00.0".into();
    settings.rdma.size = 8_388_608;
    settings.rdma.repeats = 1;
    let gid = [253, 147, 22, 211, 89, 182, 1, 79, 6, 144, 129, 255, 254, 58, 54, 80];
    let mut opener = partner(Side::Opener);
    let terms = opener.terms.as_mut().unwrap();
    *terms = Terms {
        gid: Some(gid),
        host: Some(HostBandwidth { sent: 48.7e9, received: 48.0e9 }),
        ..terms.clone()
    };
    (inventory, settings, opener)
}

#[test]
fn gpu_memory_is_compared_with_host_memory_of_the_same_lease() {
    let (inventory, mut settings, opener) = recorded_gpu();
    let reading = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &[GPU, GPU]).unwrap();
    let metric = "rdma_write_bandwidth_bytes_per_second";
    let one_way = 697.97e9 / 8.0 / 2.0;
    close(value(&reading, metric, &["node-b", "gpu", "sent"]), one_way);
    close(value(&reading, metric, &["node-b", "gpu", "received"]), one_way);
    close(value(&reading, "gdr_host_ratio", &["node-b"]), one_way / 48.7e9);
    assert_eq!(reading.measurements.len(), 3);
    assert_eq!(
        finding(&reading, "transfer").found,
        "349.0 Gb/s sent, 349.0 Gb/s received, with node-b, from GPU 0000:15:00.0 (PIX, dmabuf)"
    );
    settings.expected.gdr_host_ratio = Some(0.9);
    settings.expected.gdr = Some(48.0e9);
    let reading = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &[GPU, GPU]).unwrap();
    let bounds: Vec<(&str, f64, f64)> =
        reading.bounds.iter().map(|bound| (bound.metric.name, bound.expected, bound.tolerance)).collect();
    assert_eq!(bounds, [(metric, 48.0e9, 0.9), (metric, 48.0e9, 0.9), ("gdr_host_ratio", 0.9, 1.0)]);
}

#[test]
fn without_a_figure_of_the_lease_gdr_measures_host_memory_itself() {
    let (inventory, settings, mut opener) = recorded_gpu();
    opener.terms.as_mut().unwrap().host = None;
    let host = GPU.replace("697.97", "776.00").replace("0.010401", "0.011563");
    let host: Vec<&str> = host.lines().filter(|line| !line.contains("ROCm")).collect();
    let host = host.join("\n");
    let printed = [&host, &host, GPU, GPU];
    let reading = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &printed).unwrap();
    close(value(&reading, "gdr_host_ratio", &["node-b"]), 697.97 / 776.0);
    let short = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &printed[..2]);
    assert_eq!(short, Err(ParseError::Missing("output of a stage")));
}

#[test]
fn a_nic_to_itself_is_told_with_what_was_left_out() {
    let (mut inventory, mut settings) = (node(AMD), sample::settings());
    inventory.gpus.clear();
    let reading = parse(&loopback::Loopback, &inventory, &settings, None, &[LOOPBACK, LOOPBACK]).unwrap();
    close(value(&reading, "rdma_loopback_bandwidth_bytes_per_second", &["host"]), 63.48 * MIB);
    assert_eq!(reading.measurements.len(), 1);
    assert_eq!(finding(&reading, "transfer").found, "0.5325 Gb/s host memory");
    assert_eq!(finding(&reading, "gpu_memory").found, "this node has no GPU");
    assert_eq!(finding(&reading, "gpu_memory").verdict, None);
    settings.rdma.loopback_neighbour = true;
    settings.expected.loopback = Some(1.25e8);
    let neighbour = LOOPBACK.replace(
        "RKey 0x002e57 VAddr 0x007f5c9bb8e000\n GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01",
        "RKey 0x002e57 VAddr 0x007f5c9bb8e000\n GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:03",
    );
    let printed = [LOOPBACK, LOOPBACK, &neighbour, &neighbour];
    let reading = parse(&loopback::Loopback, &inventory, &settings, None, &printed).unwrap();
    assert_eq!(finding(&reading, "transfer").found, "0.5325 Gb/s host memory, 0.5325 Gb/s to mlx5_2");
    let bounds: Vec<&str> = reading.bounds.iter().map(|bound| bound.series[1].1.as_str()).collect();
    assert_eq!(bounds, ["host"], "of GPU memory nobody said anything");
    inventory.rdma.truncate(1);
    let reading = parse(&loopback::Loopback, &inventory, &settings, None, &[LOOPBACK, LOOPBACK]).unwrap();
    assert_eq!(finding(&reading, "neighbour").found, "this node has no other rail");
}

#[test]
fn figures_of_something_else_are_no_figures() {
    let (inventory, mut settings) = (node(AMD), sample::settings());
    settings.rdma.repeats = 1;
    let opener = partner(Side::Opener);
    let back = mirrored(WRITE_SERVER);
    let failed = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n";
    let cut = &WRITE[..WRITE.len() - 40];
    let table: [([&str; 2], &str); 7] = [
        (
            [WRITE_SERVER, &back],
            "the other end has the GID ::ffff:10.0.0.1, and mlx5_4 of node-b has ::ffff:10.0.0.2: another program \
             answered at its port, or it used another GID",
        ),
        ([NOTHING, &back], "no bandwidth other than 0.00 in the output"),
        ([cut, &back], "no closed table of perftest in the output"),
        (["", &back], "no closed table of perftest in the output"),
        ([LATENCY, &back], "perftest printed no row for the 65536 bytes that were asked for"),
        ([WRITE, ""], "no closed table of perftest in the output"),
        ([failed, &back], "retry"),
    ];
    for (printed, want) in table {
        let found = parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &printed);
        let words = found.unwrap_err().to_string();
        assert!(words.contains(want), "{words}");
    }
    let many = [WRITE, &back, &back];
    let found = parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &many);
    assert_eq!(found, Err(ParseError::Foreign("there are more outputs than stages".into())));
    let alone = parse(&bandwidth::WRITE_BW, &inventory, &settings, None, &[WRITE, &back]);
    assert_eq!(alone, Err(ParseError::Missing("partner")));
}

#[test]
fn another_gpu_than_the_one_that_was_meant_is_told() {
    let (mut inventory, settings, opener) = recorded_gpu();
    inventory.gpus[1].function.pci = "0000:16:00.0".into();
    let found = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &[GPU, GPU]);
    assert_eq!(
        found.unwrap_err().to_string(),
        "perftest used the GPU at bus 15, and 0000:16:00.0 was meant: its runtime counts the GPUs of this node in \
         another order"
    );
    // CUDA prints bus and device.
    inventory.gpus.iter_mut().for_each(|gpu: &mut Gpu| gpu.function.vendor = NVIDIA);
    let rocm = GPU.lines().find(|line| line.starts_with("Using ROCm")).unwrap();
    let cuda = GPU.replace(
        rocm,
        "initializing CUDA\nListing all CUDA devices in system:\nCUDA device 0: PCIe address is 13:00\n\
         CUDA device 1: PCIe address is 16:00\n\nPicking device No. 1\n",
    );
    assert!(parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &[&cuda, &cuda]).is_ok());
    let other = cuda.replace("Picking device No. 1", "Picking device No. 0");
    let found = parse(&gdr::Gdr, &inventory, &settings, Some(&opener), &[&other, &cuda]);
    assert!(
        found
            .unwrap_err()
            .to_string()
            .starts_with("perftest used the GPU at 13:00, and 0000:16:00.0 was meant")
    );
}

#[test]
fn infiniband_prints_no_gid_to_compare() {
    let (mut inventory, settings) = (node(AMD), sample::settings());
    inventory.rdma[0].wire.as_mut().unwrap().link_layer = "InfiniBand".into();
    let mut opener = partner(Side::Opener);
    opener.terms.as_mut().unwrap().gid = None;
    let bare = |text: &str| text.lines().filter(|line| !line.contains("GID")).collect::<Vec<_>>().join("\n");
    let (ours, theirs) = (bare(WRITE), bare(WRITE_SERVER));
    let printed = [&ours, &ours, &theirs, &theirs].map(String::as_str);
    assert!(parse(&bandwidth::WRITE_BW, &inventory, &settings, Some(&opener), &printed).is_ok());
    assert_eq!(ipv4(2).to_string(), "::ffff:10.0.0.2");
}
