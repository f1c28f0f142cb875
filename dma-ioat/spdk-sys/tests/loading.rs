//! What becomes of files that are no usable SPDK.

use std::fs;
use std::path::Path;
use std::process::Command;

use spdk_sys::{Library, LoadError};

/// A library with a function that does nothing.
fn library(dir: &Path, name: &str) {
    let source = dir.join("stub.c");
    fs::write(&source, "int nothing(void) { return 0; }\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.join(name))
        .arg(&source)
        .status()
        .unwrap();
    assert!(built.success());
}

#[test]
fn a_library_that_lacks_calls_names_them() {
    let dir = tempfile::tempdir().unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17.0");
    library(dir.path(), "libspdk_ioat.so.9.0");
    let e = Library::open_in(dir.path()).unwrap_err();
    let LoadError::MissingSymbols { path, symbols, .. } = &e else { panic!("{e}") };
    assert_eq!(path, &dir.path().join("libspdk_env_dpdk.so.17.0"));
    assert!(symbols.iter().any(|name| name == "spdk_env_init"), "{symbols:?}");
    assert!(e.to_string().contains("26.05"), "{e}");
}

#[test]
fn a_release_that_is_too_old_is_named() {
    let dir = tempfile::tempdir().unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.9.0");
    library(dir.path(), "libspdk_ioat.so.5.0");
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(e, LoadError::TooOld { .. }), "{e}");
    assert!(e.remedy().contains("23.05 or later"), "{}", e.remedy());
}

#[test]
fn a_library_without_the_other_is_none() {
    let dir = tempfile::tempdir().unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17.0");
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(e, LoadError::NotFound { library: "libspdk_ioat.so", .. }), "{e}");
}

#[test]
fn a_library_that_is_cut_off_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17.0");
    library(dir.path(), "libspdk_ioat.so.9.0");
    let file = dir.path().join("libspdk_env_dpdk.so.17.0");
    let whole = fs::read(&file).unwrap();
    for end in [64, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..end]).unwrap();
        let e = Library::open_in(dir.path()).unwrap_err();
        assert!(
            matches!(&e, LoadError::NotALibrary { reason, .. } if reason.contains("cut off")),
            "{end}: {e}"
        );
    }
}
