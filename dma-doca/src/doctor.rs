//! Diagnosis of the requirements of BlueField engines: devices, drivers, libraries, rights.

use std::path::Path;

use dma_core::Finding;
use dma_vendor::host::pci::Function;
use dma_vendor::{LibraryReport, absent_calls};
use doca_sys::{DOCA, Library};

/// PCI vendor NVIDIA (Mellanox), and the devices of BlueField's integrated ConnectX, from the PCI ID
/// database.
const NVIDIA: u16 = 0x15b3;
const BLUEFIELD: [u16; 3] = [0xa2d2, 0xa2d6, 0xa2dc];

pub(crate) fn findings() -> Vec<Finding> {
    let mut findings = of_devices(&dma_vendor::host::pci::functions());
    let outcome = Library::open();
    let loader = LibraryReport::of(&DOCA, INSTALL, outcome.as_ref().err());
    findings.extend(loader.needed());
    findings.push(match outcome {
        Ok(library) => loads(library),
        Err(e) => {
            let fix = loader.setting().unwrap_or_else(|| e.remedy(&DOCA));
            Finding::bad(LOADS, e.to_string(), fix)
        }
    });
    let verbs = Path::new("/dev/infiniband");
    findings.push(if verbs.exists() {
        dma_vendor::host::rights(&[verbs.join("rdma_cm")], "the group that owns /dev/infiniband, or root")
    } else {
        Finding::bad(
            "/dev/infiniband",
            "does not exist",
            "load the RDMA drivers: `sudo modprobe mlx5_ib ib_uverbs`",
        )
    });
    findings.push(dma_vendor::host::memlock(64 << 20));
    findings
}

fn of_devices(functions: &[Function]) -> Vec<Finding> {
    let found = functions.iter().filter(|f| f.vendor == NVIDIA && BLUEFIELD.contains(&f.device));
    let findings: Vec<_> = found.map(of_device).collect();
    if findings.is_empty() {
        return vec![Finding::bad(
            "BlueField device",
            "no BlueField on the PCI bus",
            "install a card; on a virtual machine, pass it through. `sim:profile=bluefield3` simulates one",
        )];
    }
    findings
}

fn of_device(function: &Function) -> Finding {
    let address = function.address;
    let what = format!("BlueField {address}");
    match function.driver.as_deref() {
        Some("mlx5_core") => Finding::ok(what, function.to_string()),
        Some(other) => Finding::bad(
            what,
            format!("driver {other}, not mlx5_core"),
            format!(
                "`echo {address} | sudo tee /sys/bus/pci/drivers/{other}/unbind; echo {address} | sudo tee /sys/bus/pci/drivers/mlx5_core/bind`"
            ),
        ),
        None => Finding::bad(what, "no driver", "load mlx5_core: `sudo modprobe mlx5_core`, and check dmesg"),
    }
}

const INSTALL: &str = "install NVIDIA DOCA (the doca-sdk-dma and doca-sdk-common packages), or name the folder of its libraries in DMA_DOCA_LIB_DIR";
const LOADS: &str = "libraries and symbols";

fn loads(library: Library) -> Finding {
    let mut text =
        if library.version.is_empty() { "unknown version".to_owned() } else { library.version.clone() };
    if library.stand_in.is_some() {
        text += ", the stand-in SDK of this project";
    }
    let mut absent = [library.common.absent(), library.dma.absent()].concat();
    match (&library.comch, &library.comch_missing) {
        (Some(comch), _) => absent.extend(comch.absent()),
        (None, Some(why)) => text += &format!("; no comm channel: {why}"),
        (None, None) => {}
    }
    Finding::ok(LOADS, text + &absent_calls(&absent))
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Bad, Ok};

    use super::*;

    /// Makes a tree like /sys/bus/pci/devices with these devices and their drivers, and returns the PCI
    /// functions in it.
    fn functions(list: &[(&str, &str, Option<&str>)]) -> Vec<Function> {
        let root = tempfile::tempdir().unwrap();
        for (address, device, driver) in list {
            let dir = root.path().join(address);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("vendor"), "0x15b3").unwrap();
            std::fs::write(dir.join("device"), device).unwrap();
            if let Some(driver) = driver {
                std::os::unix::fs::symlink(format!("drivers/{driver}"), dir.join("driver")).unwrap();
            }
        }
        dma_vendor::host::pci::functions_in(root.path())
    }

    #[test]
    fn a_device_needs_its_driver() {
        let found = of_devices(&functions(&[
            ("0000:03:00.0", "0xa2dc", Some("mlx5_core")),
            ("0000:03:00.1", "0xa2dc", Some("vfio-pci")),
            ("0000:03:00.2", "0xa2d6", None),
            // A network card without a DPU.
            ("0000:04:00.0", "0x1017", Some("mlx5_core")),
        ]));
        let seen: Vec<_> = found.iter().map(|f| (f.what.as_str(), f.verdict)).collect();
        let expected = [
            ("BlueField 0000:03:00.0", Ok),
            ("BlueField 0000:03:00.1", Bad),
            ("BlueField 0000:03:00.2", Bad),
        ];
        assert_eq!(seen, expected);
        assert!(found[1].fix.contains("drivers/vfio-pci/unbind"), "{found:?}");
        assert_eq!(of_devices(&[]).iter().map(|f| f.verdict).collect::<Vec<_>>(), [Bad]);
    }
}
