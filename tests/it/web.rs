//! The web server of the real binary: what it refuses, what it survives, and who reads its answers.
#![expect(clippy::disallowed_methods, reason = "a test starts another reader")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::agent::{Agent, Machine, get, value};

/// Sends bytes as they are, and reads what comes until the agent closes or `patience` is over.
fn raw(agent: &Agent, bytes: &[u8], patience: Duration) -> String {
    let mut stream = TcpStream::connect(&agent.address).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    // The agent may hang up before it took everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

/// A machine with an operator's check that hangs, and that nobody runs by itself.
fn slow(timeout: &str) -> Machine {
    let machine = Machine::recorded("mi300x");
    let script = machine.path("slow");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    machine.configure(&format!(
        "[[probe.exec.check]]\nname = \"slow\"\nargv = [\"{}\"]\ninterval = \"7d\"\ntimeout = \"{timeout}\"\n",
        script.display()
    ));
    machine
}

#[test]
fn what_probe_does_not_know_is_400_with_what_it_knows() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    let table = [
        ("/probe", "parameter \"test\" is missing; known are node, pcie, nic, gpu, gemm, "),
        ("/probe?test=fusion", "there is no test \"fusion\""),
        ("/probe?test=pcie&target=0000:ff:00.0", "0000:ff:00.0"),
        ("/probe?test=nic&peer=node-b", "it takes no peer"),
        ("/probe?test=ib_write_bw&target=ionic_0&peer=node-b", "there is no peer \"node-b\""),
        ("/probe?test=nic&debug=perhaps", "debug must be true or false"),
        ("/probe?test=nic&tset=1", "tset"),
    ];
    for (path, message) in table {
        let answer = agent.get(path);
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.body.contains(message), "{path}: {answer:?}");
    }
    let answer = agent.get_with("/probe?test=nic", &[("X-Prometheus-Scrape-Timeout-Seconds", "soon")]);
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn a_passive_probe_is_open_and_its_debug_is_not() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    let answer = agent.get("/probe?test=nic&target=ionic_0");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(value(&answer.body, "probe_success"), Some(1.0), "{}", answer.body);
    assert!(value(&answer.body, "probe_duration_seconds").unwrap() > 0.0);
    assert_eq!(value(&answer.body, "probe_timeout_seconds"), Some(10.0));
    assert!(!answer.body.contains("ionic_1"), "only what was asked for: {}", answer.body);

    let debug = "/probe?test=nic&target=ionic_0&debug=true";
    assert_eq!(agent.get(debug).status, 403);
    let answer = machine.ask("GET", debug, "");
    assert_eq!(answer.status, 200);
    for text in ["argv: [", "exit: exit ", "expected: 4: ACTIVE"] {
        assert!(answer.body.contains(text), "{text:?} is missing: {}", answer.body);
    }
}

/// How the newest run ended, in words.
fn ended(machine: &Machine) -> String {
    let runs: serde_json::Value = serde_json::from_str(&machine.ask("GET", "/api/v1/runs", "").body).unwrap();
    let exec = runs["runs"].as_array().unwrap().iter().find(|run| run["probe"] == "exec");
    let id = &exec.expect("a run of the check")["id"];
    machine.ask("GET", &format!("/api/v1/runs/{id}"), "").body
}

#[test]
fn a_scraper_that_gives_up_first_is_answered_in_time() {
    let machine = slow("60s");
    let agent = machine.start();
    let began = Instant::now();
    let answer =
        agent.get_with("/probe?test=exec&target=slow", &[("X-Prometheus-Scrape-Timeout-Seconds", "2")]);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}: {answer:?}", began.elapsed());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(value(&answer.body, "probe_success"), Some(0.0), "{}", answer.body);
    assert_eq!(value(&answer.body, "probe_timeout_seconds"), Some(1.5), "{}", answer.body);
    assert!(ended(&machine).contains("cancelled at the caller's deadline"), "{}", ended(&machine));
}

#[test]
fn only_the_probes_own_deadline_is_a_timeout() {
    let machine = slow("1s");
    let agent = machine.start();
    let path = "/probe?test=exec&target=slow";
    assert_eq!(value(&agent.get(path).body, "probe_success"), Some(0.0));
    assert!(ended(&machine).contains("was ended at its deadline of 1 s"), "{}", ended(&machine));
    agent.get_with(path, &[("X-Prometheus-Scrape-Timeout-Seconds", "0.9")]);
    assert!(ended(&machine).contains("cancelled at the caller's deadline"), "{}", ended(&machine));
}

#[test]
fn open_metrics_are_what_another_parser_reads() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    agent.settled(33);
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let script = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
        print(sum(len(family.samples) for family in parse(sys.stdin.read())))";
    for path in ["/metrics", "/probe?test=pcie"] {
        let answer = agent.get_with(path, &accept);
        assert!(answer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", answer.head);
        // Debian's own Python: another one has not its packages.
        let mut reader = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3 is a package of Debian; tests/run installs it");
        reader.stdin.take().unwrap().write_all(answer.body.as_bytes()).unwrap();
        let output = reader.wait_with_output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        let samples: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let ours = answer.body.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples, ours, "{path}");
    }
}

