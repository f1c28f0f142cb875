//! Compares `doctor`'s findings about libraries with the behaviour of the loader.

use std::path::Path;
use std::process::Command;

use dma::ioat::spdk_sys::SPDK;
use serde_json::Value;

/// Creates a library that has none of the functions that backends call.
fn library(dir: &Path, name: &str) {
    let source = dir.join("stub.c");
    std::fs::write(&source, "int nothing(void) { return 0; }\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(dir.join(name))
        .arg(&source)
        .status()
        .unwrap();
    assert!(built.success());
}

/// Returns the verdict and the text of each line about a backend, with `dir` in the system's search path.
fn lines(backend: &str, dir: &Path) -> Vec<(String, String, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .args(["doctor", backend, "--format", "json"])
        .env("LD_LIBRARY_PATH", dir)
        .env_remove("DMA_SPDK_LIB_DIR")
        .env_remove("DMA_DOCA_LIB_DIR")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "it cannot be used");
    let backends: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let findings = backends[0]["findings"].as_array().unwrap();
    findings.iter().map(|l| (text(l, "what"), text(l, "verdict"), text(l, "found"))).collect()
}

fn line<'a>(lines: &'a [(String, String, String)], what: &str) -> (&'a str, &'a str) {
    let (_, verdict, found) = lines.iter().find(|(w, ..)| w == what).unwrap();
    (verdict, found)
}

#[test]
fn a_library_that_the_system_finds_is_shown_where_it_lies() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17");
    library(dir.path(), "libspdk_ioat.so.9");
    let lines = lines("ioat", dir.path());
    for name in ["libspdk_env_dpdk.so", "libspdk_ioat.so"] {
        let (verdict, found) = line(&lines, &format!("library {name}"));
        assert_eq!(verdict, "ok", "{found}");
        assert!(found.starts_with(dir.path().to_str().unwrap()), "{found}");
    }
    let (verdict, found) = line(&lines, "libraries and symbols");
    assert!(verdict == "bad" && found.contains("spdk_env_init"), "{found}");
}

#[test]
fn the_loader_names_the_library_that_is_missing() {
    if SPDK.find_in("libspdk_env_dpdk.so", &SPDK.directories()).is_some() {
        eprintln!("not tested: there is an SPDK on this machine");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    library(dir.path(), "libspdk_env_dpdk.so.17");
    let lines = lines("ioat", dir.path());
    assert_eq!(line(&lines, "library libspdk_env_dpdk.so").0, "ok");
    let (verdict, found) = line(&lines, "library libspdk_ioat.so");
    assert!(
        verdict == "bad" && found.starts_with(&format!("not found in {}", dir.path().display())),
        "{found}"
    );
    let (_, found) = line(&lines, "libraries and symbols");
    assert!(found.contains("no libspdk_ioat.so") && found.contains("where the system looks"), "{found}");
}

#[test]
fn a_search_path_is_printed_once_for_each_backend() {
    let output = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .arg("doctor")
        .env_remove("DMA_SPDK_LIB_DIR")
        .env_remove("DMA_DOCA_LIB_DIR")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for backend in ["doca", "ioat", "dsa", "rdma"] {
        let (_, after) = text.split_once(&format!("\n{backend}: ")).unwrap();
        let about: Vec<&str> =
            after.lines().skip(1).take_while(|line| line.starts_with(' ')).map(str::trim).collect();
        let lists = about.iter().filter(|line| line.contains("/usr/lib64")).count();
        assert!(lists <= 1, "{backend}: {after}");
        let unclear = |line: &&&str| line.starts_with("BAD  library ") && line.contains("above");
        assert_eq!(about.iter().find(unclear), None, "short texts are printed again");
        for (at, line) in about.iter().enumerate().filter(|(_, line)| line.starts_with("fix: ")) {
            assert!(!about[..at].contains(line), "twice: {line}");
        }
    }
}
