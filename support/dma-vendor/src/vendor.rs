//! [`Vendor`]: names, versions and directories of a vendor's libraries.

use std::path::{Path, PathBuf};

/// A vendor of libraries. In directories, `{arch}` stands for the processor, such as `x86_64`.
#[derive(Debug)]
pub struct Vendor {
    /// The product's name in remedies.
    pub sdk: &'static str,
    /// The oldest supported version.
    pub min_version: &'static str,
    /// A requirement on the product's build, with a leading space; empty if no requirement exists.
    pub build: &'static str,
    /// The environment variable that names the directory of the libraries.
    pub variable: &'static str,
    /// The libraries to load, such as `libspdk_ioat.so`. They must be in one directory.
    pub required_libs: &'static [&'static str],
    /// Libraries that are also loaded if the same directory has them.
    pub optional_libs: &'static [&'static str],
    /// The number after `.so` that identifies the supported ABI. With `None`, the file with the highest
    /// number is loaded, and the backend checks the version.
    pub soname: Option<u32>,
    /// Directories in which the vendor's packages install libraries.
    pub default_dirs: &'static [&'static str],
    /// Subdirectories of an installation's prefix, or of a source tree, that contain libraries.
    pub lib_subdirs: &'static [&'static str],
    /// Returns, for a directory with the vendor's libraries, the directories to search for their
    /// dependencies before the system's directories.
    pub dependency_dirs: fn(&Path) -> Vec<PathBuf>,
    /// Symbols that the libraries use without listing the libraries that define them.
    pub implicit_symbols: &'static [ImplicitSymbols],
}

/// Symbols that a vendor's libraries use without listing the libraries that define them.
#[derive(Debug)]
pub struct ImplicitSymbols {
    /// Prefixes of the symbols' names.
    pub prefixes: &'static [&'static str],
    /// The product whose libraries define the symbols.
    pub product: &'static str,
    /// The libraries that define the symbols. The first library is part of every release of the product.
    pub libraries: &'static [&'static str],
}
