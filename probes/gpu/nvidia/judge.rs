//! What the facts of NVML say of a GPU: findings and series.

use super::{
    super::{
        Errors, Gpu, Node, THROTTLED_SHARE,
        metrics::{LINK_ERRORS, LINKS_ACTIVE, REMAPPED_ROWS, THROTTLED},
        number,
    },
    Ecc, Fabric, Facts, Link, Nvml, Reason, Refused, Rows,
};
use crate::{Finding, Memory, Reading, Verdict, lines::Problem, passive};

/// What is unknown of a GPU that NVML tells nothing of.
const UNTOLD: &str = "of this GPU only presence, driver and names are known: neither memory errors, throttling, \
                      NVLink nor memory in use";

/// What follows from clocks that something holds back.
const SLOW: &str = "a GPU that is held back slows down every GPU that it works with";

impl Node<'_> {
    /// Judges what NVML said of a GPU that NVIDIA's driver drives.
    pub(in super::super) fn judge_nvidia(&self, gpu: &Gpu, reading: &mut Reading, memory: &mut Memory) {
        let pci = gpu.pci.as_str();
        let facts = match &gpu.nvml {
            Some(Nvml::Told(facts)) => facts,
            Some(Nvml::Refused(said)) => return reading.findings.push(refused(pci, said)),
            Some(Nvml::NotOpened(why)) => return reading.findings.push(not_opened(pci, why)),
            None => return reading.findings.push(not_opened(pci, "NVML was not asked")),
        };
        export(pci, facts, reading);
        self.judge_errors(gpu, reading, memory);
        self.judge_lifetime(gpu, facts, reading, memory);
        self.judge_replays(gpu, reading, memory);
        self.judge_clocks(pci, facts, reading, memory);
        self.judge_link_errors(pci, facts, reading, memory);
        let partitioned = gpu.partitioned == Some(true);
        reading.findings.extend(partitioned.then(|| {
            let reason = "MIG is on: the GPU is partitioned, and NVML tells less of the whole";
            Finding::not_applicable("partitioned", pci, reason)
        }));
        reading.findings.extend(facts.ecc.and_then(|ecc| self.judge_ecc(gpu, ecc, facts.lifetime)));
        reading.findings.extend(facts.rows.map(|rows| judge_rows(pci, rows)));
        reading.findings.extend(facts.retirement_pending.map(|pending| judge_retirement(pci, pending)));
        reading.findings.extend(self.judge_links(gpu, &facts.links));
        reading.findings.extend(facts.fabric.and_then(|fabric| judge_fabric(pci, fabric)));
        reading.findings.extend(facts.recovery_action.map(|action| judge_recovery(pci, action)));
        reading.findings.extend(facts.persistence.map(|on| judge_persistence(pci, on)));
        reading.findings.extend(judge_failures(pci, &facts.failed));
    }

    /// The facts of the other GPUs of this one's kind.
    fn siblings(&self, gpu: &Gpu) -> impl Iterator<Item = (&Gpu, &Facts)> {
        self.gpus.iter().filter_map(move |other| match &other.nvml {
            Some(Nvml::Told(facts))
                if other.pci != gpu.pci && (other.vendor, other.device) == (gpu.vendor, gpu.device) =>
            {
                Some((other, facts.as_ref()))
            }
            Some(Nvml::Told(_) | Nvml::NotOpened(_) | Nvml::Refused(_)) | None => None,
        })
    }

    /// Errors that the counters since the driver was loaded have lost with the driver.
    fn judge_lifetime(&self, gpu: &Gpu, facts: &Facts, reading: &mut Reading, memory: &mut Memory) {
        let Some(errors) = facts.lifetime else { return };
        let key = format!("{} lifetime uncorrectable", gpu.pci);
        let change = memory.observe(&key, self.now, errors.uncorrectable, self.ctx.settings.gpu.error_window);
        let known =
            |finding: &Finding| finding.check == "memory_errors" && finding.verdict == Some(Verdict::Fail);
        if change.rise > 0 && !reading.findings.iter().any(known) {
            let found = format!(
                "+{} uncorrectable in {}, {} in its life",
                change.rise,
                passive::span(change.watched),
                errors.uncorrectable
            );
            reading.findings.push(
                Finding::new("memory_errors", &gpu.pci, Verdict::Fail, found, "no uncorrectable error")
                    .because(
                        "data was lost; the driver has been loaded anew since, so only the device's own count tells",
                    )
                    .try_command(format!("nvidia-smi -q -d ECC -i {}", gpu.pci)),
            );
        }
    }

    fn judge_clocks(&self, pci: &str, facts: &Facts, reading: &mut Reading, memory: &mut Memory) {
        let window = self.ctx.settings.gpu.error_window;
        // Time as a counter beside the others: its rises enter and leave the window with theirs.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since 1970")]
        let microseconds = (self.now * 1e6) as u64;
        let elapsed = memory.observe(&format!("{pci} held elapsed"), self.now, microseconds, window).rise;
        let mut share = |reason: &str, held_for: Option<u64>, held: Option<bool>| match held_for {
            Some(nanoseconds) => {
                let change = memory.observe(&format!("{pci} held {reason}"), self.now, nanoseconds, window);
                (elapsed > 0).then(|| (number(change.rise) / 1e3 / number(elapsed)).min(1.0))
            }
            None => held.map(|held| f64::from(u8::from(held))),
        };
        let (times, now) = (facts.held_for, facts.held);
        let power = share("power", times.power, now.map(|now| now.power));
        let thermal = share("thermal", times.thermal, now.map(|now| now.thermal));
        let hardware = share("hardware_thermal", times.hardware_thermal, now.map(|now| now.hardware_thermal));
        let brake = share("power_brake", times.power_brake, now.map(|now| now.power_brake));
        let hottest = [thermal, hardware].into_iter().flatten().reduce(f64::max);
        for (reason, share) in [("power", power), ("thermal", hottest), ("power_brake", brake)] {
            if let Some(share) = share {
                reading.measure(&THROTTLED, [pci, reason], share);
            }
        }
        let judged = [
            ("thermal, by the driver", thermal, "the GPU or its memory is too hot"),
            ("thermal, by the hardware", hardware, "the GPU is so hot that its hardware halves the clocks"),
            ("power brake", brake, "a power supply or the board tells the GPU to draw less at once"),
        ];
        for (reason, share, why) in judged {
            let Some(share) = share else { continue };
            let verdict = if share > THROTTLED_SHARE { Verdict::Degraded } else { Verdict::Pass };
            reading.findings.push(throttling(
                pci,
                verdict,
                format!("{reason}: {:.1} % of the time", share * 100.0),
                why,
            ));
        }
        self.judge_slowdown(pci, facts, reading, memory);
    }

    /// The hardware's slowdown for a reason that has no counter. It shows for a moment when clocks
    /// change, so it has to be there at two looks.
    fn judge_slowdown(&self, pci: &str, facts: &Facts, reading: &mut Reading, memory: &mut Memory) {
        let Some(slowdown) = facts.slowdown else { return };
        reading.measure(&THROTTLED, [pci, "hardware"], f64::from(u8::from(slowdown)));
        let explained = facts.held.is_some_and(|held| held.hardware_thermal || held.power_brake);
        let held = memory.held(&format!("{pci} slowdown"), self.now, slowdown && !explained);
        let Some(seconds) = held.filter(|seconds| *seconds > 0.0) else { return };
        reading.findings.push(throttling(
            pci,
            Verdict::Degraded,
            format!("hardware slowdown: at each look for {}", passive::span(seconds)),
            "the hardware halves the clocks, or worse, and it is neither heat nor the power brake: it draws too much power at once, or gets too little",
        ));
    }

    fn judge_ecc(&self, gpu: &Gpu, ecc: Ecc, lifetime: Option<Errors>) -> Option<Finding> {
        let pci = gpu.pci.as_str();
        let protected = self.siblings(gpu).find(|(_, facts)| facts.ecc.is_some_and(|ecc| ecc.on));
        if ecc.on {
            let next = if ecc.next { "" } else { ", off from the next reset on" };
            let errors =
                lifetime.map(|errors| format!("; {} uncorrectable errors in its life", errors.uncorrectable));
            let found = format!("on{next}{}", errors.unwrap_or_default());
            return Some(Finding::new("ecc", pci, Verdict::Pass, found, "on"));
        }
        let expected = match (ecc.by_default, protected) {
            (Some(true), _) => "on, as this model is delivered".to_string(),
            (Some(false) | None, Some((other, _))) => format!("on, as {} has it", other.pci),
            (Some(false) | None, None) => {
                return Some(Finding::not_applicable(
                    "ecc",
                    pci,
                    "off, and nothing says that it should be on",
                ));
            }
        };
        Some(
            Finding::new("ecc", pci, Verdict::Degraded, "off", expected)
                .because("bits that flip in memory go unseen into results; a reset after the command switches it on")
                .try_command(format!("nvidia-smi -i {pci} -e 1")),
        )
    }

    fn judge_links(&self, gpu: &Gpu, links: &[Link]) -> Option<Finding> {
        let pci = gpu.pci.as_str();
        let active = |links: &[Link]| links.iter().filter(|link| link.active).count();
        let own = active(links);
        let best = self.siblings(gpu).map(|(other, facts)| (active(&facts.links), other.pci.as_str()));
        let best = best.max_by_key(|(active, _)| *active);
        let skip = |why: String| Some(Finding::not_applicable("nvlink", pci, why));
        if gpu.partitioned == Some(true) {
            return (!links.is_empty())
                .then(|| skip("a GPU that is partitioned may use no NVLink".into()))?;
        }
        let found = format!("{own} of {} links active", links.len());
        match best {
            Some((most, other)) if own < most => {
                let silent: Vec<_> =
                    links.iter().filter(|link| !link.active).map(|link| link.number.to_string()).collect();
                let which =
                    if silent.is_empty() { String::new() } else { format!(", not {}", silent.join(", ")) };
                Some(
                    Finding::new("nvlink", pci, Verdict::Degraded, found + &which, format!("{most}, as {other} has"))
                        .because("its way to the other GPUs is narrower than theirs, and collectives run as slow as the slowest")
                        .try_command(format!("nvidia-smi nvlink -s -i {pci}")),
                )
            }
            Some(_) | None if links.is_empty() => None,
            Some(_) | None if own == 0 => skip(format!("{found}, nor any of a GPU of its kind")),
            Some(_) | None if own == links.len() => {
                Some(Finding::new("nvlink", pci, Verdict::Pass, found, "all of them"))
            }
            Some(_) => {
                Some(Finding::new("nvlink", pci, Verdict::Pass, found, "as many as GPUs of its kind have"))
            }
            None => skip(format!("{found}, and no other GPU of its kind says how many there should be")),
        }
    }

    fn judge_link_errors(&self, pci: &str, facts: &Facts, reading: &mut Reading, memory: &mut Memory) {
        let settings = &self.ctx.settings.gpu;
        let (mut bad, mut told, mut watched) = (Vec::new(), false, 0_f64);
        for (kind, count) in facts.link_errors.each() {
            let Some(count) = count else { continue };
            let key = format!("{pci} nvlink {kind}");
            let change = memory.observe(&key, self.now, count, settings.error_window);
            (told, watched) = (true, watched.max(change.watched));
            // Damaged packets are sent again at no cost that anybody sees; a link that is trained
            // anew stands still meanwhile.
            let limit = if kind == "recovery" { 0 } else { settings.correctable_errors };
            if change.rise > limit {
                let found = format!("{kind}: +{} in {}", change.rise, passive::span(change.watched));
                let expected =
                    format!("at most {limit} in {}", passive::span(settings.error_window.as_secs_f64()));
                bad.push(
                    Finding::new("nvlink_errors", pci, Verdict::Degraded, found, expected)
                        .because("a link that damages data is slow, and the next to fail")
                        .try_command(format!("nvidia-smi nvlink -e -i {pci}")),
                );
            }
        }
        if told && watched > 0.0 && bad.is_empty() {
            let found = format!("no more than expected in {}", passive::span(watched));
            let expected =
                format!("at most {} packets sent again, no link trained again", settings.correctable_errors);
            bad.push(Finding::new("nvlink_errors", pci, Verdict::Pass, found, expected));
        }
        reading.findings.extend(bad);
    }
}

