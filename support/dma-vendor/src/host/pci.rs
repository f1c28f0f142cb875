//! PCI functions of this machine.

use std::fmt;
use std::path::Path;

use dma_core::PciAddress;

use super::read;

/// Linux's directory of all PCI functions.
pub const SYSFS: &str = "/sys/bus/pci/devices";

/// A PCI function. `Display` prints the address, followed by the driver, IOMMU group and NUMA node, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// The function's address.
    pub address: PciAddress,
    /// The PCI vendor id.
    pub vendor: u16,
    /// The PCI device id.
    pub device: u16,
    /// The kernel driver that is bound to the function.
    pub driver: Option<String>,
    /// The number of the function's IOMMU group.
    pub iommu_group: Option<String>,
    /// The number of the function's NUMA node, on a machine with several nodes.
    pub numa_node: Option<u32>,
}

/// Returns the PCI functions of this machine, sorted by address. The list is empty if `/sys` is not mounted.
#[must_use]
pub fn functions() -> Vec<Function> {
    functions_in(Path::new(SYSFS))
}

/// Returns the PCI functions in `root`, a directory like [`SYSFS`], sorted by address.
#[must_use]
pub fn functions_in(root: &Path) -> Vec<Function> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut functions: Vec<_> = entries.filter_map(|entry| function(&entry.path())).collect();
    functions.sort_by_key(|function| function.address);
    functions
}

fn function(dir: &Path) -> Option<Function> {
    let number = |name: &str| u16::from_str_radix(read(dir.join(name))?.strip_prefix("0x")?, 16).ok();
    let link = |name: &str| -> Option<String> {
        Some(std::fs::read_link(dir.join(name)).ok()?.file_name()?.to_str()?.to_owned())
    };
    Some(Function {
        address: dir.file_name()?.to_str()?.parse().ok()?,
        vendor: number("vendor")?,
        device: number("device")?,
        driver: link("driver"),
        iommu_group: link("iommu_group"),
        numa_node: super::numa_node(dir),
    })
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        if let Some(group) = &self.iommu_group {
            write!(f, ", IOMMU group {group}")?;
        }
        if let Some(node) = self.numa_node {
            write!(f, ", NUMA node {node}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn functions_are_listed_by_address_with_what_is_known() {
        let root = tempfile::tempdir().unwrap();
        for (address, vendor, device, node) in [
            ("0000:03:00.0", "0x15b3\n", "0xa2dc\n", "1\n"),
            ("0000:00:04.1", "0x8086\n", "0x2021\n", "-1\n"),
            ("0000:00:05.0", "8086", "0x2021\n", "-1\n"),
            ("no address", "0x8086", "0x2021", "0"),
        ] {
            let dir = root.path().join(address);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("vendor"), vendor).unwrap();
            fs::write(dir.join("device"), device).unwrap();
            fs::write(dir.join("numa_node"), node).unwrap();
        }
        let dir = root.path().join("0000:03:00.0");
        symlink("../../../bus/pci/drivers/mlx5_core", dir.join("driver")).unwrap();
        symlink("../../../kernel/iommu_groups/17", dir.join("iommu_group")).unwrap();
        let found = functions_in(root.path());
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0000:00:04.1", "0000:03:00.0, driver mlx5_core, IOMMU group 17, NUMA node 1"]);
        assert_eq!((found[1].vendor, found[1].device), (0x15b3, 0xa2dc));
        assert!(functions_in(Path::new("/nowhere")).is_empty());
    }
}
