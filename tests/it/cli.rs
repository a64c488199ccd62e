//! The command line, with an agent and without.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::agent::Machine;

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn list_and_probe_need_no_agent() {
    let machine = Machine::recorded("mi300x");
    let list = text(&machine.run(&["list"]));
    assert_eq!(
        list.lines().filter(|line| line.starts_with("pcie ") && line.ends_with(" supported")).count(),
        16,
        "{list}"
    );
    let probe = machine.run(&["probe", "pcie"]);
    assert_eq!(probe.status.code(), Some(0), "{probe:?}");
    assert_eq!(
        String::from_utf8_lossy(&probe.stdout).lines().filter(|line| line.contains(": pass: ")).count(),
        16
    );
    for (target, passed) in [("ionic_0", 1), ("no_such", 0)] {
        let said = machine.run(&["probe", "pcie", "--target", target]);
        let lines = String::from_utf8_lossy(&said.stdout).into_owned();
        let found = lines.lines().filter(|line| line.contains(": pass: ")).count();
        assert_eq!(found, passed, "a NIC by its RDMA device: {said:?}");
    }
    let unknown = machine.run(&["probe", "fusion"]);
    assert!(
        text(&unknown).contains("there is no test \"fusion\"; known are node, pcie, nic, gpu, "),
        "{unknown:?}"
    );
}

#[test]
fn list_tells_which_perftest_there_is_and_what_it_can_do() {
    let machine = Machine::recorded("mi300x");
    let folder = tempfile::tempdir().unwrap();
    let set = format!("[rdma]\nperftest_directory = {:?}\n", folder.path());
    machine.configure(&set);
    let list = text(&machine.run(&["list"]));
    assert!(list.contains("\nperftest is not installed\n"), "{list}");
    let missing = format!("not supported: there is no ib_write_bw in {}", folder.path().display());
    assert_eq!(list.matches(&missing).count(), 6 * 8, "{list}");

    let script = "#!/bin/sh\ncase $1 in --version) echo Version: 6.06 ;; --help) echo ' --use_rocm=<id>' ;; esac\nexit 1\n";
    for program in ["ib_write_bw", "ib_read_bw", "ib_write_lat"] {
        fs::write(folder.path().join(program), script).unwrap();
        fs::set_permissions(folder.path().join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let list = text(&machine.run(&["list"]));
    let told = format!("\nperftest {}, version 6.06, GPU memory by use_rocm\n", folder.path().display());
    assert!(list.contains(&told), "{list}");
    for (probe, supported) in
        [("ib_write_bw", true), ("ib_send_bw", false), ("gdr", true), ("loopback", true)]
    {
        let of_probe = list.lines().filter(|line| line.starts_with(&format!("{probe} ")));
        let found = of_probe.filter(|line| line.ends_with(" supported")).count();
        assert_eq!(found, if supported { 8 } else { 0 }, "{probe}: {list}");
    }
    let list: serde_json::Value = serde_json::from_slice(&machine.run(&["list", "--json"]).stdout).unwrap();
    assert_eq!(list["inventory"]["perftest"]["gpu_options"], serde_json::json!(["use_rocm"]));
}

#[test]
fn probe_asks_the_agent_where_there_is_one() {
    let machine = Machine::recorded("mi300x");
    let _agent = machine.start();
    let said = text(&machine.run(&["probe", "nic", "--json"]));
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["run"]["trigger"], "on_demand", "{said}");
    let said = text(&machine.run(&["probe", "nic"]));
    assert!(said.contains("argv: [\"fabricpulse\", \"worker\", \"nic\"]"), "{said}");
}

#[test]
fn a_check_without_an_agent_fails_open_with_a_message() {
    let machine = Machine::empty();
    for (format, code) in [("nagios", 3), ("npd", 2), ("slurm", 0), ("json", 3)] {
        let output = machine.run(&["check", "--format", format]);
        assert_eq!(output.status.code(), Some(code), "{format}: {output:?}");
        assert!(text(&output).contains("no agent at"), "{format}: {output:?}");
    }
}

#[test]
fn a_check_says_why_it_has_no_answer() {
    let machine = Machine::empty();
    // A socket that takes a request and ends the connection.
    let listener = std::os::unix::net::UnixListener::bind(machine.path("agent.sock")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().unwrap();
        let mut request = [0; 16];
        std::io::Read::read_exact(&mut caller, &mut request).unwrap();
    });
    let said = text(&machine.run(&["check"]));
    server.join().unwrap();
    assert!(said.contains("answer of ") && said.contains(": connection "), "{said}");
}

#[test]
fn a_hold_is_placed_seen_and_released() {
    let machine = Machine::empty();
    let agent = machine.start();
    let held = machine.run(&["hold", "--for", "1h", "--reason", "job-4711"]);
    assert_eq!(held.status.code(), Some(0), "{held:?}");
    assert!(agent.get("/api/v1/status").body.contains("job-4711"));
    drop(agent);
    let agent = machine.start();
    assert!(agent.get("/api/v1/status").body.contains("job-4711"), "it survives a restart");
    assert_eq!(agent.post("/api/v1/release", "{}").status, 403, "not over open TCP");
    machine.run(&["release"]);
    assert!(!agent.get("/api/v1/status").body.contains("job-4711"));
}

