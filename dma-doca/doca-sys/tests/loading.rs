//! Errors for directories and files that are not a usable SDK.

use std::fs;
use std::path::Path;
use std::process::Command;

use doca_sys::{DOCA, Library, LoadError};

/// Builds a library with these functions, which do nothing.
fn library(dir: &Path, name: &str, functions: &[&str]) {
    let source = dir.join("stub.c");
    let text: String = functions.iter().map(|f| format!("int {f}(void) {{ return 0; }}\n")).collect();
    fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.join(name))
        .arg(&source)
        .status()
        .unwrap();
    assert!(built.success());
}

/// Makes a directory with a DMA library that lacks all calls.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libdoca_dma.so.2", &["nothing_of_dma"]);
    dir
}

/// Every required call of the common library, as the loader's error lists them.
fn all_common(dir: &Path) -> Vec<String> {
    library(dir, "libdoca_common.so.2", &["nothing"]);
    match Library::open_in(dir).unwrap_err() {
        LoadError::MissingSymbols { symbols, .. } => symbols,
        other => panic!("{other}"),
    }
}

#[test]
fn an_empty_directory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let e = Library::open_in(dir.path()).unwrap_err();
    let LoadError::NotFound { library, looked } = &e else { panic!("{e}") };
    assert_eq!(library, "libdoca_common.so.2");
    assert!(looked.contains(&dir.path().join("libdoca_common.so")), "{looked:?}");
    assert!(e.to_string().contains("libdoca_common.so.2"), "{e}");
    assert!(e.remedy(&DOCA).contains("DMA_DOCA_LIB_DIR"), "{}", e.remedy(&DOCA));
}

#[test]
fn files_that_are_no_libraries() {
    for content in ["not a library at all", "", "\u{7f}EL"] {
        let dir = folder();
        fs::write(dir.path().join("libdoca_common.so.2"), content).unwrap();
        let e = Library::open_in(dir.path()).unwrap_err();
        assert!(matches!(e, LoadError::NotALibrary { .. }), "{e}");
        assert!(e.to_string().contains("libdoca_common.so.2"), "{e}");
    }
    let dir = folder();
    fs::create_dir(dir.path().join("libdoca_common.so")).unwrap();
    assert!(matches!(Library::open_in(dir.path()).unwrap_err(), LoadError::NotALibrary { .. }));
    let dir = folder();
    fs::write(dir.path().join("libdoca_common.so"), b"\x7fELF and then nothing of the kind").unwrap();
    assert!(matches!(Library::open_in(dir.path()).unwrap_err(), LoadError::NotALibrary { .. }));
}

#[test]
fn a_library_that_is_cut_off_is_not_loaded() {
    let dir = folder();
    library(dir.path(), "libdoca_common.so.2", &["nothing"]);
    let file = dir.path().join("libdoca_common.so.2");
    let whole = fs::read(&file).unwrap();
    for end in [64, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..end]).unwrap();
        let e = Library::open_in(dir.path()).unwrap_err();
        assert!(
            matches!(&e, LoadError::NotALibrary { reason, .. } if reason.contains("truncated")),
            "{end}: {e}"
        );
    }
    // The file of a complete library, changed so that it names another processor.
    let mut other = whole;
    other[18] ^= 0xff;
    fs::write(&file, &other).unwrap();
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(&e, LoadError::NotALibrary { reason, .. } if reason.contains("it is for")), "{e}");
}

#[test]
fn a_library_that_lacks_calls_names_them() {
    let dir = folder();
    let missing = all_common(dir.path());
    assert!(missing.iter().any(|name| name == "doca_pe_progress"), "{missing:?}");
    let dir = folder();
    let but_one: Vec<_> =
        missing.iter().map(String::as_str).filter(|name| *name != "doca_pe_progress").collect();
    library(dir.path(), "libdoca_common.so.2", &but_one);
    let e = Library::open_in(dir.path()).unwrap_err();
    let LoadError::MissingSymbols { symbols, path, .. } = &e else { panic!("{e}") };
    assert_eq!(symbols, &["doca_pe_progress"]);
    assert_eq!(path, &dir.path().join("libdoca_common.so.2"));
}

#[test]
fn the_library_of_another_kind_must_be_there_too() {
    let dir = folder();
    let missing = all_common(dir.path());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let names: Vec<_> = missing.iter().map(String::as_str).collect();
    library(dir.path(), "libdoca_common.so.2", &names);
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(&e, LoadError::NotFound { library, .. } if library == "libdoca_dma.so.2"), "{e}");
}

#[test]
fn work_queues_mark_a_library_of_their_generation() {
    let dir = folder();
    let lay = |calls: &[&str]| {
        library(dir.path(), "libdoca_common.so.1.5.0053", calls);
        let link = dir.path().join("libdoca_common.so");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("libdoca_common.so.1.5.0053", link).unwrap();
        let LoadError::MissingSymbols { version, symbols, .. } = Library::open_in(dir.path()).unwrap_err()
        else {
            panic!("something is missing")
        };
        assert_eq!(version, "DOCA 1.5.0053");
        symbols
    };
    let missing = lay(&["doca_workq_create", "doca_mmap_create"]);
    assert!(missing.contains(&"doca_workq_submit".to_owned()), "{missing:?}");
    assert!(!missing.contains(&"doca_pe_create".to_owned()), "calls of later versions are not required");
}

#[test]
fn needed_libraries_must_be_there() {
    let dir = folder();
    library(dir.path(), "libneeded.so", &["needed"]);
    let source = dir.path().join("user.c");
    fs::write(&source, "int needed(void); int user(void) { return needed(); }\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.path().join("libdoca_common.so.2"))
        .arg(&source)
        .arg("-L")
        .arg(dir.path())
        .arg("-lneeded")
        .status()
        .unwrap();
    assert!(built.success());
    // The library's dependencies are checked too, because the system's loader would map them.
    let needed = dir.path().join("libneeded.so");
    let whole = fs::read(&needed).unwrap();
    fs::write(&needed, &whole[..whole.len() / 2]).unwrap();
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(&e, LoadError::NotALibrary { path, .. } if path == &needed), "{e}");
    fs::remove_file(&needed).unwrap();
    let e = Library::open_in(dir.path()).unwrap_err();
    assert!(matches!(&e, LoadError::Unloadable { reason, .. } if reason.contains("libneeded")), "{e}");
}

#[test]
fn constants_and_layouts_are_those_of_the_interface() {
    use doca_sys::bindings as c;
    assert_eq!((c::DOCA_SUCCESS, c::DOCA_ERROR_NO_MEMORY, c::DOCA_ERROR_SKIPPED), (0, 7, 30));
    assert_eq!((c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, c::DOCA_ACCESS_FLAG_PCI_READ_WRITE), (1, 32));
    assert_eq!((c::DOCA_TASK_SUBMIT_FLAG_FLUSH, c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS), (1, 2));
    assert_eq!((c::DOCA_CTX_STATE_IDLE, c::DOCA_CTX_STATE_STOPPING), (0, 3));
    assert_eq!(size_of::<c::doca_error_t>(), 4);
    assert_eq!(size_of::<c::doca_data>(), 8);
    assert_eq!(size_of::<c::doca_gather_list>(), 24);
    assert_eq!(size_of::<c::doca_notification_handle_t>(), 4);
}
