//! The functions of NVML that are called: their C signatures, their structures, and their return codes.
//!
//! All of it is as in `nvml.h` of CUDA 13 (github.com/NVIDIA/go-nvml, `gen/nvml/nvml.h`, whose
//! `NVML_API_VERSION` is 13). NVML keeps its symbols from one driver to the next, and gives a
//! changed function a new name. What a driver has no symbol for answers as what a GPU does not
//! support.
#![expect(unsafe_code, reason = "NVML is a C library")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    path::Path,
};

use libloading::Library;

use crate::sysfs::Progress;

/// `nvmlDevice_t`, a pointer to what only NVML knows.
type Handle = *mut c_void;

/// `nvmlReturn_t`: how a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) c_int);

impl Code {
    const SUCCESS: Code = Code(0);
    pub(super) const INVALID_ARGUMENT: Code = Code(2);
    pub(super) const NOT_SUPPORTED: Code = Code(3);
    pub(super) const NO_PERMISSION: Code = Code(4);
    pub(super) const NOT_FOUND: Code = Code(6);
    pub(super) const INSUFFICIENT_POWER: Code = Code(8);
    pub(super) const DRIVER_NOT_LOADED: Code = Code(9);
    pub(super) const IRQ_ISSUE: Code = Code(11);
    pub(super) const FUNCTION_NOT_FOUND: Code = Code(13);
    pub(super) const GPU_IS_LOST: Code = Code(15);
    pub(super) const RESET_REQUIRED: Code = Code(16);
    pub(super) const OPERATING_SYSTEM: Code = Code(17);
    pub(super) const LIB_RM_VERSION_MISMATCH: Code = Code(18);
    pub(super) const NO_DATA: Code = Code(21);
    pub(super) const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
    pub(super) const DEPRECATED: Code = Code(26);
    pub(super) const NOT_READY: Code = Code(27);

    fn check<T>(self, value: T) -> Result<T, Code> {
        if self == Code::SUCCESS { Ok(value) } else { Err(self) }
    }
}

/// `nvmlMemoryErrorType_t`
#[derive(Clone, Copy, Debug)]
pub(super) enum ErrorType {
    Corrected = 0,
    Uncorrected = 1,
}

/// `nvmlEccCounterType_t`
#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    /// Reset each time the driver loads.
    Volatile = 0,
    /// Of the device's life.
    Aggregate = 1,
}

/// `nvmlMemoryLocation_t`, those of Turing and later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    Dram = 2,
    Sram = 7,
}

/// `nvmlPerfPolicyType_t`
#[derive(Clone, Copy, Debug)]
pub(super) enum Policy {
    Power = 0,
    Thermal = 1,
}

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) total: c_ulonglong,
    pub(super) free: c_ulonglong,
    /// What the driver keeps for itself included.
    pub(super) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryV2 {
    version: c_uint,
    pub(super) total: c_ulonglong,
    pub(super) reserved: c_ulonglong,
    pub(super) free: c_ulonglong,
    /// What the driver keeps for itself not included, as `nvidia-smi` shows it.
    pub(super) used: c_ulonglong,
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utilization {
    pub(super) gpu: c_uint,
    pub(super) memory: c_uint,
}

/// `nvmlTemperature_v1_t`, in degrees Celsius.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Temperature {
    version: c_uint,
    /// `nvmlTemperatureSensors_t`; 0 is the GPU's die.
    sensor: c_uint,
    temperature: c_int,
}

/// `nvmlViolationTime_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ViolationTime {
    /// In microseconds.
    reference: c_ulonglong,
    /// In nanoseconds.
    violation: c_ulonglong,
}

/// `nvmlFieldValue_t`. The value is a union of numbers of at most 8 bytes; here it is its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldValue {
    /// Which field: `NVML_FI_…`.
    field: c_uint,
    /// Of which link, where the field is one of a link.
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    /// `nvmlValueType_t`
    value_type: c_int,
    code: c_int,
    value: Value,
}

/// `nvmlValue_t`
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
struct Value([u8; 8]);

impl FieldValue {
    /// A question for a field.
    pub(super) fn of(field: u32, scope: u32) -> FieldValue {
        // What NVML leaves untouched is not an answer.
        FieldValue { field, scope, code: Code::FUNCTION_NOT_FOUND.0, ..FieldValue::default() }
    }

