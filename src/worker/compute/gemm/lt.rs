//! cuBLASLt and hipBLASLt: one table of functions, since their interfaces are the same but for the
//! names, and one of numbers for each, since their enumerations differ.

#![expect(unsafe_code, reason = "calls a foreign library")]

use std::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};

use probes::compute::{self, Fault, Vendor};

use super::{
    super::{
        Stop,
        device::{Buffer, Device, Stream},
        functions::functions,
        runtime::Handle,
    },
    Layout,
    number::Format,
};
use crate::worker::library::Search;

type Status = c_int;

functions! {
    /// `cublasLt.h` and `hipblaslt/hipblaslt.h`: `%` is `cublas` and `hipblas`, `$` is `cuda` and `hip`.
    pub(in super::super) struct Functions {
        create = "%Status_t %LtCreate(%LtHandle_t *)" as fn(*mut Handle) -> Status;
        create_product = "%Status_t %LtMatmulDescCreate(%LtMatmulDesc_t *, %ComputeType_t, $DataType)"
            as fn(*mut Handle, c_int, c_int) -> Status;
        set_product = "%Status_t %LtMatmulDescSetAttribute(%LtMatmulDesc_t, %LtMatmulDescAttributes_t, const void *, size_t)"
            as fn(Handle, c_int, *const c_void, usize) -> Status;
        create_layout = "%Status_t %LtMatrixLayoutCreate(%LtMatrixLayout_t *, $DataType, uint64_t, uint64_t, int64_t)"
            as fn(*mut Handle, c_int, u64, u64, i64) -> Status;
        create_preference = "%Status_t %LtMatmulPreferenceCreate(%LtMatmulPreference_t *)"
            as fn(*mut Handle) -> Status;
        set_preference = "%Status_t %LtMatmulPreferenceSetAttribute(%LtMatmulPreference_t, %LtMatmulPreferenceAttributes_t, const void *, size_t)"
            as fn(Handle, c_int, *const c_void, usize) -> Status;
        choose = "%Status_t %LtMatmulAlgoGetHeuristic(%LtHandle_t, %LtMatmulDesc_t, %LtMatrixLayout_t, %LtMatrixLayout_t, %LtMatrixLayout_t, %LtMatrixLayout_t, %LtMatmulPreference_t, int, %LtMatmulHeuristicResult_t *, int *)"
            as fn(Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int) -> Status;
        multiply = "%Status_t %LtMatmul(%LtHandle_t, %LtMatmulDesc_t, const void *, const void *, %LtMatrixLayout_t, const void *, %LtMatrixLayout_t, const void *, const void *, %LtMatrixLayout_t, void *, %LtMatrixLayout_t, const %LtMatmulAlgo_t *, void *, size_t, $Stream_t)"
            as fn(Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void, Handle, *mut c_void, Handle, *const c_void, *mut c_void, usize, Handle) -> Status;
    }
}

functions! {
    /// What differs of it in `cublasLt.h`.
    pub(in super::super) struct CublasVersion {
        version = "size_t cublasLtGetVersion(void)" as fn() -> usize;
    }
}

functions! {
    /// The same in `hipblaslt/hipblaslt.h`.
    pub(in super::super) struct HipblasVersion {
        version = "hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t, int *)" as fn(Handle, *mut c_int) -> Status;
    }
}

/// Numbers of the enumerations that are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    compute: c_int,
    compute_tf32: c_int,
    transposed: i32,
    transpose_first: c_int,
    most_workspace: c_int,
    /// Bytes of `LtMatmulAlgo_t`.
    algorithm: usize,
}

/// `cublas_api.h`, `cublasLt.h`.
pub(super) const CUBLAS: Numbers = Numbers {
    compute: 68,
    compute_tf32: 77,
    transposed: 1,
    transpose_first: 3,
    most_workspace: 1,
    algorithm: 64,
};

/// `hipblas-common/hipblas-common.h`, `hipblaslt/hipblaslt.h`.
pub(super) const HIPBLAS: Numbers = Numbers {
    compute: 2,
    compute_tf32: 6,
    transposed: 112,
    transpose_first: 0,
    most_workspace: 1,
    algorithm: 24,
};

