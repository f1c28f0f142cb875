//! Errors for files that are not a usable SPDK.

mod shape;

use std::fs;
use std::path::Path;
use std::process::Command;

use spdk_sys::{Library, LoadError, SPDK};

/// Builds a library with a function that does nothing.
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
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.9.0");
    library(dir.path(), "libspdk_ioat.so.5.0");
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(e, LoadError::TooOld { .. }), "{e}");
    assert!(e.remedy(&SPDK).contains("23.05 or later"), "{}", e.remedy(&SPDK));
}

#[test]
fn a_library_without_the_other_is_none() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17.0");
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(&e, LoadError::NotFound { library, .. } if library == "libspdk_ioat.so"), "{e}");
}

#[test]
fn a_library_that_is_cut_off_is_not_loaded() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17.0");
    library(dir.path(), "libspdk_ioat.so.9.0");
    let file = dir.path().join("libspdk_env_dpdk.so.17.0");
    let whole = fs::read(&file).unwrap();
    for end in [64, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..end]).unwrap();
        let e = Library::open_in(dir.path()).unwrap_err();
        assert!(
            matches!(&e, LoadError::NotALibrary { reason, .. } if reason.contains("truncated")),
            "{end}: {e}"
        );
    }
}

#[test]
fn a_library_that_others_need_is_looked_at_too() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = shape::tree(root.path());
    for file in [dir.join("libspdk_util.so.12.0"), root.path().join("dpdk/build/lib/librte_log.so.25")] {
        let whole = fs::read(&file).unwrap();
        // The file's headers stay complete. Accessing the missing part, which the headers describe, would
        // kill the process.
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        let e = Library::open_in(&dir).unwrap_err();
        let LoadError::NotALibrary { path, reason } = &e else { panic!("{e}") };
        assert_eq!(path.file_name(), file.file_name(), "{e}");
        assert!(reason.contains("truncated"), "{e}");
        fs::write(&file, whole).unwrap();
    }
}

#[test]
fn a_library_for_another_processor_is_said_to_be() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = shape::tree(root.path());
    for name in ["libspdk_env_dpdk.so.17.0", "libspdk_log.so.9.0"] {
        let file = dir.join(name);
        let whole = fs::read(&file).unwrap();
        let mut other = whole.clone();
        // Set the field `e_machine` to RISC-V.
        other[18..20].copy_from_slice(&243_u16.to_le_bytes());
        fs::write(&file, other).unwrap();
        let e = Library::open_in(&dir).unwrap_err();
        let LoadError::NotALibrary { path, reason } = &e else { panic!("{e}") };
        assert_eq!(path, &file);
        assert!(reason.contains("it is for RISC-V"), "{e}");
        fs::write(&file, whole).unwrap();
    }
}

#[test]
fn calls_that_nobody_has_are_named() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = shape::tree(root.path());
    fs::remove_dir_all(root.path().join("dpdk")).unwrap();
    let e = Library::open_in(&dir).unwrap_err();
    // This machine may have another DPDK or OpenSSL, which lacks the function.
    let LoadError::Unloadable { reason, .. } = &e else { panic!("{e}") };
    assert!(reason.contains("rte_of_eal") || reason.contains("EVP_of_crypto"), "{e}");
}