    /// The number; a type that is no count is as good as none.
    pub(super) fn number(&self) -> Result<u64, Code> {
        let bytes = self.value.0;
        let low = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let number = match self.value_type {
            // NVML_VALUE_TYPE_UNSIGNED_INT
            1 => Some(u64::from(u32::from_ne_bytes(low))),
            // NVML_VALUE_TYPE_UNSIGNED_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: both 8 bytes on 64-bit Linux
            2 | 3 => Some(u64::from_ne_bytes(bytes)),
            // NVML_VALUE_TYPE_SIGNED_LONG_LONG
            4 => u64::try_from(i64::from_ne_bytes(bytes)).ok(),
            // NVML_VALUE_TYPE_SIGNED_INT
            5 => u64::try_from(i32::from_ne_bytes(low)).ok(),
            // NVML_VALUE_TYPE_UNSIGNED_SHORT
            6 => Some(u64::from(u16::from_ne_bytes([bytes[0], bytes[1]]))),
            // NVML_VALUE_TYPE_DOUBLE, and what later headers add.
            _ => None,
        };
        Code(self.code).check(number)?.ok_or(Code::NO_DATA)
    }
}

/// `nvmlGpuFabricInfo_v2_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    /// `nvmlReturn_t` of the registration, once it has completed.
    pub(super) status: c_int,
    clique: c_uint,
    /// `NVML_GPU_FABRIC_STATE_…`
    pub(super) state: u8,
    health: c_uint,
}

/// What `NVML_STRUCT_VERSION` makes of a structure and its version.
const fn versioned<T>(version: c_uint) -> c_uint {
    #[expect(clippy::cast_possible_truncation, reason = "the structures are small")]
    let size = size_of::<T>() as c_uint;
    size | version << 24
}

/// Declares the table: each function with its name in the library and its C parameters. All return
/// `nvmlReturn_t`.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($parameter:ty),*);)*) => {
        /// NVML's functions, as far as this driver's library has them.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "the names are the library's")]
        pub(super) struct Table {
            /// `const char *nvmlErrorString(nvmlReturn_t result)`
            nvmlErrorString: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
            $($(#[$doc])* $name: Option<unsafe extern "C" fn($($parameter),*) -> c_int>,)*
        }

        impl Table {
            /// Looks the functions up. The library is never closed: a thread that the driver
            /// never lets go may still be in it.
            pub(super) fn of(library: &'static Library) -> Table {
                Table {
                    // SAFETY: the type is the function's in nvml.h.
                    nvmlErrorString: unsafe { library.get(c"nvmlErrorString") }.ok().map(|symbol| *symbol),
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the function's in nvml.h, as its comment has it.
                        unsafe { library.get(name) }.ok().map(|symbol| *symbol)
                    },)*
                }
            }
        }
    };
}

