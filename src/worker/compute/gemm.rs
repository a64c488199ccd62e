//! The worker `gemm`: products of square matrices of random numbers, and whether they are right.
//!
//! A digest is made of the whole of the first product of each type, and of the one after the burst: it
//! is the same product, on the same GPU, when that was hot. The latter is compared with a reference
//! too.

use std::{
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
        let lt = Lt::load(bench.vendor, bench.search, device)?;
        out.library(lt.library.clone())?;
        out.value(Told::State(state::read(bench, &nvml, device, When::Before)))?;
        let tiles = SEEDS.map(|seed| tile(seed, task.size * task.size));
        let gpu = Gpu::new(device)?;
        for dtype in Dtype::ALL {
            if task.dtypes.is_empty() || task.dtypes.contains(&dtype) {
                let told = product(bench, task, &lt, &gpu, &tiles, dtype, out)?;
                out.value(told)?;
            }
        }
        out.value(Told::State(state::read(bench, &nvml, device, When::After)))?;
    }
    Ok(())
}

/// What a GPU needs beside the matrices.
struct Gpu<'d> {
    device: &'d Device<'d>,
    stream: Stream<'d>,
    start: Event<'d>,
    end: Event<'d>,
    pieces: [Pinned<'d>; 2],
}

impl<'d> Gpu<'d> {
    fn new(device: &'d Device<'d>) -> Result<Gpu<'d>, Stop> {
        Ok(Gpu {
            device,
            stream: device.stream()?,
            start: device.event()?,
            end: device.event()?,
            pieces: [device.pinned(PIECE)?, device.pinned(PIECE)?],
        })
    }

    /// A matrix that repeats these bytes: they are copied once, and then spread within the GPU.
    fn matrix(&self, tile: &[u8], bytes: usize) -> Result<Buffer<'d>, Stop> {
        let matrix = self.device.buffer(bytes)?;
        let mut source = self.device.pinned(tile.len())?;
        source.bytes_mut(&self.stream)?.copy_from_slice(tile);
        let mut filled = tile.len().min(bytes);
        self.stream.upload(&matrix, &source, filled)?;
        while filled < bytes {
            let next = filled.min(bytes - filled);
            self.stream.copy((&matrix, filled), (&matrix, 0), next)?;
            filled += next;
        }
        self.stream.synchronize()?;
        Ok(matrix)
    }

    /// Reads a whole result: its digest, and how many of the sampled elements are wrong.
    fn read(&self, result: &Buffer<'_>, format: Format, sample: Option<&Sample>) -> Result<Read, Stop> {
        let mut digest = Digest::new();
        let mut read = Read { digest: String::new(), checked: 0, wrong: 0, worst: 0.0 };
        let elements = sample.map(|sample| sample.elements.as_slice()).unwrap_or_default();
        let mut left = elements.iter().peekable();
        let bytes = result.bytes();
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
    lt: &Lt<'_>,
    gpu: &Gpu<'_>,
    tiles: &[Vec<f32>; 2],
    dtype: Dtype,
    out: &mut Out<Told>,
) -> Result<Told, Stop> {
    let mut chosen = None;
    for shape in shapes(dtype, task.size) {
        if let Some(prepared) = lt.prepare(shape)? {
            chosen = Some((shape, prepared));
            break;
        }
    }
    let pci = gpu.device.pci.clone();
    let Some((shape, prepared)) = chosen else {
        let why = format!("{} has no algorithm for it on this GPU", lt.library.name);
        return Ok(Told::Absent { gpu: pci, dtype, why });
    };
    let elements = shape.size * shape.size;
    let [a, b] = tiles.each_ref().map(|tile| shape.input.bytes_of(tile));
    let matrix = |tile: &[u8]| gpu.matrix(tile, elements * shape.input.bytes());
    let (first, second) = (matrix(&a)?, matrix(&b)?);
    let result = gpu.device.buffer(elements * shape.output.bytes())?;
    // What is left of an older result must not pass for a new one.
    gpu.stream.fill(&result, 0xff)?;
    let multiply = || prepared.multiply(&gpu.stream, [&first, &second], &result);
    multiply()?;

    let first_result = gpu.read(&result, shape.output, None)?;
    // The host computes what it expects while the GPU is at work.
    let (sample, flops) = thread::scope(|scope| {
        let sample = scope.spawn(|| expected(dtype, &shape, tiles));
        let flops = burst(bench, task, gpu, shape.size, &multiply, out);
        let sample = sample.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        flops.map(|flops| (sample, flops))
    })?;
    gpu.stream.fill(&result, 0xff)?;
    multiply()?;
    let last_result = gpu.read(&result, shape.output, Some(&sample))?;
    Ok(Told::Product(Product {
        gpu: pci,
        dtype,
        size: shape.size,
        flops,
        algorithm: algorithm(&prepared),
        digest: first_result.digest,
        repeated: last_result.digest,
        checked: last_result.checked,
        wrong: last_result.wrong,
        worst: last_result.worst,
    }))
}

/// What elements of the product have to be, from the numbers as the GPU gets them.
fn expected(dtype: Dtype, shape: &Shape, tiles: &[Vec<f32>; 2]) -> Sample {
    let [a, b] = tiles.each_ref().map(|tile| {
        tile.iter().map(|value| shape.input.decode(shape.input.encode(*value))).collect::<Vec<f32>>()
    });
    let (input_rounding, sum_rounding) = roundings(dtype);
    let (size, layout, output) = (shape.size, shape.layout, shape.output);
    Factors { size, layout, a: &a, b: &b, input_rounding, sum_rounding, output }.sample()
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
                out.value(Told::Window(Window { gpu: gpu.device.pci.clone(), at, flops }))?;
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