fn export(pci: &str, facts: &Facts, reading: &mut Reading) {
    if let Some(rows) = facts.rows {
        reading.measure(&REMAPPED_ROWS, [pci, "correctable"], rows.correctable.into());
        reading.measure(&REMAPPED_ROWS, [pci, "uncorrectable"], rows.uncorrectable.into());
    }
    if !facts.links.is_empty() {
        let active = facts.links.iter().map(|link| f64::from(u8::from(link.active))).sum();
        reading.measure(&LINKS_ACTIVE, [pci], active);
    }
    for (kind, count) in facts.link_errors.each() {
        if let Some(count) = count {
            reading.measure(&LINK_ERRORS, [pci, kind], number(count));
        }
    }
}

fn not_opened(pci: &str, why: &str) -> Finding {
    Finding::new("gpu_state", pci, Verdict::Unknown, format!("not read: {why}"), "an answer of NVML")
        .because(UNTOLD)
        .try_command("ldconfig -p | grep libnvidia-ml")
}

fn refused(pci: &str, said: &Refused) -> Finding {
    let (verdict, found, why, command) = match said.reason {
        Reason::Lost => (
            Verdict::Fail,
            "the GPU fell off the bus",
            "the driver can't reach it any more, and nothing that ran on it goes on; often only a cold start brings it back",
            format!("dmesg | grep -i xid; lspci -s {pci}"),
        ),
        Reason::ResetRequired => (
            Verdict::Fail,
            "the GPU must be reset before it can be used",
            "the driver refuses to use it after an error",
            format!("nvidia-smi -r -i {pci}"),
        ),
        Reason::PowerCables => (
            Verdict::Fail,
            "its power cables are not properly attached",
            "the driver does not start a GPU with too little power",
            format!("nvidia-smi -q -i {pci}"),
        ),
        Reason::Interrupts => (
            Verdict::Fail,
            "its interrupts do not arrive",
            "the driver can't work with a GPU that it does not hear",
            format!("dmesg | grep -i nvrm; grep nvidia /proc/interrupts; lspci -vv -s {pci}"),
        ),
        Reason::VersionMismatch => (
            Verdict::Unknown,
            "NVML and the loaded driver are of different versions",
            "the driver was updated while the old one is loaded: the node needs a reboot, or its modules loaded anew",
            "cat /proc/driver/nvidia/version; modinfo -F version nvidia".to_string(),
        ),
        Reason::NoDriver => (
            Verdict::Unknown,
            "NVML does not reach the driver",
            "the device files are missing, or closed to this process: deploy/systemd/nvidia.conf opens them",
            "ls -l /dev/nvidiactl /dev/nvidia[0-9]*".to_string(),
        ),
        Reason::Forbidden => (
            Verdict::Unknown,
            "NVML may not reach the GPU",
            "the device file is closed to this process, by its mode or by a control group",
            "ls -l /dev/nvidiactl /dev/nvidia[0-9]*".to_string(),
        ),
        Reason::NotFound => (
            Verdict::Unknown,
            "NVML does not know this GPU",
            "the driver has bound it and did not start it, or this process may not see it",
            format!("nvidia-smi -L; dmesg | grep {pci}"),
        ),
        Reason::Other => (Verdict::Unknown, "NVML failed", UNTOLD, format!("nvidia-smi -q -i {pci}")),
    };
    let found = format!("{found}: {} says {}", said.call, said.words);
    Finding::new("gpu_state", pci, verdict, found, "an answer of NVML").because(why).try_command(command)
}

