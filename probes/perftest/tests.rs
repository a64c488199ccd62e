use super::*;

/// A run of the laboratory, or one made from it.
fn run(rows: &str) -> String {
    let rule = "-".repeat(87);
    format!(
        "{rule}\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : rxe0\n \
         Number of qps   : 1\t\tTransport type : IB\n TX depth        : 128\n Mtu             : 4096[B]\n \
         Link type       : Ethernet\n GID index       : 1\n rdma_cm QPs\t : OFF\n{rule}\n \
         local address: LID 0000 QPN 0x0063 PSN 0x59411a RKey 0x004bfc VAddr 0x007f118aad0000\n \
         GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01\n \
         remote address: LID 0000 QPN 0x005c PSN 0x52e3ec RKey 0x004796 VAddr 0x007f4768399000\n \
         GID: 254:128:00:00:00:00:00:00:80:84:00:255:254:18:52:86\n{rule}\n \
         #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n{rows}"
    )
}

fn closed(rows: &str) -> String {
    format!("{}{}\n", run(rows), "-".repeat(87))
}

const ROW: &str = " 65536      1281             0.00               20.01  \t\t   0.000320\n";

#[test]
fn a_run_is_read_with_its_ends_and_units() {
    let log = read(&closed(ROW), "", None);
    let run = log.last().unwrap();
    assert!(log.complete && log.recognised && run.complete);
    assert_eq!(
        (run.test.as_deref(), run.role(), run.device.as_deref()),
        (Some("ib_write_bw"), Some("client"), Some("rxe0"))
    );
    assert_eq!((run.mtu, run.qps, run.rdma_cm), (Some(4096), Some(1), Some(false)));
    assert_eq!(run.bandwidth(), Some(20.01 * 1_048_576.0));
    assert_eq!(run.local.gid.unwrap()[10..], [255, 255, 10, 0, 0, 1]);
    assert_eq!(run.remote.gid.unwrap()[..9], [254, 128, 0, 0, 0, 0, 0, 0, 80]);
    assert_eq!((run.remote.qpn, run.remote.lid), (Some(0x5c), Some(0)));
    assert_eq!((run.unit, run.header_unit), (Some(Unit::Mebibytes), Some(Unit::Mebibytes)));
    assert_eq!(run.rows[0].peak, None);
    assert_eq!(log.cause(), None);
}

#[test]
fn a_figure_before_a_failure_is_not_a_whole_run() {
    let stderr = "ethernet_read_keys: Couldn't read remote address\n Unable to read from socket/rdma_cm\n \
                  Failed to exchange data between server and clients\n";
    let log = read(&closed(ROW), stderr, None);
    assert!(!log.complete);
    assert!(log.cause().unwrap().starts_with("ethernet_read_keys: Couldn't read remote address: "));
    assert_eq!(log.errors.len(), 3);
}

#[test]
fn an_average_of_zero_is_not_measured() {
    let row = " 65536      1664             0.00               0.00   \t\t   0.000000\n";
    let log = read(&closed(row), "Correlation coefficient r^2: 0.625142 < 0.9\n", None);
    assert!(log.complete && log.errors.is_empty());
    assert_eq!(log.last().unwrap().bandwidth(), None);
}

#[test]
fn size_and_rate_outweigh_the_label() {
    let row = " 65536      5000             197.43             197.05 \t\t   0.375843\n";
    let log = read(&closed(row), "", None);
    let run = log.last().unwrap();
    assert_eq!((run.header_unit, run.unit), (Some(Unit::Mebibytes), Some(Unit::Gigabits)));
    assert_eq!(run.bandwidth(), Some(197.05 * 1.25e8));
    let row = " 65536      5000             197.43             197.05 \t\t   0.1\n";
    let log = read(&closed(row), "", None);
    let run = log.last().unwrap();
    assert_eq!((run.check, run.bandwidth(), run.bandwidth_one_way()), (Some(Check::FitsNeither), None, None));
}

#[test]
fn both_directions_are_a_sum_but_for_send_with_duration() {
    let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    let text = closed(ROW).replace("RDMA_Write BW", "RDMA_Write Bidirectional BW");
    let log = read(&text, "", None);
    let run = log.last().unwrap();
    assert_eq!(run.bandwidth_one_way(), run.bandwidth().map(|both| both / 2.0));
    let send = text.replace("RDMA_Write", "Send");
    for (command, alone) in [
        (Some("ib_send_bw -b -D 5"), true),
        (Some("ib_send_bw -b -n 500"), false),
        // The peak is missing, so it is a duration.
        (None, true),
    ] {
        let log = read(&send, "", command.map(words).as_deref());
        let run = log.last().unwrap();
        assert_eq!(run.bandwidth_one_way() == run.bandwidth(), alone, "{command:?}");
    }
}

