//! `libcuda.so.1` of NVIDIA's driver: its location and its calls.
#![expect(unsafe_code, reason = "uses symbols as functions")]

use std::path::{Path, PathBuf};

use dma_vendor::{LoadError, Vendor};

use crate::driver::Driver;

/// The driver's library and its usual directories. The number after `.so` identifies the ABI. This number has
/// always been 1, because NVIDIA has only added calls.
pub(crate) static CUDA: Vendor = Vendor {
    sdk: "NVIDIA's driver",
    min_version: "470 with CUDA 11.4",
    build: "; the library alone is Debian's package libcuda1",
    variable: "DMA_CUDA_LIB_DIR",
    required_libs: &["libcuda.so"],
    optional_libs: &[],
    soname: Some(1),
    default_dirs: &[
        "/usr/lib/{arch}-linux-gnu/nvidia/current",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ],
    lib_subdirs: &["lib", "lib64"],
    dependency_dirs: |home: &Path| -> Vec<PathBuf> { vec![home.to_owned()] },
    implicit_symbols: &[],
};

/// Loads the library from `dir`; without `dir`, from the usual directories.
pub(crate) fn open(dir: Option<&Path>) -> Result<Driver, LoadError> {
    let loaded = match dir {
        Some(dir) => CUDA.open_in(dir),
        None => CUDA.open(),
    }?;
    let [library] = loaded.as_slice() else { unreachable!("as many as `required_libs`") };
    // SAFETY: a library of this name is NVIDIA's driver, whose functions have the declared types. The library
    // stays loaded.
    let driver = unsafe { Driver::load(|name| library.symbol(name)) };
    driver.map_err(|missing| library.incomplete("libcuda.so.1".to_owned(), &missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = crate::error::load(open(Some(dir.path())).unwrap_err());
        assert_eq!(error.kind(), dma_core::ErrorKind::MissingSdk);
        assert!(error.hint().contains("libcuda1"), "{error}");
        std::fs::write(dir.path().join("libcuda.so.1"), "no library").unwrap();
        let error = open(Some(dir.path())).unwrap_err();
        assert!(matches!(error, LoadError::NotALibrary { .. }), "{error}");
    }

    #[test]
    fn missing_calls_are_named() {
        let get = |name| cuda_emu::symbol(name).filter(|_| name != c"cuMemHostAlloc");
        // SAFETY: the stand-in's functions have the declared types.
        let missing = unsafe { Driver::load(get) }.unwrap_err();
        assert_eq!(missing, [c"cuMemHostAlloc"]);
    }
}