#[test]
fn active_checks_are_refused_in_words_until_they_are_allowed() {
    let machine = Machine::empty();
    let check = "[[probe.exec.check]]\nname = \"burn\"\nargv = [\"/bin/echo\", \"{\\\"end\\\":{}}\"]\ncost = \"heavy\"\ninterval = \"1h\"\n";
    machine.configure(check);
    let agent = machine.start();
    assert_eq!(
        agent.get("/probe?test=exec&target=burn").status,
        403,
        "an active test needs a trusted caller"
    );
    let refused = machine.ask("GET", "/probe?test=exec&target=burn", "");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(
        refused.body.contains("active probes are off")
            && refused.head.to_lowercase().contains("retry-after: "),
        "{refused:?}"
    );
    drop(agent);
    machine.configure(&format!("active = true\n{check}"));
    let _agent = machine.start();
    assert_eq!(machine.ask("GET", "/probe?test=exec&target=burn", "").status, 200);
    let refused = machine.ask("GET", "/probe?test=exec&target=burn", "");
    assert_eq!(refused.status, 429, "two heavy runs an hour, one of them at once: {refused:?}");
}

#[test]
fn what_is_generated_is_what_is_built_in() {
    let machine = Machine::empty();
    let config = machine.run(&["generate", "config"]);
    fs::write(machine.config(), &config.stdout).unwrap();
    assert_eq!(machine.run(&["--config.check"]).status.code(), Some(0));
    let metrics = text(&machine.run(&["generate", "metrics"]));
    assert!(metrics.contains("| `fabricpulse_pcie_link_width_lanes` | `pci` | `pcie` |"), "{metrics}");
}

#[test]
fn a_check_that_prints_only_findings_has_an_age() {
    let machine = Machine::empty();
    machine.configure(
        r#"[[probe.exec.check]]
        name = "disk"
        interval = "1h"
        argv = ["/usr/bin/printf", '{"finding":{"check":"wear","verdict":"fail","found":"worn","expected":"new"}}\n{"end":{}}\n']
        "#,
    );
    let agent = machine.start();
    agent.get("/probe?test=exec&target=disk");
    let status: serde_json::Value = serde_json::from_str(&agent.get("/api/v1/status").body).unwrap();
    let lanes = status["lanes"].as_array().unwrap();
    let lane = lanes.iter().find(|lane| lane["probe"] == "exec").unwrap();
    assert_eq!(lane["verdict"], "fail", "{lane}");
    assert!(
        lane["last_completed"].as_f64() > Some(1e9) && lane["last_judged"].as_f64() > Some(1e9),
        "{lane}"
    );
}

#[test]
fn saved_output_is_read_without_an_agent_and_the_status_says_only_whether_it_could() {
    let machine = Machine::empty();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/testdata/perftest");
    let read = |arguments: &[&str]| {
        let mut all = vec!["read"];
        all.extend(arguments);
        machine.run(&all)
    };
    let slow = folder.join("003-rdma-cm-low-bw/input.txt").display().to_string();
    let output = read(&["perftest", "--exit-code=0", "--expect=90Gb/s", &slow]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), object["class"].as_str()), (Some(0), Some("degraded")), "{object}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    // The command alone says that it is Gb/s.
    let bare = folder.join("013-json-trailing-comma/input.txt").display().to_string();
    let output = read(&["perftest", "--cmdline=sudo ib_write_bw --report_gbits --output=bandwidth", &bare]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((object["unit"].as_str(), object["files"][0].as_str()), (Some("Gb/s"), Some("input.txt")));
    // Both names are of one format; correct data says nothing of speed.
    let nccl = folder.join("../nccl_tests/026-two-node-slow/input.txt").display().to_string();
    for name in ["nccl-tests", "rccl-tests"] {
        let output =
            read(&[name, "--exit-code=0", "--expect=50GB/s", "--cmdline=mpirun all_reduce_perf", &nccl]);
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let read = (object["format"].as_str(), object["class"].as_str(), object["nranks"].as_u64());
        assert_eq!(read, (Some("nccl-tests"), Some("degraded"), Some(16)), "{object}");
    }
    let folder = folder.display().to_string();
    for (arguments, code) in [
        (vec!["perftest", folder.as_str()], 1),
        (vec!["perftest", "/no/such/file"], 1),
        (vec!["nccl-tests", folder.as_str()], 1),
        (vec!["perftests", slow.as_str()], 2),
        (vec!["nccl", slow.as_str()], 2),
        (vec!["rccl-tests"], 2),
        (vec!["perftest"], 2),
        (vec!["perftest", "--expect=90", slow.as_str()], 2),
        (vec!["perftest", "--exit-code=x", slow.as_str()], 2),
        (vec!["perftest", "--no-such", slow.as_str()], 2),
    ] {
        let output = read(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test chooses where the command writes")]
fn a_reader_that_goes_is_no_error_and_a_full_disk_is_one() {
    let expected = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabricpulse"));
        command.arg("expected").stderr(Stdio::piped());
        command
    };
    let mut child = expected().stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let gone = child.wait_with_output().unwrap();
    assert!(gone.status.success() && gone.stderr.is_empty(), "{gone:?}");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = expected().stdout(full).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full).contains("cannot write to standard output: No space left on device"), "{full:?}");
}

#[test]
fn expected_tells_each_value_with_who_says_so() {
    let machine = Machine::recorded("mi300x");
    let known = text(&machine.run(&["expected", "MI325X"]));
    assert!(
        known.contains("threshold  669.0 TFLOP/s  gemm_flops{dtype=\"bf16\"}\n            [rvs] "),
        "{known}"
    );
    assert!(known.contains("  [rvs] ROCm Validation Suite, "), "{known}");
    let unknown = machine.run(&["expected", "voodoo"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown).contains("there is no table of \"voodoo\"; known are a100, b200, "),
        "{unknown:?}"
    );
}
