//! `gemm`: how fast a GPU multiplies matrices of each type, and whether it does so rightly.
//!
//! Wrong numbers are the rarest fault and the worst: nothing else tells of them. Each result is
//! compared with a reference, with its own repeat, and, by the agent, with those of GPUs of its kind.

use serde::{Deserialize, Serialize};

use crate::{
    Compared, Context, Cost, Digest, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError,
    Plan, Probe, Reading, Schedule, Scope, Settings, Target, Unsupported, Verdict,
    compute::{self, Answer, CORRUPT_RESULT, Repeats},
};

/// The periodic probe: a short burst of each type.
pub static GEMM: Gemm = Gemm { load: Load::Burst };

/// The one on demand: seconds of one type, in windows.
pub static GEMM_SUSTAINED: Gemm = Gemm { load: Load::Sustained };

/// Products of matrices.
#[derive(Debug)]
pub struct Gemm {
    load: Load,
}

/// How long the GPU multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Burst,
    Sustained,
}

/// A type of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// `bfloat16`
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// Single precision, rounded to 10 bits of mantissa before it is multiplied.
    Tf32,
    /// Single precision.
    Fp32,
    /// 8 bits, of which 4 are the exponent: OCP's, or on AMD's gfx942 its own.
    Fp8,
}

impl Dtype {
    /// In the order in which they are measured.
    pub const ALL: [Dtype; 5] = [Dtype::Bf16, Dtype::Fp16, Dtype::Fp8, Dtype::Tf32, Dtype::Fp32];

    /// The label value.
    pub fn word(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Tf32 => "tf32",
            Dtype::Fp32 => "fp32",
            Dtype::Fp8 => "fp8",
        }
    }
}

/// What the worker multiplies.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Task {
    /// Rows and columns.
    pub size: usize,
    /// For how long products of a type are repeated, in seconds.
    pub burst: f64,
    /// The types; empty for all that the chip has.
    #[serde(default)]
    pub dtypes: Vec<Dtype>,
    /// Whether each tenth of a second is told by itself.
    #[serde(default)]
    pub windows: bool,
}

/// A line of the worker.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// What products of a type gave.
    Product(Product),
    /// A part of a longer load.
    Window(Window),
    /// A type that this GPU has no products of.
    Absent {
        /// By PCI address.
        gpu: String,
        /// The type.
        dtype: Dtype,
        /// Why not.
        why: String,
    },
    /// The GPU beside the load.
    State(State),
}

/// What products of a type gave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Product {
    /// By PCI address.
    pub gpu: String,
    /// The type.
    pub dtype: Dtype,
    /// Rows and columns.
    pub size: usize,
    /// Additions and multiplications per second.
    pub flops: Repeats,
    /// Which algorithm the library chose, as a digest of its own description.
    pub algorithm: String,
    /// Of the whole result before the burst.
    pub digest: String,
    /// Of the whole result after it.
    pub repeated: String,
    /// Elements that were compared with the reference.
    pub checked: u32,
    /// How many of these are wrong.
    pub wrong: u32,
    /// The greatest error among them, as a part of what rounding may do.
    pub worst: f64,
}

/// A part of a longer load.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Window {
    /// By PCI address.
    pub gpu: String,
    /// When it ended, in seconds since the load began.
    pub at: f64,
    /// Additions and multiplications per second.
    pub flops: Repeats,
}

/// The GPU beside the load; what can't be read is absent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct State {
    /// By PCI address.
    pub gpu: String,
    /// Which side.
    pub when: When,
    /// The clock of its cores, in hertz.
    pub clock_hertz: Option<f64>,
    /// In watts.
    pub power_watts: Option<f64>,
    /// In degrees Celsius.
    pub temperature_celsius: Option<f64>,
}

/// On which side of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before the first product.
    Before,
    /// After the last one.
    After,
}

static FLOPS: MetricSpec = MetricSpec {
    name: "gemm_flops",
    help: "Additions and multiplications per second of matrix products by type, median of a burst as long as probe.gemm.burst; a longer load heats the GPU and gives less.",
    unit: "flops",
    kind: MetricKind::Gauge,
    labels: &["gpu", "dtype"],
};
static SUSTAINED: MetricSpec = MetricSpec {
    name: "gemm_sustained_flops",
    help: "Additions and multiplications per second of bf16 products under a load as long as probe.gemm_sustained.load: of its first tenth of a second, and of its last.",
    unit: "flops",
    kind: MetricKind::Gauge,
    labels: &["gpu", "when"],
};

