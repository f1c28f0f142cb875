//! I/OAT functions that the system shows, and the reasons that prevent their use.

use dma_core::{Error, ErrorKind, PciAddress};
use dma_vendor::host::pci::{Function, SYSFS};

use crate::error::error;

/// The device numbers of Intel's I/OAT functions, from Xeon E5 (2012) to Xeon Ice Lake, as ranges. Source:
/// SPDK's public header `spdk/pci_ids.h`.
const DEVICE_IDS: [(u16, u16); 12] = [
    (0x0b00, 0x0b00),
    (0x0c50, 0x0c53),
    (0x0e20, 0x0e27),
    (0x0e2e, 0x0e2f),
    (0x2021, 0x2021),
    (0x2f20, 0x2f27),
    (0x2f2e, 0x2f2f),
    (0x3c20, 0x3c27),
    (0x3c2e, 0x3c2f),
    (0x6f20, 0x6f27),
    (0x6f2e, 0x6f2f),
    (0x6f50, 0x6f53),
];
const INTEL: u16 = 0x8086;

/// Returns the I/OAT functions that the system shows.
pub(crate) fn functions() -> Vec<Function> {
    dma_vendor::host::pci::functions().into_iter().filter(is_ioat).collect()
}

fn is_ioat(function: &Function) -> bool {
    let among = |(first, last): &(u16, u16)| (*first..=*last).contains(&function.device);
    function.vendor == INTEL && DEVICE_IDS.iter().any(among)
}

/// Returns the reason why SPDK does not offer a function, as far as the system's files show it.
pub(crate) fn obstacle(function: &Function) -> Error {
    let address = function.address;
    let bind = format!(
        "bind it to vfio-pci: `echo vfio-pci > {SYSFS}/{address}/driver_override`, `echo {address} > {SYSFS}/{address}/driver/unbind` if it has a \
         driver, `echo {address} > /sys/bus/pci/drivers_probe` (as root, after `modprobe vfio-pci`), or run SPDK's `scripts/setup.sh`"
    );
    match function.driver.as_deref() {
        None => error(ErrorKind::NotFound, format!("{address} is not bound to a driver")).with_hint(bind),
        Some("vfio-pci") => {
            let group = function.iommu_group.as_deref().unwrap_or("?");
            let node = format!("/dev/vfio/{group}");
            if is_writable(&node) {
                let message = format!("{address} is bound to vfio-pci, but SPDK does not offer it");
                error(ErrorKind::InUse, message).with_hint(format!(
                    "see which process has {node} open (`fuser {node}`), whether the option `allow` names {address}, and SPDK's messages"
                ))
            } else {
                error(
                    ErrorKind::PermissionDenied,
                    format!("{address} is bound to vfio-pci, but {node} cannot be opened"),
                )
                .with_hint(format!(
                    "run as root, or give this user {node}: `chown $USER {node}`, and raise `ulimit -l`"
                ))
            }
        }
        Some(driver @ ("uio_pci_generic" | "igb_uio")) => {
            let message = format!("{address} is bound to {driver}, but SPDK does not offer it");
            if dma_vendor::host::is_root() {
                error(ErrorKind::InUse, message).with_hint(format!(
                    "see whether another process uses it, and whether the option `allow` names {address}"
                ))
            } else {
                error(ErrorKind::PermissionDenied, message).with_hint("run as root: uio needs it")
            }
        }
        Some(driver) => {
            error(ErrorKind::InUse, format!("{address} is bound to the kernel's driver {driver}"))
                .with_hint(bind)
        }
    }
}

fn is_writable(path: &str) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Returns the error for an SPDK that offers no function. `functions` are those that the system shows.
pub(crate) fn no_device_error(functions: &[Function]) -> Error {
    match functions {
        [] => error(ErrorKind::NotFound, "no I/OAT device found: the system shows none").with_hint(format!(
            "check that the processor has I/OAT (Xeon E5 to Ice Lake; `lspci -d 8086:`, {SYSFS}), that it is enabled in the firmware and, in a \
             virtual machine or container, passed through; then bind its functions to vfio-pci or uio, such as with SPDK's `scripts/setup.sh`"
        )),
        [first, rest @ ..] => {
            let obstacle = obstacle(first);
            let more = if rest.is_empty() { String::new() } else { format!(" (and {} more functions)", rest.len()) };
            let message = format!("no I/OAT device found that SPDK can use: {}{more}", obstacle.message());
            error(obstacle.kind(), message).with_hint(obstacle.hint().to_owned())
        }
    }
}

/// Returns a description of the process that has claimed a function.
pub(crate) fn holder(address: PciAddress) -> String {
    // SPDK's lock file begins with the number of the process.
    let pid = std::fs::read(format!("/var/tmp/spdk_pci_lock_{address}"))
        .ok()
        .and_then(|bytes| bytes.first_chunk::<4>().map(|pid| i32::from_ne_bytes(*pid)))
        .filter(|pid| *pid > 0);
    match pid {
        None => "another process".to_owned(),
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim()),
            Err(_) => format!("process {pid}"),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes the files of a system with these functions (address, vendor, device, driver), and returns its
    /// I/OAT functions.
    pub(crate) fn functions(functions: &[(&str, &str, &str, Option<&str>)]) -> Vec<Function> {
        let root = tempfile::tempdir().unwrap();
        for (address, vendor, device, driver) in functions {
            let dir = root.path().join(address);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(dir.join("device"), format!("{device}\n")).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../bus/pci/drivers/{driver}"), dir.join("driver")).unwrap();
            }
            symlink("../../../kernel/iommu_groups/none-such", dir.join("iommu_group")).unwrap();
        }
        dma_vendor::host::pci::functions_in(root.path()).into_iter().filter(is_ioat).collect()
    }

    #[test]
    fn functions_are_found_and_obstacles_are_named() {
        let found = functions(&[
            ("0000:00:04.1", "0x8086", "0x2021", None),
            ("0000:00:04.0", "0x8086", "0x2021", Some("ioatdma")),
            ("0000:00:04.2", "0x8086", "0x6f2f", Some("vfio-pci")),
            ("0000:00:1f.0", "0x8086", "0xa1c8", Some("lpc_ich")),
            ("0000:03:00.0", "0x15b3", "0x2021", Some("mlx5_core")),
        ]);
        assert_eq!(
            found.iter().map(|f| f.address.to_string()).collect::<Vec<_>>(),
            ["0000:00:04.0", "0000:00:04.1", "0000:00:04.2"]
        );
        let obstacles: Vec<_> = found.iter().map(obstacle).collect();
        assert_eq!(obstacles[0].kind(), ErrorKind::InUse);
        assert!(obstacles[0].to_string().contains("kernel's driver ioatdma"), "{}", obstacles[0]);
        assert!(obstacles[0].hint().contains("setup.sh") && obstacles[0].hint().contains("driver_override"));
        assert_eq!(obstacles[1].kind(), ErrorKind::NotFound);
        assert!(obstacles[1].to_string().contains("not bound to a driver"));
        assert_eq!(obstacles[2].kind(), ErrorKind::PermissionDenied);
        assert!(obstacles[2].hint().contains("chown"));

        let none_usable = no_device_error(&found);
        assert_eq!(none_usable.kind(), ErrorKind::InUse);
        assert!(none_usable.message().contains("and 2 more"), "{none_usable}");
        let none_at_all = no_device_error(&[]);
        assert_eq!(none_at_all.kind(), ErrorKind::NotFound);
        assert!(none_at_all.message().contains("no I/OAT device found"));
        assert!(none_at_all.hint().contains("lspci"));
    }
}