/// The numbers of `CUBLAS` by their names in the headers.
#[cfg(test)]
pub(in super::super) const CUBLAS_CONSTANTS: &[(&str, c_int)] = &[
    ("CUBLAS_COMPUTE_32F", CUBLAS.compute),
    ("CUBLAS_COMPUTE_32F_FAST_TF32", CUBLAS.compute_tf32),
    ("CUBLAS_OP_T", CUBLAS.transposed),
    ("CUBLASLT_MATMUL_DESC_TRANSA", CUBLAS.transpose_first),
    ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", CUBLAS.most_workspace),
    ("sizeof(cublasLtMatmulAlgo_t)", 64),
    ("sizeof(cublasLtMatmulHeuristicResult_t)", 96),
    ("CUDA_R_32F", 0),
    ("CUDA_R_16F", 2),
    ("CUDA_R_16BF", 14),
    ("CUDA_R_8F_E4M3", 28),
];

/// The same of `HIPBLAS`.
#[cfg(test)]
pub(in super::super) const HIPBLAS_CONSTANTS: &[(&str, c_int)] = &[
    ("HIPBLAS_COMPUTE_32F", HIPBLAS.compute),
    ("HIPBLAS_COMPUTE_32F_FAST_TF32", HIPBLAS.compute_tf32),
    ("HIPBLAS_OP_T", HIPBLAS.transposed),
    ("HIPBLASLT_MATMUL_DESC_TRANSA", HIPBLAS.transpose_first),
    ("HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", HIPBLAS.most_workspace),
    ("sizeof(hipblasLtMatmulAlgo_t)", 24),
    ("sizeof(hipblasLtMatmulHeuristicResult_t)", 56),
    ("HIP_R_32F", 0),
    ("HIP_R_16F", 2),
    ("HIP_R_16BF", 14),
    ("HIP_R_8F_E4M3", 28),
    ("HIP_R_8F_E4M3_FNUZ", 1000),
];

/// Bytes that a product may use beside its matrices: what PyTorch gives cuBLASLt on Hopper, and so
/// what most jobs run with.
const WORKSPACE: usize = 32 << 20;

/// Room for a result of either vendor's heuristic, of which the algorithm is the first part.
type Choice = [u64; 16];

/// The library, for one GPU.
#[derive(Debug)]
pub(super) struct Lt<'d> {
    functions: Functions,
    numbers: Numbers,
    device: &'d Device<'d>,
    handle: Handle,
    workspace: Buffer<'d>,
    /// Its name and version.
    pub(super) library: compute::Library,
}

/// A product of square matrices that the library has an algorithm for.
#[derive(Debug)]
pub(super) struct Prepared<'l> {
    lt: &'l Lt<'l>,
    product: Handle,
    factors: [Handle; 2],
    result: Handle,
    choice: Choice,
}

/// What is multiplied, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) input: Format,
    pub(super) output: Format,
    pub(super) layout: Layout,
    /// Inputs may be rounded to tf32.
    pub(super) tf32: bool,
}

impl Shape {
    pub(super) fn elements(&self) -> usize {
        self.size * self.size
    }

    pub(super) fn result_bytes(&self) -> usize {
        self.elements() * self.output.bytes()
    }
}

/// `cudaDataType` and `hipDataType` have the same numbers.
fn number(format: Format) -> c_int {
    match format {
        Format::F32 => 0,
        Format::F16 => 2,
        Format::Bf16 => 14,
        Format::E4m3 => 28,
        Format::E4m3Fnuz => 1000,
    }
}

/// The library of a vendor, the newest first.
pub(in super::super) fn names(vendor: Vendor) -> &'static [&'static str] {
    match vendor {
        Vendor::Amd => &["libhipblaslt.so.1", "libhipblaslt.so.0"],
        Vendor::Nvidia => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"],
    }
}

