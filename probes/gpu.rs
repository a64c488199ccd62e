//! `gpu`: whether each GPU is there, driven, free of memory errors and not held back by heat.
//!
//! Counters of errors are judged by what two readings say, with one exception: an uncorrectable
//! error stays a finding until the driver is loaded anew, since memory has been lost. Power limits
//! are usual under full load and only exported. What amdgpu shows in `/sys`, NVIDIA's driver tells
//! through NVML.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::{
    metrics::{
        BUSY, DEVICE, ERRORS, HIVE_MEMBERS, MEMORY_TOTAL, MEMORY_USED, METRICS, POWER, REPLAYS, TEMPERATURE,
        THROTTLED,
    },
    nvidia::Nvml,
    throttle::Throttle,
};
use crate::{
    Context, Cost, Finding, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Reading,
    Settings, Target, Unsupported, Verdict,
    inventory::{AMD, NVIDIA},
    lines::{self, Problem},
    passive,
    plan::only,
};

mod metrics;
pub mod nvidia;
pub mod throttle;

/// What the worker reads of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Gpu {
    /// `0000:05:00.0`
    pub pci: String,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// The bound driver.
    pub driver: Option<String>,
    /// The driver module's version; drivers that come with the kernel have none.
    pub driver_version: Option<String>,
    /// The name that the driver gives it.
    pub model: Option<String>,
    /// The version of its video BIOS.
    pub firmware: Option<String>,
    /// NVIDIA's driver was told to leave it alone.
    pub excluded: bool,
    /// Device memory, in bytes.
    pub memory_total: Option<u64>,
    /// Device memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// How busy it is, in percent.
    pub busy_percent: Option<u32>,
    /// Errors by block since the driver was loaded.
    pub errors: BTreeMap<String, Errors>,
    /// PCIe packets sent again since the driver was loaded.
    pub replays: Option<u64>,
    /// The hive of directly linked GPUs.
    pub hive: Option<Hive>,
    /// What holds its clocks back.
    pub throttle: Option<Throttle>,
    /// The hottest place of the chip, in thousandths of a degree Celsius.
    pub temperature: Option<i64>,
    /// Power drawn, in millionths of a watt.
    pub power: Option<u64>,
    /// The clock of its cores, in hertz.
    pub clock: Option<u64>,
    /// It is divided into smaller GPUs (MIG).
    pub partitioned: Option<bool>,
    /// How it ended to ask NVML; none where NVIDIA's driver is not bound.
    pub nvml: Option<Nvml>,
    /// Files that could not be read; the rest stands.
    pub unread: Vec<Problem>,
}

/// The error counts of one block of a GPU (its memory controller, its shader engines …).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Errors {
    /// Data was lost.
    pub uncorrectable: u64,
    /// Data was restored.
    pub correctable: u64,
}

/// A set of GPUs that are linked directly (xGMI).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Hive {
    /// Its id.
    pub id: String,
    /// GPUs in it.
    pub members: u32,
}

/// The probe.
#[derive(Debug)]
pub struct GpuState;

/// The part of the time for which heat may hold a GPU back without a loss that anybody sees.
const THROTTLED_SHARE: f64 = 0.01;

impl Probe for GpuState {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn summary(&self) -> &'static str {
        "GPUs: presence, driver, memory in use, error counts, PCIe replays, xGMI hive or NVLinks, throttling, temperature, power"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Passive
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        METRICS
    }

    fn targets(&self, inventory: &Inventory, _: &Settings) -> Vec<Target> {
        inventory.gpus.iter().map(|gpu| Target::Pci(gpu.function.pci.clone())).collect()
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        if ctx.targets.is_empty() {
            return Err(Unsupported("this node has no GPU".into()));
        }
        Ok(passive::plan("gpu", ctx))
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        memory: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let output = only(outputs)?;
        let answer = lines::read::<Gpu>(&output.stdout)?;
        let node = Node { ctx, now: output.ended_at, gpus: &answer.items };
        Ok(ctx.targets.iter().map(|target| node.read(target, &answer.problems, memory)).collect())
    }
}

/// All GPUs of one answer: some say what another one of the same kind should be.
struct Node<'a> {
    ctx: &'a Context<'a>,
    now: f64,
    gpus: &'a [Gpu],
}

