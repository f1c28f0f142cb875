//! An SPDK other than the stand-in, with a DPDK that it refuses: small C libraries of the same names.

use std::path::Path;
use std::process::Command;

use dma_core::{Backend, ErrorKind, Verdict};
use dma_ioat::{BACKEND, IoatEngine, IoatOptions, discover};

/// `spdk_env_init` writes the number of allowed functions to the file ALLOWED, and fails as SPDK does.
const ENV: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    extern const char *rte_version(void);
    int spdk_env_init(const char *opts)
    {
        FILE *allowed = fopen(getenv("ALLOWED"), "w");
        fprintf(allowed, "%zu", *(const size_t *)(opts + 48));
        fclose(allowed);
        fprintf(stderr, "%s is not supported\n", rte_version());
        return -22;
    }
    void spdk_env_opts_init(void *opts) { (void)opts; }
    void spdk_free(void *p) { (void)p; }
    int spdk_mem_register(void *p, size_t n) { (void)p; (void)n; return -22; }
    int spdk_mem_unregister(void *p, size_t n) { (void)p; (void)n; return -22; }
    unsigned long long spdk_pci_device_get_addr(void *p) { (void)p; return 0; }
    unsigned long long spdk_vtophys(const void *p, void *n) { (void)p; (void)n; return -1; }
    void *spdk_zmalloc(size_t n) { (void)n; return 0; }
"#;
const IOAT: &str = "
    int spdk_ioat_build_copy(void) { return -22; }
    int spdk_ioat_build_fill(void) { return -22; }
    void spdk_ioat_detach(void) {}
    void spdk_ioat_flush(void) {}
    unsigned spdk_ioat_get_dma_capabilities(void) { return 0; }
    unsigned spdk_ioat_get_max_descriptors(void) { return 0; }
    int spdk_ioat_probe(void) { return 0; }
    int spdk_ioat_process_events(void) { return 0; }
";
const EAL: &str = r#"const char *rte_version(void) { return "DPDK 22.11.11"; }"#;

/// Compiles a library. Returns false if there is no compiler.
fn library(dir: &Path, file: &str, code: &str, needs: &[&str]) -> bool {
    let source = dir.join("code.c");
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(dir).args(["-shared", "-fPIC", "-w", "-o", file, "code.c", "-Wl,-rpath,$ORIGIN"]);
    let Ok(output) = cc.arg(format!("-Wl,-soname,{file}")).args(needs).output() else { return false };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn a_foreign_spdk_is_diagnosed_and_takes_no_other_device() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !library(dir.path(), "librte_eal.so.23", EAL, &[]) {
        println!("skipped: no C compiler found");
        return;
    }
    assert!(library(dir.path(), "libspdk_env_dpdk.so.17.0", ENV, &["./librte_eal.so.23"]));
    assert!(library(dir.path(), "libspdk_ioat.so.9.0", IOAT, &[]));
    // Use a separate process, because a process can have only one SPDK.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["uses_the_spdk_of_its_environment", "--exact", "--ignored", "--nocapture"])
        .env("DMA_SPDK_LIB_DIR", dir.path())
        .env("ALLOWED", dir.path().join("allowed"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
#[ignore = "runs in a separate process, which another test starts"]
fn uses_the_spdk_of_its_environment() {
    let allowed = std::env::var("ALLOWED").expect("the other test sets ALLOWED");
    let findings = BACKEND.doctor();
    let dpdk = findings.iter().find(|finding| finding.what == "DPDK").expect("the DPDK is checked");
    assert!(
        dpdk.verdict == Verdict::Bad && dpdk.found == "SPDK 26.05 as released does not accept DPDK 22.11.11",
        "{dpdk:?}"
    );
    assert!(!dpdk.fix.is_empty());

    // By default only I/OAT functions are allowed. On a machine without such functions, the
    // environment is not set up.
    let has_channels = findings.iter().any(|f| f.what.starts_with("I/OAT channel ") && f.what.contains(':'));
    let error = IoatEngine::open(&IoatOptions::new()).unwrap_err();
    let found = discover(&IoatOptions::new());
    if has_channels {
        assert_ne!(std::fs::read_to_string(&allowed).unwrap(), "0");
    } else {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(found[0].info.as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!Path::new(&allowed).exists(), "SPDK's environment was set up");
    }

    let options = IoatOptions::new().with_allow(["00:04.0".parse().unwrap()]);
    let error = IoatEngine::open(&options).unwrap_err();
    if !has_channels {
        assert_eq!(std::fs::read_to_string(&allowed).unwrap(), "1");
    }
    assert_eq!(error.kind(), ErrorKind::VersionMismatch, "{error}");
    assert!(error.to_string().contains("SPDK 26.05 as released does not accept DPDK 22.11.11"), "{error}");
    assert!(error.hint().contains("built with"), "{error}");
}