functions! {
    /// `nvmlInit_v2(void)`; driver 319 and later.
    nvmlInit_v2();
    /// `nvmlSystemGetDriverVersion(char *version, unsigned int length)`
    nvmlSystemGetDriverVersion(*mut c_char, c_uint);
    /// `nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)`; driver 319 and later.
    nvmlDeviceGetHandleByPciBusId_v2(*const c_char, *mut Handle);
    /// `nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)`
    nvmlDeviceGetName(Handle, *mut c_char, c_uint);
    /// `nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)`
    nvmlDeviceGetUUID(Handle, *mut c_char, c_uint);
    /// `nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)`
    nvmlDeviceGetVbiosVersion(Handle, *mut c_char, c_uint);
    /// `nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)`
    nvmlDeviceGetMemoryInfo(Handle, *mut Memory);
    /// `nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)`; CUDA 11.6, driver 510, and later.
    nvmlDeviceGetMemoryInfo_v2(Handle, *mut MemoryV2);
    /// `nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)`
    nvmlDeviceGetUtilizationRates(Handle, *mut Utilization);
    /// `nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)`;
    /// deprecated since CUDA 13, driver 580.
    nvmlDeviceGetTemperature(Handle, c_int, *mut c_uint);
    /// `nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)`; CUDA 12.8, driver 570, and later.
    nvmlDeviceGetTemperatureV(Handle, *mut Temperature);
    /// `nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)`, in milliwatts.
    nvmlDeviceGetPowerUsage(Handle, *mut c_uint);
    /// `nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)`, in MHz.
    nvmlDeviceGetClockInfo(Handle, c_int, *mut c_uint);
    /// `nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)`
    nvmlDeviceGetPersistenceMode(Handle, *mut c_uint);
    /// `nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)`
    nvmlDeviceGetEccMode(Handle, *mut c_uint, *mut c_uint);
    /// `nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)`; CUDA 11.7, driver 515, and later.
    nvmlDeviceGetDefaultEccMode(Handle, *mut c_uint);
    /// `nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)`; driver 450 and later.
    nvmlDeviceGetMigMode(Handle, *mut c_uint, *mut c_uint);
    /// `nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
    /// nvmlEccCounterType_t counterType, unsigned long long *eccCounts)`
    nvmlDeviceGetTotalEccErrors(Handle, c_int, c_int, *mut c_ulonglong);
    /// `nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
    /// nvmlEccCounterType_t counterType, nvmlMemoryLocation_t locationType, unsigned long long *count)`
    nvmlDeviceGetMemoryErrorCounter(Handle, c_int, c_int, c_int, *mut c_ulonglong);
    /// `nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows, unsigned int *uncRows,
    /// unsigned int *isPending, unsigned int *failureOccurred)`; Ampere, driver 450, and later.
    nvmlDeviceGetRemappedRows(Handle, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint);
    /// `nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *isPending)`; before Ampere.
    nvmlDeviceGetRetiredPagesPendingStatus(Handle, *mut c_uint);
    /// `nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value)`
    nvmlDeviceGetPcieReplayCounter(Handle, *mut c_uint);
    /// `nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *clocksEventReasons)`;
    /// CUDA 12.2, driver 535, and later.
    nvmlDeviceGetCurrentClocksEventReasons(Handle, *mut c_ulonglong);
    /// `nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *clocksThrottleReasons)`;
    /// the name of the same before.
    nvmlDeviceGetCurrentClocksThrottleReasons(Handle, *mut c_ulonglong);
    /// `nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t perfPolicyType,
    /// nvmlViolationTime_t *violTime)`; deprecated since CUDA 13, driver 580.
    nvmlDeviceGetViolationStatus(Handle, c_int, *mut ViolationTime);
    /// `nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)`
    nvmlDeviceGetFieldValues(Handle, c_int, *mut FieldValue);
    /// `nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *isActive)`
    nvmlDeviceGetNvLinkState(Handle, c_uint, *mut c_uint);
    /// `nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
    /// nvmlNvLinkErrorCounter_t counter, unsigned long long *counterValue)`
    nvmlDeviceGetNvLinkErrorCounter(Handle, c_uint, c_int, *mut c_ulonglong);
    /// `nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *gpuFabricInfo)`; CUDA 12.4, driver 550, and later.
    nvmlDeviceGetGpuFabricInfoV(Handle, *mut FabricInfo);
}

