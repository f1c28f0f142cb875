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

/// The content of a small file of the kernel's, without white space at its ends; `None` if it cannot be read.
fn read(path: impl AsRef<std::path::Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
