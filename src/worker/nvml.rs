//! Asks NVML, the library of NVIDIA's driver, for what the driver shows in no file.
//!
//! It is opened for the first GPU that needs it and never closed; all GPUs share it. The name of
//! each call is noted beforehand, as the paths of files are, so one that never returns has a name.

use std::{
    collections::BTreeMap,
    ffi::CString,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use probes::{
    gpu::{
        Errors, Gpu,
        nvidia::{Ecc, Fabric, Facts, Limits, Link, LinkErrors, Nvml, Reason, Refused, Rows},
    },
    lines::Problem,
    settings::Roots,
};

use self::table::{Code, Counter, Device, ErrorType, FieldValue, Location, Policy, Table};
use super::library::{NVIDIA_DRIVER, Search};
use crate::sysfs::Progress;

mod table;

/// The library's name, which has been the same since its first version.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// More links than any GPU has: `NVML_NVLINK_MAX_LINKS` is 36 in CUDA 13.
const MOST_LINKS: u32 = 64;

/// Field ids of `nvml.h`; those of links want the link's number as scope.
mod field {
    /// `NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY`, `_RECOVERY` and `_CRC`: CUDA 11.8, up to Hopper.
    pub(super) const LINK_REPLAY: u32 = 161;
    pub(super) const LINK_RECOVERY: u32 = 162;
    pub(super) const LINK_CRC: u32 = 163;
    /// `NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS`: Blackwell and later.
    pub(super) const LINK_RECOVERY_EVENTS: u32 = 215;
    /// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`: CUDA 12.8.
    pub(super) const RECOVERY_ACTION: u32 = 230;
    /// `NVML_FI_DEV_CLOCKS_EVENT_REASON_…`, in nanoseconds. `SW_POWER_CAP` is
    /// `NVML_FI_DEV_PERF_POLICY_POWER` by another name; the others are of CUDA 12.9.
    pub(super) const HELD_POWER: u32 = 74;
    pub(super) const HELD_THERMAL: u32 = 269;
    pub(super) const HELD_HARDWARE_THERMAL: u32 = 270;
    pub(super) const HELD_POWER_BRAKE: u32 = 271;
}

/// Bits `nvmlClocksEventReason…` and `nvmlClocksThrottleReason…`.
mod reason {
    pub(super) const SW_POWER_CAP: u64 = 0x04;
    pub(super) const HW_SLOWDOWN: u64 = 0x08;
    pub(super) const SW_THERMAL: u64 = 0x20;
    pub(super) const HW_THERMAL: u64 = 0x40;
    pub(super) const HW_POWER_BRAKE: u64 = 0x80;
}

/// NVML, opened when the first GPU needs it.
pub(super) struct Session {
    directories: Vec<PathBuf>,
    /// The GPUs asked for are this machine's.
    ours: bool,
    opened: OnceLock<Result<Table, Nvml>>,
}

impl Session {
    pub(super) fn new(roots: &Roots, directories: &[PathBuf]) -> Session {
        Session {
            directories: directories.to_vec(),
            ours: roots.are_this_machines(),
            opened: OnceLock::new(),
        }
    }

    /// Adds what NVML tells of a GPU that NVIDIA's driver drives.
    pub(super) fn complete(&self, gpu: &mut Gpu, progress: &Progress) {
        progress.at(Path::new(LIBRARY));
        let answer = match self.opened.get_or_init(|| self.open(progress)) {
            Ok(table) => read(table, gpu, progress)
                .map(|facts| Nvml::Told(Box::new(facts)))
                .unwrap_or_else(Nvml::Refused),
            Err(why) => why.clone(),
        };
        gpu.nvml = Some(answer);
    }

    fn open(&self, progress: &Progress) -> Result<Table, Nvml> {
        if self.directories.is_empty() && !self.ours {
            let why =
                "the files read are not those of this machine, so its own NVML would tell of other GPUs";
            return Err(Nvml::NotOpened(why.into()));
        }
        let search = if self.ours {
            Search::new(&self.directories, NVIDIA_DRIVER, &[])
        } else {
            Search::only(&self.directories)
        };
        let library = search.open(&[LIBRARY]).map_err(|why| Nvml::NotOpened(why.to_string()))?;
        let table = Table::of(library.keep());
        match table.init(progress) {
            Ok(()) => Ok(table),
            Err(code) => Err(Nvml::Refused(refused(&table, "nvmlInit_v2", code))),
        }
    }
}

fn refused(table: &Table, call: &str, code: Code) -> Refused {
    let reason = match code {
        Code::GPU_IS_LOST => Reason::Lost,
        Code::RESET_REQUIRED => Reason::ResetRequired,
        Code::INSUFFICIENT_POWER => Reason::PowerCables,
        Code::IRQ_ISSUE => Reason::Interrupts,
        Code::LIB_RM_VERSION_MISMATCH => Reason::VersionMismatch,
        Code::DRIVER_NOT_LOADED => Reason::NoDriver,
        Code::NO_PERMISSION | Code::OPERATING_SYSTEM => Reason::Forbidden,
        Code::NOT_FOUND => Reason::NotFound,
        Code(_) => Reason::Other,
    };
    Refused { call: call.into(), reason, words: table.words(code) }
}

/// Reads everything of one GPU.
fn read(table: &Table, gpu: &mut Gpu, progress: &Progress) -> Result<Facts, Refused> {
    let refusal = |code| refused(table, "nvmlDeviceGetHandleByPciBusId_v2", code);
    let address = CString::new(gpu.pci.as_str()).map_err(|_| refusal(Code::INVALID_ARGUMENT))?;
    let device = table.device(&address, progress).map_err(refusal)?;
    let mut asking = Asking { table, part: &gpu.pci, progress, failed: Vec::new() };
    let ask = &mut asking;

    let driver_version = ask.take(table.driver_version(progress))?;
    let model = ask.take(device.name())?;
    let firmware = ask.take(device.vbios_version())?;
    let uuid = ask.take(device.uuid())?;
    let memory = match ask.take(device.memory_v2())? {
        Some(memory) => Some((memory.total, memory.used)),
        None => ask.take(device.memory())?.map(|memory| (memory.total, memory.used)),
    };
    let busy = ask.take(device.utilization())?.map(|rates| rates.gpu);
    let temperature = match ask.take(device.temperature_v())? {
        Some(celsius) => Some(celsius),
        None => ask.take(device.temperature())?,
    };
    let power = ask.take(device.power())?;
    let clock = ask.take(device.clock())?;
    let replays = ask.take(device.pcie_replays())?;
    let partitioned = ask.take(device.mig_mode())?;
    let persistence = ask.take(device.persistence())?;
    let ecc = ask.ecc(&device)?;
    let errors = ask.errors(&device)?;
    let lifetime = ask.both(|kind| device.ecc_errors(kind, Counter::Aggregate))?;
    let rows = ask.take(device.remapped_rows())?;
    let retirement_pending = ask.take(device.retirement_pending())?;
    let reasons = match ask.take(device.clocks_event_reasons())? {
        Some(reasons) => Some(reasons),
        None => ask.take(device.clocks_throttle_reasons())?,
    };
    let held_for = ask.held_for(&device)?;
    let links = ask.links(&device)?;
    let link_errors = ask.link_errors(&device, &links)?;
    let fabric = ask.take(device.fabric())?;
    let [recovery_action] = ask.fields(&device, [(field::RECOVERY_ACTION, 0)])?;
    let failed = asking.failed;

    gpu.driver_version = driver_version.or(gpu.driver_version.take());
    gpu.model = model.or(gpu.model.take());
    gpu.firmware = firmware.or(gpu.firmware.take());
    (gpu.memory_total, gpu.memory_used) = memory.unzip();
    gpu.busy_percent = busy;
    gpu.temperature = temperature.map(|celsius| celsius * 1000);
    gpu.power = power.map(|milliwatts| milliwatts * 1000);
    gpu.clock = clock.map(|megahertz| megahertz * 1_000_000);
    gpu.replays = replays;
    gpu.partitioned = partitioned;
    gpu.errors = errors;
    Ok(Facts {
        uuid,
        persistence,
        ecc,
        lifetime,
        rows: rows.map(|(correctable, uncorrectable, pending, failed)| Rows {
            correctable,
            uncorrectable,
            pending,
            failed,
        }),
        retirement_pending,
        held: reasons.map(|reasons| Limits {
            power: reasons & reason::SW_POWER_CAP != 0,
            thermal: reasons & reason::SW_THERMAL != 0,
            hardware_thermal: reasons & reason::HW_THERMAL != 0,
            power_brake: reasons & reason::HW_POWER_BRAKE != 0,
        }),
        slowdown: reasons.map(|reasons| reasons & reason::HW_SLOWDOWN != 0),
        held_for,
        links,
        link_errors,
        fabric: fabric.map(|fabric| Fabric { state: fabric.state, status: fabric.status }),
        recovery_action,
        failed,
    })
}

/// One GPU being asked, call by call.
struct Asking<'a> {
    table: &'a Table,
    part: &'a str,
    /// Names the call that was made last.
    progress: &'a Progress,
    failed: Vec<Problem>,
}

