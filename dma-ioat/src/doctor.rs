//! Diagnosis of the requirements of I/OAT engines: channels, drivers, libraries, memory, rights.

use std::path::PathBuf;

use dma_core::Finding;
use dma_vendor::host::pci::Function;
use dma_vendor::{LibraryReport, absent_calls};
use spdk_sys::{Library, SPDK};

use crate::env;

/// Minimum amount of memory for DMA, in bytes.
const LEAST: u64 = 64 << 20;

pub(crate) fn findings() -> Vec<Finding> {
    let functions = crate::device::functions();
    let mut findings = of_devices(&functions);
    let outcome = Library::open();
    let loader = LibraryReport::of(&SPDK, INSTALL, outcome.as_ref().err());
    findings.extend(loader.needed());
    let install = "name the folder of the DPDK that this SPDK was built with in LD_LIBRARY_PATH (SPDK's own is built in spdk/dpdk/build/lib)";
    findings.push(loader.dependency("librte_eal.so", install));
    match outcome {
        Ok(library) => {
            findings.push(loads(&library));
            findings.extend(dpdk(&library));
        }
        Err(e) => {
            let fix = loader.setting().unwrap_or_else(|| e.remedy(&SPDK));
            findings.push(Finding::bad(LOADS, e.to_string(), fix));
        }
    }
    findings.extend([
        dma_vendor::host::huge_pages(LEAST),
        dma_vendor::host::iommu(),
        dma_vendor::host::memlock(LEAST),
    ]);
    findings.extend(rights(&functions));
    findings
}

fn of_devices(functions: &[Function]) -> Vec<Finding> {
    if functions.is_empty() {
        return vec![Finding::bad(
            "I/OAT channel",
            "no I/OAT function on the PCI bus",
            "use an Intel Xeon with I/OAT (up to Ice Lake), and enable I/OAT in the BIOS. `sim:profile=ioat` simulates one",
        )];
    }
    functions.iter().map(of_device).collect()
}

fn of_device(function: &Function) -> Finding {
    let address = function.address;
    let what = format!("I/OAT channel {address}");
    let bind = format!(
        "bind it to vfio-pci: SPDK's `sudo scripts/setup.sh`, or `echo vfio-pci | sudo tee /sys/bus/pci/devices/{address}/driver_override; echo {address} | sudo tee /sys/bus/pci/drivers_probe`"
    );
    match function.driver.as_deref() {
        Some("vfio-pci" | "uio_pci_generic" | "igb_uio") => Finding::ok(what, function.to_string()),
        Some(other) => Finding::bad(
            what,
            format!("bound to the driver {other}"),
            format!("`echo {address} | sudo tee /sys/bus/pci/drivers/{other}/unbind`; then {bind}"),
        ),
        None => Finding::bad(what, "no driver", bind),
    }
}

/// Checks that this process may open the devices that are bound to vfio-pci. If there is none, checks that
/// the process runs as root.
fn rights(functions: &[Function]) -> Option<Finding> {
    let bound = functions.iter().filter(|function| function.driver.as_deref() == Some("vfio-pci"));
    let groups = bound.filter_map(|function| function.iommu_group.as_deref());
    let files: Vec<_> = groups.map(|group| PathBuf::from("/dev/vfio").join(group)).collect();
    if !files.is_empty() {
        return Some(dma_vendor::host::rights(&files, "the owner of the /dev/vfio files, or root"));
    }
    (!dma_vendor::host::is_root()).then(|| {
        Finding::warning(
            "rights",
            "not root",
            "SPDK needs root, unless the devices are bound to vfio-pci and this user may open /dev/vfio",
        )
    })
}

const INSTALL: &str =
    "install SPDK built with --with-shared, or name the folder of its libraries in DMA_SPDK_LIB_DIR";
const LOADS: &str = "libraries and symbols";

fn loads(library: &Library) -> Finding {
    let stand_in = if library.stand_in.is_some() { ", the stand-in SPDK of this project" } else { "" };
    let absent = [library.env.absent(), library.ioat.absent()].concat();
    Finding::ok(LOADS, format!("{}{stand_in}{}", library.release, absent_calls(&absent)))
}

/// Checks that SPDK accepts its DPDK. Returns `None` if no DPDK is loaded, as with the stand-in.
fn dpdk(library: &Library) -> Option<Finding> {
    let version = library.dpdk.as_ref()?;
    Some(match env::dpdk_refused(library) {
        Some(refused) => Finding::bad("DPDK", refused, env::OTHER_DPDK),
        None => Finding::ok("DPDK", format!("{version}, for SPDK {}", library.release)),
    })
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Bad, Ok};

    use super::*;
    use crate::device::tests::functions;

    #[test]
    fn a_channel_needs_a_driver_of_user_space() {
        let found = of_devices(&functions(&[
            ("0000:00:04.0", "0x8086", "0x2021", Some("vfio-pci")),
            ("0000:00:04.1", "0x8086", "0x2021", Some("ioatdma")),
            ("0000:00:04.2", "0x8086", "0x2021", None),
        ]));
        assert_eq!(found.iter().map(|f| f.verdict).collect::<Vec<_>>(), [Ok, Bad, Bad]);
        assert_eq!(found[0].what, "I/OAT channel 0000:00:04.0");
        assert!(found[1].fix.contains("drivers/ioatdma/unbind") && found[1].fix.contains("setup.sh"));
        assert_eq!(of_devices(&[]).iter().map(|f| f.verdict).collect::<Vec<_>>(), [Bad]);
    }
}
