//! The worker `gemm`: products of square matrices of random numbers, and whether they are right.
//!
//! A digest is made of the whole of the first product of each type, and of the last one of the burst: it
//! is the same product, on the same GPU, when that was hot. The latter is compared with a reference
//! too.

use std::{
    panic::resume_unwind,
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

use probes::{
    compute::Repeats,
    gemm::{Dtype, Product, Task, Told, When, Window},
};

use self::{
    digest::Digest,
    lt::{Lt, Prepared, Shape},
    number::Format,
    reference::{Factors, Sample},
    tile::tile,
};
use super::{
    Bench, Out, Stop,
    device::{Buffer, Device, Event, Pinned, Stream},
    effort::Effort,
};
use crate::worker::nvml::Session;

mod digest;
pub(super) mod lt;
mod number;
mod reference;
mod state;
mod tile;

/// Seeds of the two matrices.
const SEEDS: [u64; 2] = [1, 2];
/// Bytes of a result that are copied to the host at a time: two such pieces are under way.
const PIECE: usize = 16 << 20;
/// Of single precision without tensor cores a quarter of the matrix fills the chip as well, in an
/// eighth of the time.
const PLAIN_SHARE: usize = 2;
/// How long a product of the sustained load's figures is.
const WINDOW: Duration = Duration::from_millis(100);

/// How matrices, which are stored by columns, are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// As they are.
    Plain,
    /// The first one by its rows, which is the only way for 8-bit numbers.
    FirstTransposed,
}

pub(super) fn measure(bench: &Bench<'_>, task: &Task, out: &mut Out<Told>) -> Result<(), Stop> {
    let nvml = Session::new(bench.roots, bench.libraries);
    for device in &bench.devices {
        let pci = &device.pci;
        let (roots, nvml) = (bench.roots, &nvml);
        let (before, lt) = thread::scope(|scope| {
            let before = scope.spawn(move || state::read(roots, nvml, pci, When::Before));
            let lt = Lt::load(bench.vendor, bench.search, device);
            (before.join().unwrap_or_else(|panic| resume_unwind(panic)), lt)
        });
        let lt = lt?;
        out.library(lt.library.clone())?;
        out.value(Told::State(before))?;
        products(bench, task, &lt, device, out)?;
        out.value(Told::State(state::read(roots, nvml, pci, When::After)))?;
    }
    Ok(())
}

/// Each type, one after the other. Beside the GPU's work the host makes the numbers of the next type,
/// and computes what has to come out.
fn products(
    bench: &Bench<'_>,
    task: &Task,
    lt: &Lt<'_>,
    device: &Device<'_>,
    out: &mut Out<Told>,
) -> Result<(), Stop> {
    let mut chosen = Vec::new();
    for dtype in Dtype::ALL {
        if !task.dtypes.is_empty() && !task.dtypes.contains(&dtype) {
            continue;
        }
        match choose(lt, dtype, task.size)? {
            Some((shape, prepared)) => chosen.push((dtype, shape, prepared)),
            None => {
                let why = format!("{} has no algorithm for it on this GPU", lt.library.name);
                out.value(Told::Absent { gpu: device.pci.clone(), dtype, why })?;
            }
        }
    }
    let wanted: Vec<(Dtype, Shape)> = chosen.iter().map(|(dtype, shape, _)| (*dtype, *shape)).collect();
    let elements = task.size * task.size;
    thread::scope(|scope| {
        let (send, ready) = sync_channel(1);
        scope.spawn(move || {
            let tiles = SEEDS.map(|seed| tile(seed, elements));
            for (dtype, shape) in wanted {
                // Nobody waits for it where a call has failed.
                if send.send(Numbers::of(dtype, &shape, &tiles)).is_err() {
                    return;
                }
            }
        });
        let mut gpu = Gpu::new(device, &chosen)?;
        for (dtype, shape, prepared) in &chosen {
            let Ok(numbers) = ready.recv() else { break };
            let product = product(bench, task, &mut gpu, (*dtype, shape, prepared), &numbers, out)?;
            out.value(Told::Product(product))?;
        }
        Ok(())
    })
}

/// The first form of a type that the library has an algorithm for.
fn choose<'l>(lt: &'l Lt<'_>, dtype: Dtype, size: usize) -> Result<Option<(Shape, Prepared<'l>)>, Stop> {
    for shape in shapes(dtype, size) {
        if let Some(prepared) = lt.prepare(shape)? {
            return Ok(Some((shape, prepared)));
        }
    }
    Ok(None)
}