static METRICS: [&MetricSpec; 1] = [&FLOPS];
static COMPARED: [Compared; 1] = [Compared::more(&FLOPS)];
static SUSTAINED_METRICS: [&MetricSpec; 1] = [&SUSTAINED];

/// What a burst run takes of the GPU's time, its start included, in milliseconds.
const MILLISECONDS: u32 = 1000;

impl Probe for Gemm {
    fn name(&self) -> &'static str {
        match self.load {
            Load::Burst => "gemm",
            Load::Sustained => "gemm_sustained",
        }
    }

    fn summary(&self) -> &'static str {
        match self.load {
            Load::Burst => {
                "FLOP/s of matrix products by type in a short burst, and whether every number is right"
            }
            Load::Sustained => "FLOP/s of bf16 products under a load of seconds, as it falls",
        }
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
    }

    fn schedule(&self) -> Schedule {
        match self.load {
            Load::Burst => Schedule::Interval,
            Load::Sustained => Schedule::OnDemand,
        }
    }

    fn scope(&self) -> Scope {
        Scope::EachTarget
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        match self.load {
            Load::Burst => &METRICS,
            Load::Sustained => &SUSTAINED_METRICS,
        }
    }

    fn compared(&self) -> &'static [Compared] {
        match self.load {
            Load::Burst => &COMPARED,
            Load::Sustained => &[],
        }
    }

    fn checks_results(&self) -> bool {
        true
    }

    fn targets(&self, inventory: &Inventory, _: &Settings) -> Vec<Target> {
        compute::targets(inventory)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let settings = &ctx.settings.compute.gemm;
        let size = usize::try_from(settings.size).unwrap_or_default();
        let (task, load) = match self.load {
            Load::Burst => {
                (Task { size, burst: settings.burst, dtypes: settings.types.clone(), windows: false }, 0.0)
            }
            Load::Sustained => {
                let dtypes = vec![Dtype::Bf16];
                (Task { size, burst: settings.sustained, dtypes, windows: true }, settings.sustained)
            }
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most an hour")]
        let milliseconds = MILLISECONDS.saturating_add((load * 1000.0) as u32);
        compute::plan("gemm", ctx, &[compute::gpu(ctx)?], milliseconds, task)
    }

    fn explain(&self, output: &Output) -> Option<String> {
        compute::explain(output)
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        _: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let answer = compute::read::<Told>(outputs)?;
        let target = ctx.targets.first().ok_or(ParseError::Missing("target"))?;
        let mut reading = Reading::of(target.clone());
        let products: Vec<&Product> = answer
            .values
            .iter()
            .filter_map(|told| match told {
                Told::Product(product) if product.gpu == target.id() => Some(product),
                Told::Product(_) | Told::Window(_) | Told::Absent { .. } | Told::State(_) => None,
            })
            .collect();
        for product in &products {
            if self.load == Load::Burst {
                let labels = [product.gpu.as_str(), product.dtype.word()];
                reading.measure(&FLOPS, labels, product.flops.median);
            }
            reading.digests.extend(digest(product, &answer, ctx));
        }
        if self.load == Load::Sustained {
            self.fall(&answer, target, &mut reading);
        }
        reading.findings.extend(speed(target, &products));
        reading.findings.extend(products.iter().flat_map(|product| corrupt(product)));
        reading.findings.extend(right(target, &products));
        reading.findings.extend(answer.values.iter().filter_map(beside));
        answer.close(&mut reading);
        Ok(vec![reading])
    }
}

impl Gemm {
    /// The first window of a longer load and the last.
    fn fall(&self, answer: &Answer<Told>, target: &Target, reading: &mut Reading) {
        let windows: Vec<&Window> = answer
            .values
            .iter()
            .filter_map(|told| match told {
                Told::Window(window) if window.gpu == target.id() => Some(window),
                Told::Product(_) | Told::Window(_) | Told::Absent { .. } | Told::State(_) => None,
            })
            .collect();
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return };
        reading.measure(&SUSTAINED, [target.id(), "first"], first.flops.median);
        reading.measure(&SUSTAINED, [target.id(), "last"], last.flops.median);
        let told = windows
            .iter()
            .step_by(windows.len().div_ceil(SHOWN))
            .map(|window| format!("{:.1} s {}", window.at, teraflops(window.flops.median)));
        let found = told.collect::<Vec<_>>().join(", ");
        reading.findings.push(Finding::not_applicable("fall", target.id(), found));
    }
}

