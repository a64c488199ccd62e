//! The runtime of HIP and CUDA: one table of functions, since their interfaces are the same but
//! for the prefix.

#![expect(unsafe_code, reason = "calls a foreign library")]

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_float, c_int, c_uint, c_void},
    path::PathBuf,
};

use probes::{
    compute::{self, Fault, Vendor},
    lines::NODE,
};

use super::{Stop, functions::functions};
use crate::worker::library::{NVIDIA_DRIVER, Search};

/// What every function of a runtime answers: 0 is success in both.
pub(super) type Status = c_int;
/// A stream, an event: pointers to what only the library knows.
pub(super) type Handle = *mut c_void;

functions! {
    /// `cuda_runtime_api.h` and `hip/hip_runtime_api.h`, `%` being `cuda` and `hip`.
    pub(super) struct Functions {
        device_count = "%Error_t %GetDeviceCount(int *)" as fn(*mut c_int) -> Status;
        set_device = "%Error_t %SetDevice(int)" as fn(c_int) -> Status;
        pci_address = "%Error_t %DeviceGetPCIBusId(char *, int, int)" as fn(*mut c_char, c_int, c_int) -> Status;
        runtime_version = "%Error_t %RuntimeGetVersion(int *)" as fn(*mut c_int) -> Status;
        driver_version = "%Error_t %DriverGetVersion(int *)" as fn(*mut c_int) -> Status;
        error_name = "const char *%GetErrorName(%Error_t)" as fn(Status) -> *const c_char;
        error_words = "const char *%GetErrorString(%Error_t)" as fn(Status) -> *const c_char;
        allocate = "%Error_t %Malloc(void **, size_t)" as fn(*mut *mut c_void, usize) -> Status;
        free = "%Error_t %Free(void *)" as fn(*mut c_void) -> Status;
        copy = "%Error_t %MemcpyAsync(void *, const void *, size_t, %MemcpyKind, %Stream_t)"
            as fn(*mut c_void, *const c_void, usize, c_int, Handle) -> Status;
        copy_peer = "%Error_t %MemcpyPeerAsync(void *, int, const void *, int, size_t, %Stream_t)"
            as fn(*mut c_void, c_int, *const c_void, c_int, usize, Handle) -> Status;
        set_bytes = "%Error_t %MemsetAsync(void *, int, size_t, %Stream_t)"
            as fn(*mut c_void, c_int, usize, Handle) -> Status;
        create_stream = "%Error_t %StreamCreateWithFlags(%Stream_t *, unsigned int)"
            as fn(*mut Handle, c_uint) -> Status;
        synchronize = "%Error_t %StreamSynchronize(%Stream_t)" as fn(Handle) -> Status;
        query = "%Error_t %StreamQuery(%Stream_t)" as fn(Handle) -> Status;
        wait_event = "%Error_t %StreamWaitEvent(%Stream_t, %Event_t, unsigned int)"
            as fn(Handle, Handle, c_uint) -> Status;
        create_event = "%Error_t %EventCreate(%Event_t *)" as fn(*mut Handle) -> Status;
        record = "%Error_t %EventRecord(%Event_t, %Stream_t)" as fn(Handle, Handle) -> Status;
        await_event = "%Error_t %EventSynchronize(%Event_t)" as fn(Handle) -> Status;
        elapsed = "%Error_t %EventElapsedTime(float *, %Event_t, %Event_t)"
            as fn(*mut c_float, Handle, Handle) -> Status;
        can_access_peer = "%Error_t %DeviceCanAccessPeer(int *, int, int)"
            as fn(*mut c_int, c_int, c_int) -> Status;
        enable_peer_access = "%Error_t %DeviceEnablePeerAccess(int, unsigned int)" as fn(c_int, c_uint) -> Status;
    }
}

functions! {
    /// Pinned memory, for which the two have other names: `cuda_runtime_api.h`.
    pub(super) struct CudaHost {
        allocate = "cudaError_t cudaHostAlloc(void **, size_t, unsigned int)"
            as fn(*mut *mut c_void, usize, c_uint) -> Status;
        free = "cudaError_t cudaFreeHost(void *)" as fn(*mut c_void) -> Status;
    }
}