#[test]
fn gzip_holds_the_same_and_head_holds_nothing() {
    let machine = Machine::empty();
    let agent = machine.start();
    let packed = {
        let mut stream = TcpStream::connect(&agent.address).unwrap();
        let request =
            "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    let at = packed.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&packed[..at]).to_lowercase();
    assert!(
        head.contains("content-encoding: gzip") && head.contains("vary: accept, accept-encoding"),
        "{head}"
    );
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[at + 4..]).read_to_string(&mut text).unwrap();
    assert!(text.contains("fabricpulse_build_info{") && text.len() > packed.len(), "{text}");

    for path in ["/", "/metrics", "/-/healthy", "/api/v1/status"] {
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = raw(&agent, request.as_bytes(), Duration::from_secs(5));
        assert_eq!(status(&answer), "200", "{path}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "HEAD has no body: {answer}");
    }
    assert_eq!(agent.post("/metrics", "").status, 405);
    assert_eq!(agent.get("/nothing").status, 404);
}

#[test]
fn connections_that_say_half_a_word_do_not_hurt() {
    let machine = Machine::empty();
    let agent = machine.start();
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET /met",
        b"GET /metrics HTTP/1.1\r\nHost:",
        b"POST /api/v1/hold HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ];
    let held: Vec<TcpStream> = (0..10)
        .map(|at| {
            let mut stream = TcpStream::connect(&agent.address).unwrap();
            stream.write_all(beginnings[at % beginnings.len()]).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(agent.get("/metrics").status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    agent.signal(rustix::process::Signal::TERM);
    let (took, code) = agent.end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(6), "they do not hold up the end: {took:?}");
    drop(held);
}

#[test]
fn two_hundred_requests_at_once_are_answered_or_refused_and_leave_nothing() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    agent.settled(33);
    let files = || fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
    let before = files();
    let address = agent.address.as_str();
    let answers: Vec<u16> = thread::scope(|scope| {
        let all: Vec<_> = (0..200).map(|_| scope.spawn(|| get(address, "/metrics").status)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let good = answers.iter().filter(|status| **status == 200).count();
    let busy = answers.iter().filter(|status| **status == 503).count();
    assert_eq!(good + busy, 200, "{answers:?}");
    assert!(good >= 40, "as many as max_requests allows are answered: {good}");
    agent.wait("as before", |_| (files() <= before).then_some(()));
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    let peak: u64 = peak.split(' ').next().unwrap().parse().unwrap();
    // A debug build has 15 MiB of code; each request holds 70 kB.
    assert!(peak < 64 * 1024, "{peak} KiB resident at most");
}

#[test]
fn what_is_too_large_is_refused() {
    let machine = Machine::empty();
    let agent = machine.start();
    let patience = Duration::from_secs(10);
    let header = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(status(&raw(&agent, header.as_bytes(), patience)), "431");
    let headers = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-One: 1\r\n".repeat(1000));
    assert_eq!(status(&raw(&agent, headers.as_bytes(), patience)), "431");
    let body = "x".repeat(65 * 1024);
    assert_eq!(agent.post("/api/v1/hold", &body).status, 403, "who may not act is not read");
    assert_eq!(machine.ask("POST", "/api/v1/hold", &body).status, 413);
    let answer = raw(&agent, b"NONSENSE\r\n\r\n", patience);
    assert_eq!(status(&answer), "400", "{answer}");
    assert_eq!(agent.get("/metrics").status, 200);
}

#[test]
fn a_password_opens_what_the_web_configuration_closes() {
    let machine = Machine::empty();
    let web = machine.path("web.yaml");
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    fs::write(&web, format!("basic_auth_users:\n  Bob: {hash}\n")).unwrap();
    let config = fs::read_to_string(machine.config()).unwrap();
    let line = format!("web = {{ config_file = \"{}\", ", web.display());
    fs::write(machine.config(), config.replace("web = { ", &line)).unwrap();
    let agent = machine.start_closed();
    let answer = agent.get("/metrics");
    assert_eq!(answer.status, 401);
    assert!(answer.head.to_lowercase().contains("www-authenticate: basic realm="), "{}", answer.head);
    let wrong = [("Authorization", "Basic Qm9iOndyb25n")];
    assert_eq!(agent.get_with("/metrics", &wrong).status, 401);
    let right = [("Authorization", "Basic Qm9iOnMzY3JldA==")];
    assert_eq!(agent.get_with("/metrics", &right).status, 200);
    assert_eq!(agent.get_with("/probe?test=node&debug=true", &right).status, 200, "a password is trusted");
    assert_eq!(machine.ask("GET", "/metrics", "").status, 200, "the socket's mode is its password");
}