impl<'d> Lt<'d> {
    pub(super) fn load(vendor: Vendor, search: &Search, device: &'d Device<'d>) -> Result<Lt<'d>, Stop> {
        let (numbers, blas, runtime) = match vendor {
            Vendor::Amd => (HIPBLAS, "hipblas", "hip"),
            Vendor::Nvidia => (CUBLAS, "cublas", "cuda"),
        };
        let library = search.open(names(vendor))?;
        let spell = |declaration: &str| declaration.replace('%', blas).replace('$', runtime);
        let functions = Functions::load(&library, spell)?;
        let workspace = device.buffer(WORKSPACE)?;
        let mut handle = null_mut();
        // SAFETY: it writes one handle.
        let status = unsafe { (functions.create)(&mut handle) };
        checked(device, status, "LtCreate")?;
        let version = match vendor {
            Vendor::Nvidia => {
                let versions = CublasVersion::load(&library, spell)?;
                // SAFETY: it takes nothing.
                unsafe { (versions.version)() }.to_string()
            }
            Vendor::Amd => {
                let versions = HipblasVersion::load(&library, spell)?;
                let mut version = 0;
                // SAFETY: the handle is alive, and it writes one int.
                checked(device, unsafe { (versions.version)(handle, &mut version) }, "LtGetVersion")?;
                version.to_string()
            }
        };
        let used = compute::Library {
            name: library.name.clone(),
            path: library.path.display().to_string(),
            version,
        };
        library.keep();
        Ok(Lt { functions, numbers, device, handle, workspace, library: used })
    }

    /// Lets the library choose an algorithm; none where it has none for these types on this GPU.
    pub(super) fn prepare(&self, shape: Shape) -> Result<Option<Prepared<'_>>, Stop> {
        let check = |status, call| checked(self.device, status, call);
        let (f, numbers) = (&self.functions, &self.numbers);
        let compute = if shape.tf32 { numbers.compute_tf32 } else { numbers.compute };
        let (mut product, mut preference) = (null_mut(), null_mut());
        // SAFETY: it writes one handle.
        let status = unsafe { (f.create_product)(&mut product, compute, number(Format::F32)) };
        check(status, "LtMatmulDescCreate")?;
        if shape.layout == Layout::FirstTransposed {
            let transposed = numbers.transposed;
            // SAFETY: the attribute is an int of 32 bits, which is read at once.
            let status = unsafe {
                (f.set_product)(
                    product,
                    numbers.transpose_first,
                    (&raw const transposed).cast(),
                    size_of::<i32>(),
                )
            };
            check(status, "LtMatmulDescSetAttribute")?;
        }
        let input = self.layout(shape.input, shape.size)?;
        let (second, result) =
            (self.layout(shape.input, shape.size)?, self.layout(shape.output, shape.size)?);
        // SAFETY: it writes one handle.
        check(unsafe { (f.create_preference)(&mut preference) }, "LtMatmulPreferenceCreate")?;
        let most = WORKSPACE as u64;
        // SAFETY: the attribute is a number of 64 bits, which is read at once.
        let status = unsafe {
            (f.set_preference)(preference, numbers.most_workspace, (&raw const most).cast(), size_of::<u64>())
        };
        check(status, "LtMatmulPreferenceSetAttribute")?;
        let mut choice: Choice = [0; 16];
        let mut found = 0;
        // SAFETY: all handles are alive. It writes one result, for which there is room: the larger
        // one of the two has 96 bytes.
        let status = unsafe {
            (f.choose)(
                self.handle,
                product,
                input,
                second,
                result,
                result,
                preference,
                1,
                choice.as_mut_ptr().cast(),
                &mut found,
            )
        };
        // A type that the chip does not have is refused, or gets no algorithm.
        let prepared = Prepared { lt: self, product, factors: [input, second], result, choice };
        Ok((status == 0 && found > 0).then_some(prepared))
    }

    fn layout(&self, format: Format, size: usize) -> Result<Handle, Stop> {
        let mut layout = null_mut();
        let n = size as u64;
        // SAFETY: it writes one handle.
        let status =
            unsafe { (self.functions.create_layout)(&mut layout, number(format), n, n, n.cast_signed()) };
        checked(self.device, status, "LtMatrixLayoutCreate")?;
        Ok(layout)
    }
}

impl Prepared<'_> {
    /// Multiplies once. Buffers are as large as the shape says.
    pub(super) fn multiply(
        &self,
        stream: &Stream<'_>,
        [a, b]: [&Buffer<'_>; 2],
        c: &Buffer<'_>,
    ) -> Result<(), Stop> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: handles, buffers and the chosen algorithm are alive; the two numbers are singles,
        // as the scale's type says, and read at once.
        let status = unsafe {
            (self.lt.functions.multiply)(
                self.lt.handle,
                self.product,
                (&raw const one).cast(),
                a.pointer(),
                self.factors[0],
                b.pointer(),
                self.factors[1],
                (&raw const zero).cast(),
                c.pointer(),
                self.result,
                c.pointer(),
                self.result,
                self.choice.as_ptr().cast(),
                self.lt.workspace.pointer(),
                WORKSPACE,
                stream.handle(),
            )
        };
        checked(self.lt.device, status, "LtMatmul")
    }

    /// The algorithm's own description, as bytes.
    pub(super) fn algorithm(&self) -> Vec<u8> {
        let bytes = self.choice.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(self.lt.numbers.algorithm).collect()
    }
}

fn checked(device: &Device<'_>, status: Status, call: &str) -> Result<(), Stop> {
    if status == 0 {
        return Ok(());
    }
    Err(Stop::Fault(Fault {
        part: device.pci.clone(),
        call: call.to_string(),
        error: format!("status {status}"),
        hardware: false,
    }))
}