/// Windows of a longer load that are told in words.
const SHOWN: usize = 12;

/// What is compared with GPUs of the same kind: only results that the GPU itself repeats.
fn digest(product: &Product, answer: &Answer<Told>, ctx: &Context<'_>) -> Option<Digest> {
    if product.digest != product.repeated || product.wrong > 0 {
        return None;
    }
    let gpu = ctx.inventory.gpus.iter().find(|gpu| gpu.function.pci == product.gpu)?;
    let libraries = answer.libraries.iter().map(|library| format!("{} {}", library.name, library.version));
    let kind = format!(
        "{:04x}:{:04x} {}, {}, {} {}, algorithm {}",
        gpu.function.vendor,
        gpu.function.device,
        gpu.model.as_deref().unwrap_or_default(),
        libraries.collect::<Vec<_>>().join(", "),
        product.dtype.word(),
        product.size,
        product.algorithm
    );
    Some(Digest { kind, value: product.digest.clone() })
}

fn teraflops(flops: f64) -> String {
    format!("{:.1} TFLOP/s", flops / 1e12)
}

fn speed(target: &Target, products: &[&Product]) -> Option<Finding> {
    let words = products.iter().map(|product| {
        let value = teraflops(product.flops.median);
        format!("{} {}", product.dtype.word(), compute::words(&value, &product.flops))
    });
    let found = words.collect::<Vec<_>>().join("; ");
    (!found.is_empty())
        .then(|| Finding::new("products", target.id(), Verdict::Pass, found, "products that succeed"))
}

fn corrupt(product: &Product) -> Vec<Finding> {
    let dtype = product.dtype.word();
    let fail = |found: String, expected: &str| {
        Finding::new(CORRUPT_RESULT, &product.gpu, Verdict::Fail, found, expected)
            .because("this GPU computes wrong numbers and tells nobody: take it out of service, and doubt what it computed")
            .try_command(format!("fabricpulse probe gemm --target {}", product.gpu))
    };
    let mut findings = Vec::new();
    if product.wrong > 0 {
        let found = format!(
            "{dtype}: {} of {} elements are wrong, the worst by {:.3e} times what rounding may do",
            product.wrong, product.checked, product.worst
        );
        findings.push(fail(found, "the reference's values, within rounding"));
    }
    if product.digest != product.repeated {
        let found =
            format!("{dtype}: the same product gave {} and then {}", product.digest, product.repeated);
        findings.push(fail(found, "the same bits each time"));
    }
    findings
}

/// That all results are right, and how many numbers were looked at.
fn right(target: &Target, products: &[&Product]) -> Option<Finding> {
    let good = |product: &&&Product| product.wrong == 0 && product.digest == product.repeated;
    if products.is_empty() || !products.iter().all(|product| good(&product)) {
        return None;
    }
    let checked: u32 = products.iter().map(|product| product.checked).sum();
    let found = format!("{checked} elements of {} types, and all of each twice alike", products.len());
    Some(Finding::new(
        "results",
        target.id(),
        Verdict::Pass,
        found,
        "the reference's values, within rounding",
    ))
}

