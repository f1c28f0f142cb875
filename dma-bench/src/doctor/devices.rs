//! What the hardware backends need: devices, drivers, libraries, rights.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Finding;
use super::libraries::Loader;
use super::system::{huge_pages, iommu, is_root, memlock, read};

/// A PCI device of interest.
struct Device {
    address: String,
    driver: Option<String>,
    group: Option<String>,
    numa: Option<String>,
}

/// The devices under `root` (`/sys/bus/pci/devices`) that `wanted` takes by vendor, device and class.
fn devices(root: &Path, wanted: impl Fn(u16, u16, u32) -> bool) -> Vec<Device> {
    let mut found: Vec<Device> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let hex =
                |file: &str| u32::from_str_radix(read(path.join(file))?.trim_start_matches("0x"), 16).ok();
            let (vendor, device) = (hex("vendor")? as u16, hex("device")? as u16);
            let link = |name: &str| {
                Some(fs::read_link(path.join(name)).ok()?.file_name()?.to_string_lossy().into_owned())
            };
            wanted(vendor, device, hex("class")?).then(|| Device {
                address: entry.file_name().to_string_lossy().into_owned(),
                driver: link("driver"),
                group: link("iommu_group"),
                numa: read(path.join("numa_node")).filter(|n| n != "-1"),
            })
        })
        .collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

fn pci() -> &'static Path {
    Path::new("/sys/bus/pci/devices")
}

/// Whether the libraries can be loaded and have the calls that are needed: what they are, or what is wrong and what to do.
fn loads(library: Result<String, (String, String)>) -> Finding {
    let what = "libraries and symbols";
    match library {
        Ok(text) => Finding::ok(what, text),
        Err((found, fix)) => Finding::bad(what, found, fix),
    }
}

/// The optional calls that a table lacks. Its `Debug` is derived: a field that is `None` is a line.
fn lacking(tables: &str) -> String {
    let names: Vec<_> = tables.lines().filter_map(|l| l.trim().strip_suffix(": None,")).collect();
    if names.is_empty() {
        return "; every call is there".to_owned();
    }
    let some = names[..names.len().min(3)].join(", ");
    format!(
        "; every required call is there; {} that other versions have are not, such as {some}",
        names.len()
    )
}

fn describe(device: &Device) -> String {
    let mut text = device.address.clone();
    if let Some(driver) = &device.driver {
        text += &format!(", driver {driver}");
    }
    if let Some(group) = &device.group {
        text += &format!(", IOMMU group {group}");
    }
    if let Some(numa) = &device.numa {
        text += &format!(", NUMA node {numa}");
    }
    text
}

/// NVIDIA (Mellanox): the PCI ids of BlueField's integrated ConnectX, as the PCI ID database has them.
const BLUEFIELD: [(u16, &str); 3] = [(0xa2d2, "BlueField"), (0xa2d6, "BlueField-2"), (0xa2dc, "BlueField-3")];

pub(super) fn doca() -> Vec<Finding> {
    let found =
        devices(pci(), |vendor, device, _| vendor == 0x15b3 && BLUEFIELD.iter().any(|(id, _)| *id == device));
    let mut findings = Vec::new();
    if found.is_empty() {
        findings.push(Finding::bad(
            "BlueField device",
            "none on the PCI bus",
            "put in a card; on a virtual machine, pass it through. `sim:profile=bluefield3` shows how one would behave",
        ));
    }
    for device in &found {
        let what = format!("BlueField {}", device.address);
        findings.push(match device.driver.as_deref() {
            Some("mlx5_core") => Finding::ok(what, describe(device)),
            Some(other) => Finding::bad(
                what,
                format!("driver {other}, not mlx5_core"),
                format!("`echo {0} | sudo tee /sys/bus/pci/drivers/{other}/unbind; echo {0} | sudo tee /sys/bus/pci/drivers/mlx5_core/bind`", device.address),
            ),
            None => Finding::bad(what, "no driver", "load mlx5_core: `sudo modprobe mlx5_core`, and look for it in dmesg"),
        });
    }
    let outcome = dma::doca::Library::open();
    let loader = Loader::doca(outcome.as_ref());
    findings.extend(loader.needed());
    let failed = |e: dma::doca::LoadError| {
        let fix = loader.setting().unwrap_or_else(|| e.remedy().to_owned());
        (e.to_string(), fix)
    };
    findings.push(loads(outcome.map_err(failed).map(|library| {
        let mut text =
            if library.version.is_empty() { "of no known version".to_owned() } else { library.version };
        if library.stand_in.is_some() {
            text += ", the stand-in SDK of this project";
        }
        let mut calls = format!("{:#?}{:#?}", library.common, library.dma);
        match (&library.comch, &library.comch_missing) {
            (Some(comch), _) => calls += &format!("{comch:#?}"),
            (None, Some(why)) => text += &format!("; no comm channel: {why}"),
            (None, None) => {}
        }
        text + &lacking(&calls)
    })));
    let verbs = Path::new("/dev/infiniband");
    findings.push(if verbs.exists() {
        rights(&[verbs.join("rdma_cm")], "the group that owns /dev/infiniband, or root")
    } else {
        Finding::bad(
            "/dev/infiniband",
            "not there",
            "load the RDMA drivers: `sudo modprobe mlx5_ib ib_uverbs`",
        )
    });
    findings.push(memlock(64 << 20));
    findings
}

