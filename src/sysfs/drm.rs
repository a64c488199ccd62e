//! What a GPU's PCI device folder, `/proc/driver/nvidia` and hwmon tell of it.
//!
//! `xgmi_error` is left alone: amdgpu clears the error register when it is read.

use std::collections::BTreeMap;

use probes::{
    gpu::{Errors, Gpu, Hive, throttle},
    inventory,
};

use super::{Dir, ReadError, tolerant::Tolerant};

/// Whether the PCI function is a GPU that this program knows; an error where that can't be told.
pub(crate) fn is_gpu(function: &Dir) -> Result<bool, ReadError> {
    let (vendor, class) = (function.number("vendor")?, function.number("class")?);
    Ok(vendor.zip(class).is_some_and(|(vendor, class)| inventory::is_gpu(vendor, class)))
}

/// Reads one GPU; none where there is no GPU.
pub(crate) fn gpu(sysfs: &Dir, proc: &Dir, pci: &str) -> Result<Option<Gpu>, ReadError> {
    let dir = sysfs.dir("bus/pci/devices").dir(pci);
    if !is_gpu(&dir)? {
        return Ok(None);
    }
    let mut files = Tolerant::of(pci);
    let driver = dir.link_name("driver");
    let module = sysfs.dir("module").dir(driver.as_deref().unwrap_or_default());
    let mut gpu = Gpu {
        pci: pci.to_string(),
        vendor: files.number(&dir, "vendor").unwrap_or_default(),
        device: files.number(&dir, "device").unwrap_or_default(),
        driver_version: driver.as_ref().and_then(|_| files.text(&module, "version")),
        ..Gpu::default()
    };
    match driver.as_deref() {
        Some("amdgpu") => amdgpu(&dir, &mut files, &mut gpu),
        Some("nvidia") => nvidia(&proc.dir("driver/nvidia/gpus").dir(pci), &mut files, &mut gpu),
        Some(_) | None => {}
    }
    gpu.driver = driver;
    gpu.unread = files.unread();
    Ok(Some(gpu))
}

fn amdgpu(dir: &Dir, files: &mut Tolerant, gpu: &mut Gpu) {
    gpu.model = files.text(dir, "product_name");
    gpu.firmware = files.text(dir, "vbios_version");
    gpu.memory_total = files.number(dir, "mem_info_vram_total");
    gpu.memory_used = files.number(dir, "mem_info_vram_used");
    gpu.busy_percent = files.number(dir, "gpu_busy_percent");
    gpu.replays = files.number(dir, "pcie_replay_count");
    gpu.throttle = files.take(dir.bytes("gpu_metrics")).and_then(|bytes| throttle::parse(&bytes));
    gpu.errors = errors(&dir.dir("ras"), files);
    let hive = dir.dir("xgmi_hive_info");
    gpu.hive = files.text(&hive, "xgmi_hive_id").map(|id| {
        let members = files.names(&hive).iter().filter(|name| name.starts_with("node")).count();
        Hive { id, members: u32::try_from(members).unwrap_or(u32::MAX) }
    });
    let monitors = dir.dir("hwmon");
    if let Some(monitor) = files.names(&monitors).first() {
        let monitor = monitors.dir(monitor);
        gpu.temperature = junction(&monitor, files);
        gpu.clock = files.number(&monitor, "freq1_input");
        gpu.power =
            files.number(&monitor, "power1_input").or_else(|| files.number(&monitor, "power1_average"));
    }
}

/// The error counts by block: `umc_err_count` holds `ue: 0` and `ce: 0`.
fn errors(ras: &Dir, files: &mut Tolerant) -> BTreeMap<String, Errors> {
    let mut counts = BTreeMap::new();
    for name in files.names(ras) {
        let Some(block) = name.strip_suffix("_err_count") else { continue };
        let Some(text) = files.text(ras, &name) else { continue };
        match parse_errors(&text) {
            Some(errors) => {
                counts.insert(block.to_string(), errors);
            }
            // While the GPU is being reset the file says so in words.
            None => files.odd(ras, &name, &text),
        }
    }
    counts
}

fn parse_errors(text: &str) -> Option<Errors> {
    let count = |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some(Errors { uncorrectable: count("ue:")?, correctable: count("ce:")? })
}

/// The temperature of the hottest place; chips with one sensor call it edge.
fn junction(monitor: &Dir, files: &mut Tolerant) -> Option<i64> {
    let labels: Vec<(u32, String)> =
        (1..=3).filter_map(|n| Some((n, files.text(monitor, &format!("temp{n}_label"))?))).collect();
    let of = |wanted: &str| labels.iter().find(|(_, label)| label == wanted).map(|(n, _)| *n);
    let sensor = of("junction").or_else(|| of("edge"))?;
    files.text(monitor, &format!("temp{sensor}_input"))?.parse().ok()
}

fn nvidia(dir: &Dir, files: &mut Tolerant, gpu: &mut Gpu) {
    let Some(text) = files.text(dir, "information") else { return };
    let fact = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))?;
        // What the driver doesn't know yet it fills with question marks.
        (!value.contains('?') && value != "Unknown").then(|| value.to_string())
    };
    gpu.model = fact("Model");
    gpu.firmware = fact("Video BIOS");
    gpu.excluded = fact("GPU Excluded").as_deref() == Some("Yes");
}