/// Long enough for each text: `NVML_DEVICE_UUID_V2_BUFFER_SIZE` and
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE` are 96, the others are less.
const TEXT: usize = 96;

/// Calls a function of the table by name, with what comes before its last parameter, and gives what
/// it wrote there. The call is noted first, so that one that never returns has a name.
macro_rules! call {
    ($nvml:expr, $progress:expr, $name:ident($($argument:expr),*) -> $initial:expr) => {{
        note($progress, stringify!($name));
        let function = $nvml.$name.ok_or(Code::FUNCTION_NOT_FOUND)?;
        let mut value = $initial;
        // SAFETY: the arguments are of the types in nvml.h; the pointer is to a value of the type
        // that the function writes, and lives until it returns. A handle came from this library.
        let code = Code(unsafe { function($($argument,)* &raw mut value) });
        code.check(value)
    }};
}

fn note(progress: &Progress, name: &str) {
    progress.at(&Path::new(super::LIBRARY).join(name));
}

fn text_of(write: impl FnOnce(*mut c_char, c_uint) -> Code) -> Result<String, Code> {
    let mut bytes = [0_u8; TEXT];
    #[expect(clippy::cast_possible_truncation, reason = "96")]
    write(bytes.as_mut_ptr().cast(), TEXT as c_uint).check(())?;
    let text = CStr::from_bytes_until_nul(&bytes).map_err(|_| Code::NO_DATA)?;
    Ok(text.to_string_lossy().trim().to_string())
}

impl Table {
    /// Must come before all others.
    pub(super) fn init(&self, progress: &Progress) -> Result<(), Code> {
        note(progress, "nvmlInit_v2");
        let function = self.nvmlInit_v2.ok_or(Code::FUNCTION_NOT_FOUND)?;
        // SAFETY: it has no parameters.
        Code(unsafe { function() }).check(())
    }

    /// What NVML calls a return code.
    pub(super) fn words(&self, code: Code) -> String {
        let known = self.nvmlErrorString.and_then(|function| {
            // SAFETY: any number may be asked for; the text is NVML's own and is never freed.
            let text = unsafe { function(code.0) };
            // SAFETY: it is null or ends with a zero byte.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        format!("{} (NVML error {})", known.unwrap_or_else(|| "no words for it".into()), code.0)
    }

    pub(super) fn driver_version(&self, progress: &Progress) -> Result<String, Code> {
        note(progress, "nvmlSystemGetDriverVersion");
        let function = self.nvmlSystemGetDriverVersion.ok_or(Code::FUNCTION_NOT_FOUND)?;
        // SAFETY: the buffer is as long as it is said to be.
        text_of(|text, length| Code(unsafe { function(text, length) }))
    }

    /// The GPU at a PCI address. Where persistence mode is off, this may initialise the GPU.
    pub(super) fn device<'a>(&'a self, pci: &CStr, progress: &'a Progress) -> Result<Device<'a>, Code> {
        let handle =
            call!(self, progress, nvmlDeviceGetHandleByPciBusId_v2(pci.as_ptr()) -> std::ptr::null_mut())?;
        Ok(Device { nvml: self, handle, progress })
    }
}

/// A GPU that NVML has found. Each method is the call of its name.
pub(super) struct Device<'a> {
    nvml: &'a Table,
    handle: Handle,
    progress: &'a Progress,
}

impl Device<'_> {
    pub(super) fn name(&self) -> Result<String, Code> {
        note(self.progress, "nvmlDeviceGetName");
        self.text(self.nvml.nvmlDeviceGetName)
    }

    pub(super) fn uuid(&self) -> Result<String, Code> {
        note(self.progress, "nvmlDeviceGetUUID");
        self.text(self.nvml.nvmlDeviceGetUUID)
    }

    pub(super) fn vbios_version(&self) -> Result<String, Code> {
        note(self.progress, "nvmlDeviceGetVbiosVersion");
        self.text(self.nvml.nvmlDeviceGetVbiosVersion)
    }

    fn text(
        &self,
        function: Option<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int>,
    ) -> Result<String, Code> {
        let function = function.ok_or(Code::FUNCTION_NOT_FOUND)?;
        // SAFETY: the handle came from this library, and the buffer is as long as it is said to be.
        text_of(|text, length| Code(unsafe { function(self.handle, text, length) }))
    }

    pub(super) fn memory(&self) -> Result<Memory, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetMemoryInfo(self.handle) -> Memory::default())
    }

    pub(super) fn memory_v2(&self) -> Result<MemoryV2, Code> {
        let asked = MemoryV2 { version: versioned::<MemoryV2>(2), ..MemoryV2::default() };
        call!(self.nvml, self.progress, nvmlDeviceGetMemoryInfo_v2(self.handle) -> asked)
    }

    pub(super) fn utilization(&self) -> Result<Utilization, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetUtilizationRates(self.handle) -> Utilization::default())
    }

    /// Of the GPU's die, in degrees Celsius.
    pub(super) fn temperature(&self) -> Result<i64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetTemperature(self.handle, 0) -> 0).map(i64::from)
    }

    /// The same by the function that replaced it.
    pub(super) fn temperature_v(&self) -> Result<i64, Code> {
        let asked = Temperature { version: versioned::<Temperature>(1), ..Temperature::default() };
        call!(self.nvml, self.progress, nvmlDeviceGetTemperatureV(self.handle) -> asked)
            .map(|told| told.temperature.into())
    }

    /// In milliwatts.
    pub(super) fn power(&self) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetPowerUsage(self.handle) -> 0).map(u64::from)
    }

    /// Of the multiprocessors (`NVML_CLOCK_SM` is 1), in megahertz.
    pub(super) fn clock(&self) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetClockInfo(self.handle, 1) -> 0).map(u64::from)
    }

    pub(super) fn persistence(&self) -> Result<bool, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetPersistenceMode(self.handle) -> 0).map(|mode| mode == 1)
    }

    /// Whether it is on now, and after the next reset.
    pub(super) fn ecc_mode(&self) -> Result<(bool, bool), Code> {
        let mut now = 0;
        let next = call!(self.nvml, self.progress, nvmlDeviceGetEccMode(self.handle, &raw mut now) -> 0)?;
        Ok((now == 1, next == 1))
    }

    pub(super) fn default_ecc_mode(&self) -> Result<bool, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetDefaultEccMode(self.handle) -> 0).map(|mode| mode == 1)
    }

    /// Whether the GPU is partitioned now.
    pub(super) fn mig_mode(&self) -> Result<bool, Code> {
        let mut now = 0;
        call!(self.nvml, self.progress, nvmlDeviceGetMigMode(self.handle, &raw mut now) -> 0)?;
        Ok(now == 1)
    }

    pub(super) fn ecc_errors(&self, kind: ErrorType, counter: Counter) -> Result<u64, Code> {
        let (kind, counter) = (kind as c_int, counter as c_int);
        call!(self.nvml, self.progress, nvmlDeviceGetTotalEccErrors(self.handle, kind, counter) -> 0)
    }

    pub(super) fn ecc_errors_at(
        &self,
        kind: ErrorType,
        counter: Counter,
        place: Location,
    ) -> Result<u64, Code> {
        let (kind, counter, place) = (kind as c_int, counter as c_int, place as c_int);
        call!(self.nvml, self.progress, nvmlDeviceGetMemoryErrorCounter(self.handle, kind, counter, place) -> 0)
    }

    /// Rows remapped for correctable and for uncorrectable errors, whether one is pending, and
    /// whether one ever failed.
    pub(super) fn remapped_rows(&self) -> Result<(u32, u32, bool, bool), Code> {
        let (mut correctable, mut uncorrectable, mut pending) = (0, 0, 0);
        let failed = call!(self.nvml, self.progress, nvmlDeviceGetRemappedRows(
            self.handle, &raw mut correctable, &raw mut uncorrectable, &raw mut pending
        ) -> 0)?;
        Ok((correctable, uncorrectable, pending != 0, failed != 0))
    }

    pub(super) fn retirement_pending(&self) -> Result<bool, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetRetiredPagesPendingStatus(self.handle) -> 0)
            .map(|pending| pending == 1)
    }

    pub(super) fn pcie_replays(&self) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetPcieReplayCounter(self.handle) -> 0).map(u64::from)
    }

    /// Bits `nvmlClocksEventReason…`.
    pub(super) fn clocks_event_reasons(&self) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetCurrentClocksEventReasons(self.handle) -> 0)
    }

    /// The same by its name of old.
    pub(super) fn clocks_throttle_reasons(&self) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetCurrentClocksThrottleReasons(self.handle) -> 0)
    }

    /// For how long a policy has held the clocks back, in nanoseconds.
    pub(super) fn violation(&self, policy: Policy) -> Result<u64, Code> {
        let asked = ViolationTime::default();
        call!(self.nvml, self.progress, nvmlDeviceGetViolationStatus(self.handle, policy as c_int) -> asked)
            .map(|told| told.violation)
    }

    /// Answers many fields with one call; each says how it went.
    pub(super) fn fields(&self, asked: &mut [FieldValue]) -> Result<(), Code> {
        note(self.progress, "nvmlDeviceGetFieldValues");
        let function = self.nvml.nvmlDeviceGetFieldValues.ok_or(Code::FUNCTION_NOT_FOUND)?;
        let count = c_int::try_from(asked.len()).map_err(|_| Code::INVALID_ARGUMENT)?;
        // SAFETY: the handle came from this library, and there are as many values as is said.
        Code(unsafe { function(self.handle, count, asked.as_mut_ptr()) }).check(())
    }

    pub(super) fn link_active(&self, link: u32) -> Result<bool, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetNvLinkState(self.handle, link) -> 0)
            .map(|state| state == 1)
    }

    /// `counter` is one of `nvmlNvLinkErrorCounter_t`.
    pub(super) fn link_errors(&self, link: u32, counter: i32) -> Result<u64, Code> {
        call!(self.nvml, self.progress, nvmlDeviceGetNvLinkErrorCounter(self.handle, link, counter) -> 0)
    }

    pub(super) fn fabric(&self) -> Result<FabricInfo, Code> {
        let asked = FabricInfo { version: versioned::<FabricInfo>(2), ..FabricInfo::default() };
        call!(self.nvml, self.progress, nvmlDeviceGetGpuFabricInfoV(self.handle) -> asked)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Sizes and offsets as gcc 12 on x86-64 gives them for nvml.h of CUDA 13; tests/fixtures/nvml
    /// asserts the same of its own declarations when it is compiled.
    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        let sizes = [
            ("nvmlMemory_t", size_of::<Memory>(), 24),
            ("nvmlMemory_v2_t", size_of::<MemoryV2>(), 40),
            ("nvmlUtilization_t", size_of::<Utilization>(), 8),
            ("nvmlTemperature_v1_t", size_of::<Temperature>(), 12),
            ("nvmlViolationTime_t", size_of::<ViolationTime>(), 16),
            ("nvmlFieldValue_t", size_of::<FieldValue>(), 40),
            ("nvmlGpuFabricInfo_v2_t", size_of::<FabricInfo>(), 36),
            ("nvmlMemory_v2_t.total", offset_of!(MemoryV2, total), 8),
            ("nvmlMemory_v2_t.used", offset_of!(MemoryV2, used), 32),
            ("nvmlTemperature_v1_t.temperature", offset_of!(Temperature, temperature), 8),
            ("nvmlViolationTime_t.violationTime", offset_of!(ViolationTime, violation), 8),
            ("nvmlFieldValue_t.scopeId", offset_of!(FieldValue, scope), 4),
            ("nvmlFieldValue_t.timestamp", offset_of!(FieldValue, timestamp), 8),
            ("nvmlFieldValue_t.latencyUsec", offset_of!(FieldValue, latency), 16),
            ("nvmlFieldValue_t.valueType", offset_of!(FieldValue, value_type), 24),
            ("nvmlFieldValue_t.nvmlReturn", offset_of!(FieldValue, code), 28),
            ("nvmlFieldValue_t.value", offset_of!(FieldValue, value), 32),
            ("nvmlGpuFabricInfo_v2_t.clusterUuid", offset_of!(FabricInfo, cluster), 4),
            ("nvmlGpuFabricInfo_v2_t.status", offset_of!(FabricInfo, status), 20),
            ("nvmlGpuFabricInfo_v2_t.cliqueId", offset_of!(FabricInfo, clique), 24),
            ("nvmlGpuFabricInfo_v2_t.state", offset_of!(FabricInfo, state), 28),
            ("nvmlGpuFabricInfo_v2_t.healthMask", offset_of!(FabricInfo, health), 32),
        ];
        for (what, ours, theirs) in sizes {
            assert_eq!(ours, theirs, "{what}");
        }
        assert_eq!(versioned::<MemoryV2>(2), 0x0200_0028, "nvmlMemory_v2");
        assert_eq!(versioned::<Temperature>(1), 0x0100_000c, "nvmlTemperature_v1");
        assert_eq!(versioned::<FabricInfo>(2), 0x0200_0024, "nvmlGpuFabricInfo_v2");
    }

    #[test]
    fn a_field_is_a_number_of_its_type_or_none() {
        let value = |value_type, bytes: [u8; 8], code| FieldValue {
            value_type,
            value: Value(bytes),
            code,
            ..FieldValue::default()
        };
        let ones = [0xff; 8];
        let table = [
            (value(1, ones, 0), Ok(u64::from(u32::MAX))),
            (value(2, ones, 0), Ok(u64::MAX)),
            (value(3, ones, 0), Ok(u64::MAX)),
            (value(4, 7_i64.to_ne_bytes(), 0), Ok(7)),
            (value(4, ones, 0), Err(Code::NO_DATA)),
            (value(5, ones, 0), Err(Code::NO_DATA)),
            (value(6, ones, 0), Ok(u64::from(u16::MAX))),
            (value(0, 1.5_f64.to_ne_bytes(), 0), Err(Code::NO_DATA)),
            (value(99, ones, 0), Err(Code::NO_DATA)),
            (value(3, [0; 8], 3), Err(Code::NOT_SUPPORTED)),
            (FieldValue::of(94, 0), Err(Code::FUNCTION_NOT_FOUND)),
        ];
        for (field, want) in table {
            assert_eq!(field.number(), want, "{field:?}");
        }
    }
}