/// Intel's PCI ids of I/OAT channels, as the Linux driver has them: class 0880 (system peripheral).
fn is_ioat(vendor: u16, device: u16, class: u32) -> bool {
    let known = matches!(
        device,
        0x1a38 | 0x360b | 0x402f | 0x65ff | 0x3430..=0x3433 | 0x3429..=0x342c
            | 0x3710..=0x3719 | 0x3c20..=0x3c2f | 0x0e20..=0x0e2f | 0x2f20..=0x2f2f | 0x6f20..=0x6f2f
            | 0x0c50..=0x0c53 | 0x6f50..=0x6f53 | 0x2021 | 0x0b00
    );
    vendor == 0x8086 && known && class >> 8 == 0x0880
}

pub(super) fn ioat() -> Vec<Finding> {
    let found = devices(pci(), is_ioat);
    let mut findings = Vec::new();
    if found.is_empty() {
        findings.push(Finding::bad(
            "I/OAT channel",
            "none on the PCI bus",
            "it takes an Intel Xeon with I/OAT (up to Ice Lake), switched on in the BIOS. `sim:profile=ioat` shows how one would behave",
        ));
    }
    let mut devices_used = Vec::new();
    for device in &found {
        let what = format!("I/OAT channel {}", device.address);
        let bind = format!(
            "give it to user space: SPDK's `sudo scripts/setup.sh`, or `echo vfio-pci | sudo tee /sys/bus/pci/devices/{0}/driver_override; echo {0} | sudo tee /sys/bus/pci/drivers_probe`",
            device.address
        );
        findings.push(match device.driver.as_deref() {
            Some("vfio-pci" | "uio_pci_generic" | "igb_uio") => Finding::ok(what, describe(device)),
            Some(other) => Finding::bad(
                what,
                format!("driver {other} has it"),
                format!(
                    "`echo {} | sudo tee /sys/bus/pci/drivers/{other}/unbind`; then {bind}",
                    device.address
                ),
            ),
            None => Finding::bad(what, "no driver", bind),
        });
        if let (Some("vfio-pci"), Some(group)) = (device.driver.as_deref(), &device.group) {
            devices_used.push(PathBuf::from("/dev/vfio").join(group));
        }
    }
    let outcome = dma::ioat::spdk_sys::Library::open();
    let loader = Loader::spdk(outcome.as_ref());
    findings.extend(loader.needed());
    findings.push(
        loader.dependency(
            "librte_eal.so",
            "install DPDK, or name the folder of its libraries in LD_LIBRARY_PATH",
        ),
    );
    let failed = |e: dma::ioat::spdk_sys::LoadError| {
        let fix = loader.setting().unwrap_or_else(|| e.remedy().to_owned());
        (e.to_string(), fix)
    };
    findings.push(loads(outcome.map_err(failed).map(|library| {
        let stand_in = if library.stand_in.is_some() { ", the stand-in SPDK of this project" } else { "" };
        format!("{}{stand_in}{}", library.release, lacking(&format!("{:#?}{:#?}", library.env, library.ioat)))
    })));
    findings.push(huge_pages(64 << 20));
    findings.push(iommu());
    findings.push(memlock(64 << 20));
    if !devices_used.is_empty() {
        findings.push(rights(&devices_used, "the owner of the /dev/vfio files, or root"));
    } else if !is_root() {
        findings.push(Finding::warning(
            "rights",
            "not root",
            "SPDK needs root, unless the devices are bound to vfio-pci and /dev/vfio is yours",
        ));
    }
    findings
}

/// Whether this process may open device files.
fn rights(files: &[PathBuf], who: &str) -> Finding {
    for file in files {
        let Err(e) = fs::OpenOptions::new().read(true).write(true).open(file) else { continue };
        let found = format!("{}: {e}", file.display());
        match e.kind() {
            ErrorKind::PermissionDenied => return Finding::bad("rights", found, format!("run as {who}")),
            ErrorKind::NotFound => {
                return Finding::warning("rights", found, "load the driver that makes this file");
            }
            // Another program has it open, say.
            _ => {}
        }
    }
    Finding::ok("rights", if is_root() { "root" } else { "the device files can be opened" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    /// A tree as /sys/bus/pci/devices is.
    fn tree(list: &[(&str, u32, u32, u32, Option<&str>)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (address, vendor, device, class, driver) in list {
            let path = root.path().join(address);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("vendor"), format!("{vendor:#06x}\n")).unwrap();
            fs::write(path.join("device"), format!("{device:#06x}\n")).unwrap();
            fs::write(path.join("class"), format!("{class:#08x}\n")).unwrap();
            if let Some(driver) = driver {
                std::os::unix::fs::symlink(format!("../../drivers/{driver}"), path.join("driver")).unwrap();
            }
        }
        root
    }

    #[test]
    fn devices_are_found_by_what_they_are() {
        let root = tree(&[
            ("0000:00:04.1", 0x8086, 0x2021, 0x08_80_00, Some("ioatdma")),
            ("0000:00:04.0", 0x8086, 0x2021, 0x08_80_00, Some("vfio-pci")),
            ("0000:00:05.0", 0x8086, 0x2021, 0x06_00_00, None),
            ("0000:03:00.0", 0x15b3, 0xa2dc, 0x02_00_00, Some("mlx5_core")),
        ]);
        let found = devices(root.path(), is_ioat);
        let seen: Vec<_> = found.iter().map(|d| (d.address.as_str(), d.driver.as_deref())).collect();
        assert_eq!(seen, [("0000:00:04.0", Some("vfio-pci")), ("0000:00:04.1", Some("ioatdma"))]);
        assert!(devices(Path::new("/nowhere"), |_, _, _| true).is_empty());
    }

    #[test]
    fn device_files_that_are_missing_are_not_said_to_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rdma_cm");
        assert_eq!(rights(std::slice::from_ref(&file), "root").verdict, Verdict::Warning);
        fs::write(&file, "").unwrap();
        assert_eq!(rights(&[file], "root").verdict, Verdict::Ok);
    }
}