fn judge_failures(pci: &str, failed: &[Problem]) -> Option<Finding> {
    let (first, more) = failed.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        1 => "; and 1 other call failed".to_string(),
        count => format!("; and {count} other calls failed"),
    };
    let found = format!("{}: {}{more}", first.path, first.error);
    Some(
        Finding::new("gpu_state", pci, Verdict::Unknown, found, "an answer")
            .because("what can't be read can't be judged")
            .try_command(format!("nvidia-smi -q -i {pci}")),
    )
}

fn throttling(pci: &str, verdict: Verdict, found: String, why: &str) -> Finding {
    let expected = format!("at most {:.0} %", THROTTLED_SHARE * 100.0);
    let finding = Finding::new("throttling", pci, verdict, found, expected);
    match verdict {
        Verdict::Pass => finding,
        Verdict::Degraded | Verdict::Fail | Verdict::Unknown => finding
            .because(format!("{why}; {SLOW}"))
            .try_command(format!("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {pci}")),
    }
}

fn judge_rows(pci: &str, rows: Rows) -> Finding {
    let counts = format!(
        "{} rows replaced for correctable errors, {} for uncorrectable",
        rows.correctable, rows.uncorrectable
    );
    let say = |verdict, found: String| {
        Finding::new("remapped_rows", pci, verdict, found, "none waits, and none failed")
            .try_command(format!("nvidia-smi -q -d ROW_REMAPPER -i {pci}"))
    };
    if rows.failed {
        say(Verdict::Fail, format!("a row could not be replaced; {counts}"))
            .because("its memory has run out of spare rows, which is a reason to replace the GPU")
    } else if rows.pending {
        say(Verdict::Degraded, format!("a row waits to be replaced; {counts}"))
            .because("memory is broken there; jobs are kept away from it, and a reset of the GPU mends it")
    } else {
        say(Verdict::Pass, counts)
    }
}

