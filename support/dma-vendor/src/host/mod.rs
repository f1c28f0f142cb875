//! Facts about this machine on which hardware backends depend, with a remedy for each unmet requirement.
//!
//! Several backends share these functions. Those that check a requirement return a
//! [`Finding`](dma_core::Finding). [`pci`] lists the PCI functions that the kernel knows.

mod memory;
pub mod pci;
mod rights;

pub use memory::{has_huge_pages, huge_pages, iommu, memlock};
pub use rights::{is_root, rights};

/// Returns the NUMA node of the device that `dir`, a directory of `/sys`, describes. Returns `None` if
/// the file does not exist, and on a machine with one node, where the file contains -1.
#[must_use]
pub fn numa_node(dir: &std::path::Path) -> Option<u32> {
    read(dir.join("numa_node"))?.parse().ok()
}

/// Returns the content of a small kernel file, trimmed; `None` if it cannot be read.
fn read(path: impl AsRef<std::path::Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