/// What stands beside the figures.
fn beside(told: &Told) -> Option<Finding> {
    match told {
        Told::Product(_) | Told::Window(_) => None,
        Told::Absent { gpu, dtype, why } => Some(Finding::not_applicable(dtype.word(), gpu, why.clone())),
        Told::State(state) => {
            let facts = [
                state.clock_hertz.map(|clock| format!("{:.0} MHz", clock / 1e6)),
                state.power_watts.map(|power| format!("{power:.0} W")),
                state.temperature_celsius.map(|temperature| format!("{temperature:.0} °C")),
            ];
            let words = facts.into_iter().flatten().collect::<Vec<_>>().join(", ");
            let check = match state.when {
                When::Before => "before",
                When::After => "after",
            };
            (!words.is_empty()).then(|| Finding::not_applicable(check, &state.gpu, words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inventory::{Function, Gpu, NVIDIA},
        sample,
    };

    const H200: &str = include_str!("testdata/gemm/h200.jsonl");

    fn parse(probe: &Gemm, stdout: &str) -> Reading {
        let targets = [Target::Pci("0000:00:06.0".into())];
        let function =
            Function { pci: "0000:00:06.0".into(), vendor: NVIDIA, device: 0x2335, ..Function::default() };
        let gpus = vec![Gpu { function, model: Some("NVIDIA H200".into()), ..Gpu::default() }];
        let (inventory, settings) = (Inventory { gpus, ..Inventory::default() }, sample::settings());
        let ctx = sample::context(&targets, &inventory, &settings);
        let output = Output { stdout: stdout.into(), stderr: String::new(), ended_at: 0.0 };
        probe.parse(&ctx, &[output], &mut Memory::default()).unwrap().remove(0)
    }

    fn verdicts(reading: &Reading) -> Vec<(&str, Option<Verdict>)> {
        reading.findings.iter().map(|finding| (finding.check.as_str(), finding.verdict)).collect()
    }

    #[test]
    fn what_an_h200_gave_is_read_with_what_stands_beside_it() {
        let reading = parse(&GEMM, H200);
        let values: Vec<(&str, f64)> =
            reading.measurements.iter().map(|m| (m.labels[1].as_str(), (m.value / 1e12).round())).collect();
        assert_eq!(
            values.iter().map(|(dtype, _)| *dtype).collect::<Vec<_>>(),
            ["bf16", "fp16", "fp8", "tf32", "fp32"]
        );
        assert!(values[0].1 > 700.0 && values[2].1 > 1300.0 && values[4].1 < 60.0, "{values:?}");
        let told = verdicts(&reading);
        assert_eq!(told[..2], [("products", Some(Verdict::Pass)), ("results", Some(Verdict::Pass))]);
        let rest: Vec<&str> = told[2..].iter().map(|(check, _)| *check).collect();
        assert_eq!(rest, ["before", "after", "libraries"]);
        assert_eq!(reading.digests.len(), 5);
        assert!(
            reading.digests[0].kind.starts_with("10de:2335 NVIDIA H200, libcudart.so.13"),
            "{:?}",
            reading.digests[0]
        );
    }

    #[test]
    fn a_wrong_element_and_another_digest_fail_and_are_compared_with_nobody() {
        let wrong = H200.replacen("\"wrong\":0", "\"wrong\":3", 1);
        let repeated = {
            let digest = H200.split("\"repeated\":\"").nth(1).unwrap().split('"').next().unwrap();
            H200.replacen(&format!("\"repeated\":\"{digest}\""), "\"repeated\":\"0000000000000000\"", 1)
        };
        for (text, words) in [(wrong, "3 of 1024 elements are wrong"), (repeated, "the same product gave")] {
            let reading = parse(&GEMM, &text);
            let corrupt: Vec<_> =
                reading.findings.iter().filter(|finding| finding.check == CORRUPT_RESULT).collect();
            assert_eq!(corrupt.len(), 1);
            assert_eq!(corrupt[0].verdict, Some(Verdict::Fail));
            assert!(
                corrupt[0].found.starts_with("bf16") && corrupt[0].found.contains(words),
                "{}",
                corrupt[0].found
            );
            assert!(!verdicts(&reading).iter().any(|(check, _)| *check == "results"));
            assert_eq!(reading.digests.len(), 4);
        }
    }

    #[test]
    fn a_longer_load_shows_how_the_figure_falls() {
        let reading = parse(&GEMM_SUSTAINED, include_str!("testdata/gemm_sustained/h200.jsonl"));
        let values: Vec<(&str, f64)> =
            reading.measurements.iter().map(|m| (m.labels[1].as_str(), (m.value / 1e12).round())).collect();
        assert_eq!((values[0].0, values[1].0), ("first", "last"));
        assert!(values[0].1 > values[1].1 && values[1].1 == 661.0, "{values:?}");
        let fall = reading.findings.iter().find(|finding| finding.check == "fall").unwrap();
        assert!(fall.found.contains("s 661") || fall.found.contains("TFLOP/s"), "{}", fall.found);
    }
}
