//! `libibverbs.so.1` of rdma-core: its location and its calls.
#![expect(unsafe_code, reason = "uses symbols as functions")]

use std::path::{Path, PathBuf};

use dma_vendor::{LoadError, Vendor};

use crate::verbs::Verbs;

/// rdma-core's library and its usual directories. The number after `.so` identifies the ABI. This number has
/// been 1 since 2006, because calls were only added.
pub(crate) static RDMA_CORE: Vendor = Vendor {
    sdk: "libibverbs of rdma-core (Debian: libibverbs1 and ibverbs-providers)",
    min_version: "22",
    build: "",
    variable: "DMA_IBVERBS_LIB_DIR",
    required_libs: &["libibverbs.so"],
    optional_libs: &[],
    soname: Some(1),
    default_dirs: &[],
    lib_subdirs: &["lib", "lib64", "build/lib"],
    dependency_dirs: |home: &Path| -> Vec<PathBuf> { vec![home.to_owned()] },
    implicit_symbols: &[],
};

/// Loads the library from `dir`; without `dir`, from the usual directories.
pub(crate) fn open(dir: Option<&Path>) -> Result<Verbs, LoadError> {
    let loaded = match dir {
        Some(dir) => RDMA_CORE.open_in(dir),
        None => RDMA_CORE.open(),
    }?;
    let [library] = loaded.as_slice() else { unreachable!("as many as `required_libs`") };
    // SAFETY: a library of this name is rdma-core's, whose functions have the declared types. The library
    // stays loaded.
    let verbs = unsafe { Verbs::load(|name| library.symbol(name)) };
    verbs.map_err(|missing| library.incomplete("libibverbs.so.1".to_owned(), &missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = crate::error::load(open(Some(dir.path())).unwrap_err());
        assert_eq!(error.kind(), dma_core::ErrorKind::MissingSdk);
        assert!(error.hint().contains("ibverbs-providers"), "{error}");
        std::fs::write(dir.path().join("libibverbs.so.1"), "no library").unwrap();
        let error = open(Some(dir.path())).unwrap_err();
        assert!(matches!(error, LoadError::NotALibrary { .. }), "{error}");
    }
}