impl Asking<'_> {
    /// Takes an answer: absent where driver or GPU do not support the question, and a note where
    /// it failed otherwise. A GPU that is lost ends the asking.
    fn take<T>(&mut self, answer: Result<T, Code>) -> Result<Option<T>, Refused> {
        let code = match answer {
            Ok(value) => return Ok(Some(value)),
            Err(code) => code,
        };
        match code {
            // An argument or a structure that the driver does not know yet, or knows no more, is
            // as good as a function that it has not.
            Code::NOT_SUPPORTED
            | Code::FUNCTION_NOT_FOUND
            | Code::INVALID_ARGUMENT
            | Code::ARGUMENT_VERSION_MISMATCH
            | Code::DEPRECATED
            | Code::NO_DATA
            | Code::NOT_READY => Ok(None),
            Code::GPU_IS_LOST | Code::RESET_REQUIRED => Err(refused(self.table, &self.call(), code)),
            Code(_) => {
                let path = self.progress.path().display().to_string();
                self.failed.push(Problem { part: self.part.into(), path, error: self.table.words(code) });
                Ok(None)
            }
        }
    }

    fn call(&self) -> String {
        self.progress.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Values of fields, each with its scope, in one call.
    fn fields<const N: usize>(
        &mut self,
        device: &Device<'_>,
        fields: [(u32, u32); N],
    ) -> Result<[Option<u64>; N], Refused> {
        let mut asked = fields.map(|(field, scope)| FieldValue::of(field, scope));
        if self.take(device.fields(&mut asked))?.is_none() {
            return Ok([None; N]);
        }
        let mut values = [None; N];
        for ((value, answer), (field, _)) in values.iter_mut().zip(&asked).zip(fields) {
            self.progress.at(&Path::new(LIBRARY).join(format!("nvmlDeviceGetFieldValues, field {field}")));
            *value = self.take(answer.number())?;
        }
        Ok(values)
    }

    fn ecc(&mut self, device: &Device<'_>) -> Result<Option<Ecc>, Refused> {
        let Some((on, next)) = self.take(device.ecc_mode())? else { return Ok(None) };
        Ok(Some(Ecc { on, next, by_default: self.take(device.default_ecc_mode())? }))
    }

    /// Counts since the driver was loaded: by place from Turing on, of the whole GPU before.
    fn errors(&mut self, device: &Device<'_>) -> Result<BTreeMap<String, Errors>, Refused> {
        let mut errors = BTreeMap::new();
        for (name, place) in [("dram", Location::Dram), ("sram", Location::Sram)] {
            let found = self.both(|kind| device.ecc_errors_at(kind, Counter::Volatile, place))?;
            errors.extend(found.map(|found| (name.to_string(), found)));
        }
        // Where only one of the two is told, the rest is missing.
        if errors.len() < 2 {
            let found = self.both(|kind| device.ecc_errors(kind, Counter::Volatile))?;
            errors = found.map(|found| ("all".to_string(), found)).into_iter().collect();
        }
        Ok(errors)
    }

    /// Both kinds of a counter of errors.
    fn both(&mut self, count: impl Fn(ErrorType) -> Result<u64, Code>) -> Result<Option<Errors>, Refused> {
        let uncorrectable = self.take(count(ErrorType::Uncorrected))?;
        let correctable = self.take(count(ErrorType::Corrected))?;
        Ok(uncorrectable
            .zip(correctable)
            .map(|(uncorrectable, correctable)| Errors { uncorrectable, correctable }))
    }

    fn held_for(&mut self, device: &Device<'_>) -> Result<Limits<Option<u64>>, Refused> {
        let fields =
            [field::HELD_POWER, field::HELD_THERMAL, field::HELD_HARDWARE_THERMAL, field::HELD_POWER_BRAKE];
        let [mut power, mut thermal, hardware_thermal, power_brake] =
            self.fields(device, fields.map(|field| (field, 0)))?;
        if power.is_none() {
            power = self.take(device.violation(Policy::Power))?;
        }
        if thermal.is_none() {
            thermal = self.take(device.violation(Policy::Thermal))?;
        }
        Ok(Limits { power, thermal, hardware_thermal, power_brake })
    }

    fn links(&mut self, device: &Device<'_>) -> Result<Vec<Link>, Refused> {
        let mut links = Vec::new();
        for number in 0..MOST_LINKS {
            let state = device.link_active(number);
            // There are no links of this number and above, or none at all.
            if state == Err(Code::INVALID_ARGUMENT) || state == Err(Code::FUNCTION_NOT_FOUND) {
                break;
            }
            links.extend(self.take(state)?.map(|active| Link { number, active }));
        }
        Ok(links)
    }

    fn link_errors(&mut self, device: &Device<'_>, links: &[Link]) -> Result<LinkErrors, Refused> {
        let mut sums = LinkErrors::default();
        for link in links {
            let [mut replay, mut recovery, mut crc, events] = self.fields(
                device,
                [field::LINK_REPLAY, field::LINK_RECOVERY, field::LINK_CRC, field::LINK_RECOVERY_EVENTS]
                    .map(|field| (field, link.number)),
            )?;
            recovery = recovery.or(events);
            // NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT and _CRC_DATA, for older drivers.
            if replay.is_none() && recovery.is_none() && crc.is_none() {
                replay = self.take(device.link_errors(link.number, 0))?;
                recovery = self.take(device.link_errors(link.number, 1))?;
                let flit = self.take(device.link_errors(link.number, 2))?;
                let data = self.take(device.link_errors(link.number, 3))?;
                crc = flit.zip(data).map(|(flit, data)| flit.saturating_add(data));
            }
            let add = |sum: &mut Option<u64>, count: Option<u64>| {
                if let Some(count) = count {
                    *sum = Some(sum.unwrap_or_default().saturating_add(count));
                }
            };
            add(&mut sums.replay, replay);
            add(&mut sums.recovery, recovery);
            add(&mut sums.crc, crc);
        }
        Ok(sums)
    }
}