functions! {
    /// The same in `hip/hip_runtime_api.h`.
    pub(super) struct HipHost {
        allocate = "hipError_t hipHostMalloc(void **, size_t, unsigned int)"
            as fn(*mut *mut c_void, usize, c_uint) -> Status;
        free = "hipError_t hipHostFree(void *)" as fn(*mut c_void) -> Status;
    }
}

/// Constants of both headers, which are equal: name after the prefix, and number.
#[cfg(test)]
pub(super) const CONSTANTS: &[(&str, c_int)] = &[
    ("Success", 0),
    ("ErrorNoDevice", NO_DEVICE),
    ("ErrorInsufficientDriver", INSUFFICIENT_DRIVER),
    ("ErrorNotReady", NOT_READY),
    ("ErrorPeerAccessAlreadyEnabled", PEER_ACCESS_ALREADY_ENABLED),
    ("MemcpyHostToDevice", HOST_TO_DEVICE),
    ("MemcpyDeviceToHost", DEVICE_TO_HOST),
    ("MemcpyDeviceToDevice", DEVICE_TO_DEVICE),
    ("StreamNonBlocking", NON_BLOCKING),
];

const NO_DEVICE: Status = 100;
const INSUFFICIENT_DRIVER: Status = 35;
pub(super) const NOT_READY: Status = 600;
pub(super) const PEER_ACCESS_ALREADY_ENABLED: Status = 704;
pub(super) const HOST_TO_DEVICE: c_int = 1;
pub(super) const DEVICE_TO_HOST: c_int = 2;
pub(super) const DEVICE_TO_DEVICE: c_int = 3;
pub(super) const NON_BLOCKING: c_int = 1;

/// An uncorrectable memory error: `cudaErrorECCUncorrectable`, `hipErrorECCNotCorrectable`.
const ECC_UNCORRECTABLE: Status = 214;
/// `cudaErrorNvlinkUncorrectable`; HIP has no such error.
const NVLINK_UNCORRECTABLE: Status = 220;

/// Room for `0000:05:00.0` and its end; the runtimes write no more than they are told.
const ADDRESS_ROOM: u8 = 32;

/// Where AMD puts its libraries.
const AMD_PLACES: &[&str] = &["/opt/rocm/lib", "/opt/rocm-*/lib", "/usr/lib64/rocm/lib"];

/// Where NVIDIA's installers put its libraries.
const NVIDIA_PLACES: &[&str] = &["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"];

/// Where Python's packages have them.
const NVIDIA_PACKAGES: &[&str] = &[
    "/usr/lib/python3/dist-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/dist-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/site-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
];

/// Where this vendor's libraries are looked for.
pub(super) fn search(vendor: Vendor, named: &[PathBuf]) -> Search {
    match vendor {
        Vendor::Amd => Search::new(named, AMD_PLACES, &[]),
        Vendor::Nvidia => Search::new(named, NVIDIA_PLACES, NVIDIA_PACKAGES),
    }
}

/// A loaded runtime.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) functions: Functions,
    pub(super) allocate_host: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Status,
    pub(super) free_host: unsafe extern "C" fn(*mut c_void) -> Status,
    prefix: &'static str,
    /// The device that calls go to, so that it is only set when it changes.
    current: Cell<Option<c_int>>,
}

