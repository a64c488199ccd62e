//! What happens to a wrong configuration: every mistake is told at once, and nothing is lost.

use std::{fs, net::TcpListener};

use rustix::process::Signal;

use crate::agent::{Machine, value};

fn refused(machine: &Machine) -> String {
    let output = machine.run(&["--config.check"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_mistake_is_told_with_its_key() {
    let table = [
        ("[probe.pcie]\nintervall = \"60s\"\n", "probe.pcie.intervall: unknown key in "),
        (
            "[probe.pcie]\ninterval = \"60 parsecs\"\n",
            "probe.pcie.interval: \"60 parsecs\" is not a duration",
        ),
        ("[probe.pcie]\ninterval = 60\n", "probe.pcie.interval: not a duration: write \"90s\""),
        ("[probe.nic]\ninterval = \"1ms\"\n", "probe.nic.interval: 1ms is impossible: from 1s to 7 days"),
        ("[probe.gpu]\ntimeout = \"0s\"\n", "probe.gpu.timeout: 0 s is impossible"),
        (
            "[probe.pcie]\nnic_max_read_request = 4000\n",
            "probe.pcie.nic_max_read_request: 4000 is impossible: one of",
        ),
        ("[budget]\ngpu_seconds_per_hour = -1.0\n", "budget.gpu_seconds_per_hour: -1 is impossible"),
        ("[log]\nlevel = \"fabricpulse=loud\"\n", "log.level: \"fabricpulse=loud\" is no filter"),
        (
            "[[probe.exec.check]]\nname = \"x\"\nargv = [\"relative\"]\n",
            "probe.exec.check.0.argv: \"relative\" is not an absolute path",
        ),
        ("[[probe.exec.check]]\nargv = [\"/bin/true\"]\n", "probe.exec.check.0: name is missing"),
        ("[[probe.exec.check]]\nname = \"\"\nargv = []\n", "probe.exec.check.0.argv: it names no program"),
        ("[probe.gpu]\ntimeout = \"2days\"\n", "probe.gpu.timeout: 172800s is impossible: at most 1 day"),
        ("probe = 3\n", "probe: "),
        ("[probe\n", "config.toml"),
    ];
    let machine = Machine::empty();
    for (text, message) in table {
        machine.configure(text);
        let said = refused(&machine);
        assert!(said.contains(message), "{text}: {said}");
    }
    machine.configure(
        "active = \"perhaps\"\n[probe.pcie]\ninterval = \"x\"\nwrong = 1\n[probe.nic]\nflaps = 0\n",
    );
    let said = refused(&machine);
    for key in ["active: ", "probe.pcie.interval: ", "probe.pcie.wrong: ", "probe.nic.flaps: "] {
        assert!(said.contains(key), "{key} is missing in {said}");
    }
}

#[test]
fn layers_lie_in_order_and_name_the_variable_of_a_mistake() {
    let machine = Machine::empty();
    fs::create_dir(machine.path("conf.d")).unwrap();
    fs::write(machine.path("conf.d/10-name.toml"), "node_name = \"from-conf-d\"\n").unwrap();
    let node = |variable: Option<&str>| {
        let mut command = machine.command(&["list", "--json"]);
        command.envs(variable.map(|value| ("FABRICPULSE__NODE_NAME", value)));
        let output = command.output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["node"].as_str().unwrap().to_string()
    };
    assert_eq!(node(None), "from-conf-d");
    assert_eq!(node(Some("from-variable")), "from-variable");
    let output = machine.command(&["--config.check"]).env("FABRICPULSE__WEB__PORT", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("web.port: unknown key in the variable FABRICPULSE__WEB__PORT"), "{said}");
}

#[test]
fn a_bad_file_at_reload_leaves_the_old_configuration_in_force() {
    let machine = Machine::empty();
    let agent = machine.start();
    assert_eq!(value(&agent.metrics(), "fabricpulse_config_last_reload_successful"), Some(1.0));
    machine.configure("[probe.pcie]\nintervall = \"60s\"\n");
    agent.signal(Signal::HUP);
    agent.wait("told", |agent| {
        (value(&agent.metrics(), "fabricpulse_config_last_reload_successful") == Some(0.0)).then_some(())
    });
    assert_eq!(value(&agent.metrics(), "fabricpulse_probe_interval_seconds{probe=\"pcie\"}"), Some(60.0));
    machine.configure("[probe.pcie]\ninterval = \"30s\"\n");
    let answer = machine.ask("POST", "/-/reload", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(value(&agent.metrics(), "fabricpulse_probe_interval_seconds{probe=\"pcie\"}"), Some(30.0));
    assert_eq!(value(&agent.metrics(), "fabricpulse_config_last_reload_successful"), Some(1.0));
    assert_eq!(agent.post("/-/reload", "").status, 403, "over open TCP nobody reloads");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = Machine::empty().run(&["--web.listen-address", &address.to_string()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("can't listen on {address}: another program has this port")), "{said}");
}

#[test]
fn without_any_file_the_agent_serves() {
    let machine = Machine::empty();
    fs::write(machine.config(), "").unwrap();
    let output = machine.run(&["--config.check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