impl Node<'_> {
    fn read(&self, target: &Target, problems: &[Problem], memory: &mut Memory) -> Reading {
        let mut reading = Reading::of(target.clone());
        let pci = target.id();
        let unread = problems.iter().filter(|problem| problem.concerns(pci));
        reading.findings.extend(unread.map(|problem| passive::unread("gpu_files", pci, problem)));
        let Some(gpu) = self.gpus.iter().find(|gpu| gpu.pci == pci) else {
            if reading.findings.is_empty() {
                reading.findings.push(
                    Finding::new("presence", pci, Verdict::Fail, "the GPU is gone", "a GPU that was there")
                        .because("it fell off the bus, or was removed")
                        .try_command(format!("lspci -s {pci}; dmesg --level=err,warn")),
                );
            }
            return reading;
        };
        self.export(gpu, &mut reading);
        let unread = gpu.unread.iter();
        reading.findings.extend(unread.map(|problem| passive::unread("gpu_files", pci, problem)));
        reading.findings.push(presence(gpu));
        if gpu.driver.as_deref() == Some("nvidia") {
            self.judge_nvidia(gpu, &mut reading, memory);
        }
        if gpu.vendor == AMD && gpu.driver.is_some() {
            self.judge_errors(gpu, &mut reading, memory);
            self.judge_replays(gpu, &mut reading, memory);
            self.judge_throttling(gpu, &mut reading, memory);
            reading.findings.extend(self.judge_hive(gpu));
        }
        reading
    }

    fn export(&self, gpu: &Gpu, reading: &mut Reading) {
        let pci = gpu.pci.as_str();
        let known = self.ctx.inventory.gpus.iter().find(|known| known.function.pci == pci);
        let model = gpu.model.as_deref().or_else(|| known?.model.as_deref()).unwrap_or_default();
        let vendor = match gpu.vendor {
            AMD => "AMD".to_string(),
            NVIDIA => "NVIDIA".to_string(),
            other => format!("0x{other:04x}"),
        };
        let [driver, version, firmware] =
            [&gpu.driver, &gpu.driver_version, &gpu.firmware].map(|fact| fact.as_deref().unwrap_or_default());
        reading.measure(&DEVICE, [pci, model, &vendor, driver, version, firmware], 1.0);
        let gauges = [
            (&MEMORY_TOTAL, gpu.memory_total.map(number)),
            (&MEMORY_USED, gpu.memory_used.map(number)),
            (&BUSY, gpu.busy_percent.map(|percent| f64::from(percent) / 100.0)),
            (&REPLAYS, gpu.replays.map(number)),
            (&HIVE_MEMBERS, gpu.hive.as_ref().map(|hive| f64::from(hive.members))),
            (&POWER, gpu.power.map(|microwatts| number(microwatts) / 1e6)),
        ];
        for (metric, value) in gauges {
            if let Some(value) = value {
                reading.measure(metric, [pci], value);
            }
        }
        if let Some(temperature) = gpu.temperature {
            #[expect(clippy::cast_precision_loss, reason = "temperatures are small")]
            reading.measure(&TEMPERATURE, [pci], temperature as f64 / 1000.0);
        }
        if !gpu.errors.is_empty() {
            let sum =
                |of: fn(&Errors) -> u64| number(gpu.errors.values().map(of).fold(0, u64::saturating_add));
            reading.measure(&ERRORS, [pci, "correctable"], sum(|errors| errors.correctable));
            reading.measure(&ERRORS, [pci, "uncorrectable"], sum(|errors| errors.uncorrectable));
        }
    }

    fn judge_errors(&self, gpu: &Gpu, reading: &mut Reading, memory: &mut Memory) {
        let settings = &self.ctx.settings.gpu;
        let pci = gpu.pci.as_str();
        let limit = settings.correctable_errors;
        let mut bad = Vec::new();
        let mut watched: f64 = 0.0;
        for (block, errors) in &gpu.errors {
            let mut observe = |kind: &str, value| {
                memory.observe(&format!("{pci} {block} {kind}"), self.now, value, settings.error_window)
            };
            let uncorrectable = observe("uncorrectable", errors.uncorrectable);
            let correctable = observe("correctable", errors.correctable);
            watched = watched.max(correctable.watched);
            let say = |verdict, found: String, expected: String, why: &str| {
                Finding::new("memory_errors", pci, verdict, found, expected).because(why).try_command(
                    if gpu.vendor == NVIDIA {
                        format!("nvidia-smi -q -d ECC -i {pci}")
                    } else {
                        format!("amd-smi metric --ecc-blocks -g {pci}")
                    },
                )
            };
            if uncorrectable.rise > 0 {
                let found = format!(
                    "{block}: +{} uncorrectable in {}",
                    uncorrectable.rise,
                    passive::span(uncorrectable.watched)
                );
                bad.push(say(
                    Verdict::Fail,
                    found,
                    "no uncorrectable error".into(),
                    "data was lost; what runs on this GPU can't be trusted",
                ));
            } else if errors.uncorrectable > 0 {
                let found =
                    format!("{block}: {} uncorrectable since the driver was loaded", errors.uncorrectable);
                bad.push(say(
                    Verdict::Degraded,
                    found,
                    "no uncorrectable error".into(),
                    "data was lost before; reset the GPU, and replace it if errors return",
                ));
            }
            if correctable.rise > limit {
                let found = format!(
                    "{block}: +{} correctable in {}",
                    correctable.rise,
                    passive::span(correctable.watched)
                );
                let expected =
                    format!("at most {limit} in {}", passive::span(settings.error_window.as_secs_f64()));
                bad.push(say(
                    Verdict::Degraded,
                    found,
                    expected,
                    "so many errors that can be corrected announce some that can't",
                ));
            }
        }
        if bad.is_empty() && !gpu.errors.is_empty() {
            let blocks = gpu.errors.len();
            let found = format!(
                "{blocks} blocks, none uncorrectable, no more correctable than expected in {}",
                passive::span(watched)
            );
            bad.push(if watched == 0.0 {
                Finding::not_applicable(
                    "memory_errors",
                    pci,
                    "the first reading; growth is known from the next one on",
                )
            } else {
                Finding::new(
                    "memory_errors",
                    pci,
                    Verdict::Pass,
                    found,
                    format!("none uncorrectable, at most {limit} correctable"),
                )
            });
        }
        reading.findings.extend(bad);
    }

    fn judge_replays(&self, gpu: &Gpu, reading: &mut Reading, memory: &mut Memory) {
        let settings = &self.ctx.settings.gpu;
        let Some(replays) = gpu.replays else { return };
        let change =
            memory.observe(&format!("{} replays", gpu.pci), self.now, replays, settings.error_window);
        if change.rise > settings.correctable_errors {
            let found = format!("+{} in {}", change.rise, passive::span(change.watched));
            let expected = format!(
                "at most {} in {}",
                settings.correctable_errors,
                passive::span(settings.error_window.as_secs_f64())
            );
            reading.findings.push(
                Finding::new("pcie_replays", &gpu.pci, Verdict::Degraded, found, expected)
                    .because("packets are damaged on the way: the slot, riser or cable of this GPU")
                    .try_command(format!("lspci -vvv -s {}", gpu.pci)),
            );
        }
    }

    fn judge_throttling(&self, gpu: &Gpu, reading: &mut Reading, memory: &mut Memory) {
        let window = self.ctx.settings.gpu.error_window;
        let Some(throttle) = gpu.throttle else { return };
        let shares = match throttle {
            Throttle::Status(reasons) => {
                reasons.each().map(|(reason, on)| (reason, Some(f64::from(u8::from(on)))))
            }
            Throttle::Samples { all, throttled } => {
                let mut rise = |what: &str, value: u32| {
                    memory
                        .observe(&format!("{} throttle {what}", gpu.pci), self.now, value.into(), window)
                        .rise
                };
                let all = rise("samples", all);
                throttled.each().map(|(reason, count)| {
                    let count = rise(reason, count);
                    (reason, (all > 0).then(|| (number(count) / number(all)).min(1.0)))
                })
            }
        };
        for (reason, share) in shares {
            let Some(share) = share else { continue };
            reading.measure(&THROTTLED, [&gpu.pci, reason], share);
            if reason == "power" {
                continue;
            }
            let found = format!("{reason}: {:.1} % of the time", share * 100.0);
            let expected = format!("at most {:.0} %", THROTTLED_SHARE * 100.0);
            let verdict = if share > THROTTLED_SHARE { Verdict::Degraded } else { Verdict::Pass };
            reading.findings.push(
                Finding::new("throttling", &gpu.pci, verdict, found, expected)
                    .because("a GPU that is held back slows down every GPU that it works with")
                    .try_command(format!("amd-smi metric --temperature --throttle -g {}", gpu.pci)),
            );
        }
    }

    /// A GPU outside the hive that GPUs of its kind are in.
    fn judge_hive(&self, gpu: &Gpu) -> Option<Finding> {
        let same =
            |other: &&Gpu| other.pci != gpu.pci && other.vendor == gpu.vendor && other.device == gpu.device;
        let sibling =
            self.gpus.iter().filter(same).filter_map(|other| Some((&other.pci, other.hive.as_ref()?)));
        // One that is elsewhere says most.
        let sibling =
            sibling.max_by_key(|(_, other)| gpu.hive.as_ref().is_some_and(|own| own.id != other.id));
        let judged = |verdict, found: String, expected: String| {
            Finding::new("hive", &gpu.pci, verdict, found, expected)
        };
        match (&gpu.hive, sibling) {
            (None, None) => None,
            (None, Some((other, hive))) => Some(
                judged(Verdict::Degraded, "in no hive".into(), format!("hive {}, as {other}", hive.id))
                    .because("its direct links to the other GPUs are not used, so traffic takes PCIe")
                    .try_command("amd-smi xgmi"),
            ),
            (Some(hive), _) => {
                let shown = self
                    .gpus
                    .iter()
                    .filter(|other| other.hive.as_ref().is_some_and(|other| other.id == hive.id));
                // One that did not answer this time may well be in it.
                let all = self.gpus.len() >= self.ctx.inventory.gpus.len();
                let differs = |shown: usize| {
                    usize::try_from(hive.members)
                        .is_ok_and(|members| members < shown || (all && members > shown))
                };
                let (shown, there) = (shown.count(), 1 + self.gpus.iter().filter(same).count());
                let found = format!("hive {} of {} GPUs", hive.id, hive.members);
                // Some nodes are built as two equal hives; a hive that lost a GPU is not.
                let apart = sibling.filter(|(_, other)| other.id != hive.id && other.members != hive.members);
                Some(match apart {
                    Some((other, own)) => judged(
                        Verdict::Degraded,
                        found,
                        format!("one hive of all {there} GPUs of this kind, but {other} is in {}", own.id),
                    )
                    .because("GPUs of different hives reach each other through PCIe only")
                    .try_command("amd-smi xgmi"),
                    None if differs(shown) => judged(
                        Verdict::Degraded,
                        found,
                        format!("{shown} GPUs, which say that they are in it"),
                    )
                    .because("the driver has lost some of the direct links")
                    .try_command("amd-smi xgmi"),
                    None => judged(Verdict::Pass, found, format!("{shown} GPUs seen in it")),
                })
            }
        }
    }
}

