//! Facts about this machine that hardware backends depend on, and what to do where they are not as they
//! should be.
//!
//! | module | contents |
//! |---|---|
//! | [`pci`] | the PCI functions that the kernel lists, with driver, IOMMU group and NUMA node |
//! | [`libraries`] | where a vendor's libraries are, beside where their loader looks |
//!
//! The functions are checks that several backends share: each returns a [`Finding`](dma_core::Finding).

pub mod libraries;
mod memory;
pub mod pci;
mod rights;

pub use memory::{has_huge_pages, huge_pages, iommu, memlock};
pub use rights::{is_root, rights};

/// Returns the NUMA node of the device that `dir`, a directory of `/sys`, describes. `None` on a machine of
/// one node, where the file says -1, and where there is no such file.
#[must_use]
pub fn numa_node(dir: &std::path::Path) -> Option<u32> {
    read(dir.join("numa_node"))?.parse().ok()
}

/// The content of a small file of the kernel's, without white space at its ends; `None` if it cannot be read.
fn read(path: impl AsRef<std::path::Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