fn judge_retirement(pci: &str, pending: bool) -> Finding {
    let say = |verdict, found| Finding::new("retired_pages", pci, verdict, found, "no page waits");
    if pending {
        say(Verdict::Degraded, "a page of memory waits to be retired")
            .because("memory is broken there, and jobs may still get it until the GPU is reset")
            .try_command(format!("nvidia-smi -q -d PAGE_RETIREMENT -i {pci}"))
    } else {
        say(Verdict::Pass, "no page waits")
    }
}

fn judge_fabric(pci: &str, fabric: Fabric) -> Option<Finding> {
    let say = |verdict, found: String| Finding::new("nvlink_fabric", pci, verdict, found, "completed");
    let why = "it has no way to other GPUs through the NVLink switches, and CUDA programs may fail with error 802 (system not ready) meanwhile";
    let command = "systemctl status nvidia-fabricmanager";
    match (fabric.state, fabric.status) {
        (0, _) => None,
        (1, _) => {
            Some(say(Verdict::Degraded, "joining has not started".into()).because(why).try_command(command))
        }
        (2, _) => {
            Some(say(Verdict::Degraded, "joining is in progress".into()).because(why).try_command(command))
        }
        (3, 0) => Some(say(Verdict::Pass, "completed".into())),
        (3, status) => Some(
            say(Verdict::Degraded, format!("joining failed with NVML error {status}"))
                .because(why)
                .try_command(command),
        ),
        (state, _) => Some(say(Verdict::Unknown, format!("state {state}, which is new to this program"))),
    }
}