impl Runtime {
    /// Loads the vendor's runtime, and tells which.
    pub(super) fn load(vendor: Vendor, search: &Search) -> Result<(Runtime, compute::Library), Stop> {
        let (prefix, names): (_, &[&str]) = match vendor {
            Vendor::Amd => ("hip", &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]),
            Vendor::Nvidia => ("cuda", &["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"]),
        };
        // The runtime loads the driver's library by its name, and gets the one that is loaded already.
        if vendor == Vendor::Nvidia
            && let Ok(driver) = Search::new(&[], NVIDIA_DRIVER, &[]).open(&["libcuda.so.1"])
        {
            driver.keep();
        }
        let library = search.open(names)?;
        let spell = |declaration: &str| declaration.replace('%', prefix);
        let functions = Functions::load(&library, spell)?;
        let (allocate_host, free_host) = match vendor {
            Vendor::Amd => HipHost::load(&library, spell).map(|host| (host.allocate, host.free))?,
            Vendor::Nvidia => CudaHost::load(&library, spell).map(|host| (host.allocate, host.free))?,
        };
        let runtime = Runtime { functions, allocate_host, free_host, prefix, current: Cell::new(None) };
        let version = runtime.version()?;
        let used = compute::Library {
            name: library.name.clone(),
            path: library.path.display().to_string(),
            version,
        };
        library.keep();
        Ok((runtime, used))
    }

    /// `runtime 13000, driver 13000`, as the library writes versions.
    fn version(&self) -> Result<String, Stop> {
        let (mut runtime, mut driver) = (0, 0);
        // SAFETY: both write one int.
        let statuses = unsafe {
            [(self.functions.runtime_version)(&mut runtime), (self.functions.driver_version)(&mut driver)]
        };
        self.check(statuses[0], NODE, || "RuntimeGetVersion".into())?;
        self.check(statuses[1], NODE, || "DriverGetVersion".into())?;
        Ok(format!("runtime {runtime}, driver {driver}"))
    }

    /// The devices that the process may see: index and PCI address.
    pub(super) fn devices(&self) -> Result<Vec<(c_int, String)>, Stop> {
        let mut count = 0;
        // SAFETY: it writes one int.
        let status = unsafe { (self.functions.device_count)(&mut count) };
        if [NO_DEVICE, INSUFFICIENT_DRIVER].contains(&status) {
            return Err(Stop::Unsupported(format!("no GPU answers: {}", self.words(status))));
        }
        self.check(status, NODE, || "GetDeviceCount".into())?;
        (0..count).map(|index| Ok((index, self.address(index)?))).collect()
    }

    fn address(&self, index: c_int) -> Result<String, Stop> {
        let mut text = [0_u8; ADDRESS_ROOM as usize];
        // SAFETY: it writes at most as many bytes as it is told, the closing 0 among them.
        let status =
            unsafe { (self.functions.pci_address)(text.as_mut_ptr().cast(), ADDRESS_ROOM.into(), index) };
        self.check(status, NODE, || format!("DeviceGetPCIBusId of device {index}"))?;
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
        Ok(text.to_ascii_lowercase())
    }

    /// The functions, with this device as the one that they are for.
    pub(super) fn at(&self, device: c_int) -> Result<&Functions, Stop> {
        if self.current.get() != Some(device) {
            // SAFETY: any number may be given; one that is no device is an error.
            let status = unsafe { (self.functions.set_device)(device) };
            self.check(status, NODE, || format!("SetDevice {device}"))?;
            self.current.set(Some(device));
        }
        Ok(&self.functions)
    }

    /// Says that another library may have changed the device that calls go to.
    pub(super) fn forget_device(&self) {
        self.current.set(None);
    }

    /// A call that failed, as a fault of the part that it was made for.
    pub(super) fn check(
        &self,
        status: Status,
        part: &str,
        call: impl FnOnce() -> String,
    ) -> Result<(), Stop> {
        if status == 0 {
            return Ok(());
        }
        Err(Stop::Fault(Fault {
            part: part.to_string(),
            call: format!("{}{}", self.prefix, call()),
            error: self.words(status),
            hardware: [ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE].contains(&status),
        }))
    }

    /// `cudaErrorMemoryAllocation (2): out of memory`
    fn words(&self, status: Status) -> String {
        // SAFETY: both answer any number with a text that stays where it is.
        let [name, words] = unsafe {
            [(self.functions.error_name)(status), (self.functions.error_words)(status)].map(|text| match text
                .is_null()
            {
                true => "unknown".into(),
                false => CStr::from_ptr(text).to_string_lossy(),
            })
        };
        format!("{name} ({status}): {words}")
    }
}