#[test]
fn latencies_are_seconds_unless_they_are_cycles() {
    let rule = "-".repeat(87);
    let text = format!(
        "                    RDMA_Write Latency Test\n #bytes #iterations    t_min[usec]    t_max[usec]  \
         t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
         2       1000          278.54         7075.65      721.84   \t       1333.79     \t1123.70\t\t4988.36 \t\t7075.65\n{rule}\n"
    );
    let log = read(&text, "", None);
    let times = log.last().unwrap().latency().unwrap();
    let seconds = |figure: Option<Figure>| figure.unwrap().base.unwrap();
    assert!((seconds(times.typical) - 721.84e-6).abs() < 1e-12);
    assert!((seconds(times.p99) - 4988.36e-6).abs() < 1e-12);
    assert!((seconds(times.p999) - 7075.65e-6).abs() < 1e-12);
    let log = read(&text, "", Some(&["ib_write_lat".into(), "-C".into()]));
    let typical = log.last().unwrap().latency().unwrap().typical.unwrap();
    assert_eq!((typical.printed, typical.base), (721.84, None));
}

#[test]
fn the_gpu_is_the_one_that_was_picked() {
    let cuda = "initializing CUDA\nListing all CUDA devices in system:\nCUDA device 0: PCIe address is 1B:00\n\
                CUDA device 1: PCIe address is 29:00\n\nPicking device No. 1\n\
                [pid = 13194, dev = 1] device name = [NVIDIA H100 80GB HBM3]\n";
    let rocm = "Using ROCm Device with ID: 2, Name: AMD Instinct MI300X, PCI Bus ID: 0x9, GCN Arch: gfx942:sramecc+:xnack-\n";
    for (text, index, bdf, bus, name) in [
        (cuda, 1, "29:00", 0x29, "NVIDIA H100 80GB HBM3"),
        (rocm, 2, "0x9", 0x9, "AMD Instinct MI300X"),
        ("Finding PCIe BUS 0000:29:00.0\nPicking GPU number 3\n", 3, "0000:29:00.0", 0x29, ""),
    ] {
        let log = read(&(text.to_string() + &closed(ROW)), "", None);
        let gpu = &log.last().unwrap().gpu;
        assert_eq!((gpu.index, gpu.bdf.as_deref(), gpu.bus()), (Some(index), Some(bdf), Some(bus)), "{text}");
        assert_eq!(gpu.name.as_deref().unwrap_or_default(), name);
    }
}

#[test]
fn a_failure_says_what_it_probably_means() {
    let table: &[(&str, bool, &[&str])] = &[
        (
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
            false,
            &["12", "transport retry counter exceeded", "peer", "link", "GID", "MTU"],
        ),
        (
            " Failed status-remote access error (10): wr_id 0 syndrom 0x88\n",
            false,
            &["10", "remote access error"],
        ),
        (
            "Couldn't allocate MR\n Failed to create MR\nERRNO: Bad address.\n",
            true,
            &["GPU memory", "EFAULT", "dmabuf"],
        ),
        ("Couldn't allocate MR with error=93\n", false, &["EPROTONOSUPPORT", "93", "dmabuf"]),
        ("Couldn't allocate MR with error=12\n", false, &["ENOMEM", "memlock"]),
        (
            " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n",
            false,
            &["Port number 1 state is Down", "cable"],
        ),
        (
            "Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor for socket connection Unable to init the socket connection\n",
            false,
            &["Couldn't connect to 10.0.0.2:18515"],
        ),
        (
            "Couldn't listen to port 18515\nUnable to open file descriptor for socket connection\n",
            false,
            &["18515", "another"],
        ),
        (
            " report_fmt mismatch: local=MBS, remote=GBS\n Failed to negotiate parameters\n",
            false,
            &["report_fmt", "MBS", "GBS"],
        ),
        (" Did not get Message for 120 Seconds, exiting..\n", false, &["120 s"]),
        ("IB device nope0 not found\n Unable to find the Infiniband/RoCE device\n", false, &["nope0"]),
        (
            "Failed to modify QP 76 to RTR\n Unable to Connect the HCA's through the link\n",
            false,
            &["RTR", "GID"],
        ),
        (
            "ib_write_bw: unrecognized option '--no-such-option'\n Invalid Command or flag.\n",
            false,
            &["option"],
        ),
    ];
    for (stderr, gpu, words) in table {
        let command = gpu.then(|| ["ib_write_bw".to_string(), "--use_cuda=0".into()]);
        let log = read("", stderr, command.as_ref().map(<[String; 2]>::as_slice));
        assert!(!log.complete);
        let cause = log.cause().unwrap_or_default();
        for word in *words {
            assert!(cause.contains(word), "{stderr:?}: {cause:?} lacks {word:?}");
        }
    }
}

#[test]
fn notices_are_no_errors_and_foreign_errors_are_not_perftests() {
    let notices = "Device not recognized to implement inline feature. Disabling it\n\
                   Perftest doesn't supports CUDA tests with inline messages: inline size set to 0\n\
                   Correlation coefficient r^2: 0.625142 < 0.9\n\
                   Requested SQ size might be too big. Try reducing TX depth and/or inline size.\n\
                   \u{1b}[31mThe QP failed to accept HW rate limit, providing SW rate limit \u{1b}[0m\n\
                    OOO_RECV_WRS mismatch, disabling enhanced reorder\n\
                   Warning: Failed to migrate memory to node 1\n";
    let log = read(&closed(ROW), notices, None);
    assert_eq!((log.errors, log.complete), (Vec::<String>::new(), true));
    let log = read("node-a: Test NCCL failure common.cu:1 'unhandled'\nFailed: x\n", "", None);
    assert!(!log.recognised && log.errors.is_empty());
}
