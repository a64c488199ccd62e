//! Names of accelerators by device id, for nodes whose driver tells none. From the public PCI id
//! list (pci-ids.ucw.cz), the tables of amdgpu and of NVIDIA's open kernel modules, and AMD's guide to
//! the acceptance of Instinct systems.

use probes::inventory::{AMD, NVIDIA};

/// The name of an accelerator.
pub(super) fn name(vendor: u16, device: u16) -> Option<&'static str> {
    Some(match (vendor, device) {
        (AMD, 0x738c | 0x738e) => "AMD Instinct MI100",
        (AMD, 0x7408) => "AMD Instinct MI250X",
        (AMD, 0x740c) => "AMD Instinct MI250X/MI250",
        (AMD, 0x740f) => "AMD Instinct MI210",
        (AMD, 0x74a0) => "AMD Instinct MI300A",
        (AMD, 0x74a1) => "AMD Instinct MI300X",
        (AMD, 0x74a5) => "AMD Instinct MI325X",
        (AMD, 0x74b5) => "AMD Instinct MI300X VF",
        (AMD, 0x74b9) => "AMD Instinct MI325X VF",
        (AMD, 0x75a0) => "AMD Instinct MI350X",
        (AMD, 0x75a3) => "AMD Instinct MI355X",
        (NVIDIA, 0x20b0) => "NVIDIA A100 SXM4 40GB",
        (NVIDIA, 0x20b2) => "NVIDIA A100 SXM4 80GB",
        (NVIDIA, 0x20b5) => "NVIDIA A100 PCIe 80GB",
        (NVIDIA, 0x20f1) => "NVIDIA A100 PCIe 40GB",
        (NVIDIA, 0x2330) => "NVIDIA H100 SXM5 80GB",
        (NVIDIA, 0x2331) => "NVIDIA H100 PCIe",
        (NVIDIA, 0x2335) => "NVIDIA H200 SXM 141GB",
        (NVIDIA, 0x27b8) => "NVIDIA L4",
        (NVIDIA, 0x2901) => "NVIDIA B200",
        _ => return None,
    })
}