fn presence(gpu: &Gpu) -> Finding {
    let pci = gpu.pci.as_str();
    let say = |verdict, found: String| Finding::new("presence", pci, verdict, found, "a GPU with its driver");
    match gpu.driver.as_deref() {
        None => say(Verdict::Fail, "no driver is bound".into())
            .because("the driver is not loaded, or gave this GPU up")
            .try_command(format!("dmesg | grep {pci}")),
        Some("vfio-pci") => Finding::not_applicable(
            "presence",
            pci,
            "it is given to a virtual machine (vfio-pci), and seen from there only",
        ),
        Some(_) if gpu.excluded => say(Verdict::Fail, "the driver was told to leave it out".into())
            .because("an excluded GPU can't be used")
            .try_command(format!("grep Excluded /proc/driver/nvidia/gpus/{pci}/information")),
        Some(driver) => {
            let uuid = match &gpu.nvml {
                Some(Nvml::Told(facts)) => facts.uuid.as_deref(),
                Some(Nvml::NotOpened(_) | Nvml::Refused(_)) | None => None,
            };
            let uuid = uuid.map(|uuid| format!(", {uuid}")).unwrap_or_default();
            say(Verdict::Pass, format!("driven by {driver}{uuid}"))
        }
    }
}

fn number(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "series are doubles")]
    let value = value as f64;
    value
}

#[cfg(test)]
mod tests;