/// What is multiplied, as a GPU reads it, and what elements of the product have to be.
struct Numbers {
    factors: [Vec<u8>; 2],
    sample: Sample,
}

impl Numbers {
    fn of(dtype: Dtype, shape: &Shape, tiles: &[Vec<f32>; 2]) -> Numbers {
        let factors = tiles.each_ref().map(|tile| shape.input.bytes_of(tile));
        let [a, b] = factors.each_ref().map(|bytes| shape.input.values_of(bytes));
        let (input_rounding, sum_rounding) = roundings(dtype);
        let (size, layout, output) = (shape.size, shape.layout, shape.output);
        let sample = Factors { size, layout, a: &a, b: &b, input_rounding, sum_rounding, output }.sample();
        Numbers { factors, sample }
    }
}

/// What a GPU needs for all types: memory for the largest matrices, and pieces of the host's.
struct Gpu<'d> {
    pci: &'d str,
    stream: Stream<'d>,
    start: Event<'d>,
    end: Event<'d>,
    factors: [Buffer<'d>; 2],
    result: Buffer<'d>,
    pieces: [Pinned<'d>; 2],
}

impl<'d> Gpu<'d> {
    fn new(device: &'d Device<'d>, chosen: &[(Dtype, Shape, Prepared<'_>)]) -> Result<Gpu<'d>, Stop> {
        let most =
            |bytes: fn(&Shape) -> usize| chosen.iter().map(|(_, shape, _)| bytes(shape)).max().unwrap_or(1);
        let factor = most(|shape| shape.elements() * shape.input.bytes());
        Ok(Gpu {
            pci: &device.pci,
            stream: device.stream()?,
            start: device.event()?,
            end: device.event()?,
            factors: [device.buffer(factor)?, device.buffer(factor)?],
            result: device.buffer(most(Shape::result_bytes))?,
            pieces: [device.pinned(PIECE)?, device.pinned(PIECE)?],
        })
    }

    /// Fills a matrix with these bytes over and over: they are copied once, and then spread within the
    /// GPU.
    fn fill(&mut self, which: usize, tile: &[u8], bytes: usize) -> Result<(), Stop> {
        let matrix = &self.factors[which];
        let mut filled = 0;
        for part in tile.chunks(PIECE).take_while(|part| !part.is_empty()) {
            let part = &part[..part.len().min(bytes - filled)];
            self.pieces[0].bytes_mut(&self.stream)?[..part.len()].copy_from_slice(part);
            self.stream.upload((matrix, filled), &self.pieces[0], part.len())?;
            filled += part.len();
        }
        while filled < bytes {
            let next = filled.min(bytes - filled);
            self.stream.copy((matrix, filled), (matrix, 0), next)?;
            filled += next;
        }
        self.stream.synchronize()
    }

    /// Reads a whole result: its digest, and how many of the sampled elements are wrong.
    fn read(&self, shape: &Shape, sample: Option<&Sample>) -> Result<Read, Stop> {
        let (result, format, bytes) = (&self.result, shape.output, shape.result_bytes());
        let mut digest = Digest::new();
        let mut read = Read { digest: String::new(), checked: 0, wrong: 0, worst: 0.0 };
        let elements = sample.map(|sample| sample.elements.as_slice()).unwrap_or_default();
        let mut left = elements.iter().peekable();
        let piece = |at: usize| PIECE.min(bytes - at);
        self.stream.download(&self.pieces[0], (result, 0), piece(0))?;
        for (number, at) in (0..bytes).step_by(PIECE).enumerate() {
            let here = &self.pieces[number % 2].bytes(&self.stream)?[..piece(at)];
            if at + PIECE < bytes {
                let next = at + PIECE;
                self.stream.download(&self.pieces[(number + 1) % 2], (result, next), piece(next))?;
            }
            digest.take(here);
            let first = at / format.bytes();
            while let Some(element) = left.next_if(|element| element.at < first + here.len() / format.bytes())
            {
                let error =
                    format.at(here, element.at - first).map_or(f64::INFINITY, |found| element.error(found));
                read.checked += 1;
                read.wrong += u32::from(error > 1.0);
                read.worst = read.worst.max(error.min(f64::MAX));
            }
        }
        read.digest = digest.text();
        Ok(read)
    }
}

/// What a result says.
struct Read {
    digest: String,
    checked: u32,
    wrong: u32,
    worst: f64,
}

/// The formats that a type may have on this GPU; the first for which the library has an algorithm is
/// taken.
fn shapes(dtype: Dtype, size: usize) -> Vec<Shape> {
    let plain = |format| Shape { size, input: format, output: format, layout: Layout::Plain, tf32: false };
    let eight =
        |input| Shape { size, input, output: Format::Bf16, layout: Layout::FirstTransposed, tf32: false };
    match dtype {
        Dtype::Bf16 => vec![plain(Format::Bf16)],
        Dtype::Fp16 => vec![plain(Format::F16)],
        Dtype::Tf32 => vec![Shape { tf32: true, ..plain(Format::F32) }],
        Dtype::Fp32 => vec![Shape { size: size / PLAIN_SHARE, ..plain(Format::F32) }],
        Dtype::Fp8 => vec![eight(Format::E4m3), eight(Format::E4m3Fnuz)],
    }
}

/// How far the inputs are rounded before they are multiplied, and the unit of the sum. Tensor cores
/// of NVIDIA add products of 8-bit numbers with fewer bits than a single has.
fn roundings(dtype: Dtype) -> (f64, f64) {
    let bits = |bits: i32| 0.5_f64.powi(bits);
    match dtype {
        Dtype::Bf16 | Dtype::Fp16 | Dtype::Fp32 => (0.0, bits(24)),
        Dtype::Tf32 => (bits(10), bits(24)),
        Dtype::Fp8 => (0.0, bits(20)),
    }
}

fn product(
    bench: &Bench<'_>,
    task: &Task,
    gpu: &mut Gpu<'_>,
    (dtype, shape, prepared): (Dtype, &Shape, &Prepared<'_>),
    numbers: &Numbers,
    out: &mut Out<Told>,
) -> Result<Product, Stop> {
    let bytes = shape.elements() * shape.input.bytes();
    for (which, tile) in numbers.factors.iter().enumerate() {
        gpu.fill(which, tile, bytes)?;
    }
    let gpu = &*gpu;
    // What is left of an older result must not pass for a new one.
    gpu.stream.fill(&gpu.result, 0xff)?;
    let multiply = || prepared.multiply(&gpu.stream, gpu.factors.each_ref(), &gpu.result);
    multiply()?;
    let first = gpu.read(shape, None)?;
    let flops = burst(bench, task, gpu, shape.size, &multiply, out)?;
    let last = gpu.read(shape, Some(&numbers.sample))?;
    Ok(Product {
        gpu: gpu.pci.to_string(),
        dtype,
        size: shape.size,
        flops,
        algorithm: algorithm(prepared),
        digest: first.digest,
        repeated: last.digest,
        checked: last.checked,
        wrong: last.wrong,
        worst: last.worst,
    })
}

/// Products for as long as the burst is, or of a longer load with a figure for each of its windows.
fn burst(
    bench: &Bench<'_>,
    task: &Task,
    gpu: &Gpu<'_>,
    size: usize,
    multiply: &dyn Fn() -> Result<(), Stop>,
    out: &mut Out<Told>,
) -> Result<Repeats, Stop> {
    let operations = 2.0 * (size as f64).powi(3);
    let once = || gpu.stream.time([&gpu.start, &gpu.end], multiply);
    let load = Duration::from_secs_f64(task.burst);
    let mut all = Vec::new();
    if task.windows {
        let began = Instant::now();
        while began.elapsed() < load && Instant::now() < bench.deadline {
            let seconds = Effort::throughout(WINDOW, bench.deadline).repeat(once)?;
            if let Some(flops) = Repeats::rate(operations, &seconds) {
                let at = began.elapsed().as_secs_f64();
                out.value(Told::Window(Window { gpu: gpu.pci.to_string(), at, flops }))?;
            }
            all.extend(seconds);
        }
    } else {
        all = Effort::throughout(load, bench.deadline).repeat(once)?;
    }
    Ok(Repeats::rate(operations, &all).unwrap_or(Repeats { median: 0.0, spread: 0.0, count: 0 }))
}

/// A short name of the algorithm that the library chose: results are comparable where it is equal.
fn algorithm(prepared: &Prepared<'_>) -> String {
    let mut digest = Digest::new();
    digest.take(&prepared.algorithm());
    digest.text()
}