fn judge_recovery(pci: &str, action: u64) -> Finding {
    let say = |verdict, found: String| Finding::new("recovery", pci, verdict, found, "nothing to be done");
    let (verdict, found) = match action {
        0 => return say(Verdict::Pass, "nothing to be done".into()),
        1 => (Verdict::Fail, "reset the GPU".to_string()),
        2 => (Verdict::Fail, "reboot the node".to_string()),
        3 => (Verdict::Degraded, "end all work between GPUs (drain P2P)".to_string()),
        4 => (Verdict::Degraded, "end its work, then reset the GPU".to_string()),
        5 => (Verdict::Degraded, "recover the IMEX domain".to_string()),
        other => (Verdict::Degraded, format!("action {other}, which is new to this program")),
    };
    say(verdict, found)
        .because("the driver asks for it after an error that it can't mend by itself")
        .try_command(format!("nvidia-smi -q -i {pci} | grep -A2 Recovery; dmesg | grep -i xid"))
}

fn judge_persistence(pci: &str, on: bool) -> Finding {
    let say = |verdict, found| Finding::new("persistence", pci, verdict, found, "on");
    if on {
        say(Verdict::Pass, "on")
    } else {
        say(Verdict::Degraded, "off")
            .because(
                "the driver forgets its error counts whenever its last user ends, and starts the GPU anew for the next: each job waits for that, and so does each reading of this probe",
            )
            .try_command("systemctl enable --now nvidia-persistenced")
    }
}
