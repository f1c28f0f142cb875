//! Libraries linked by SPDK's own rules: with immediate binding, and without most of their dependencies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use spdk_sys::{Library, LoadError};

/// Compiles `source` to the library `dir/file`.
pub(crate) fn library(dir: &Path, file: &str, source: &str, arguments: &[&str]) {
    let code = dir.join(format!("{file}.c"));
    fs::write(&code, source).unwrap();
    let soname = format!("-Wl,-soname,{file}");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-z,now", "-Wl,--no-as-needed", &soname, "-o"])
        .arg(dir.join(file))
        .arg(&code)
        .args(arguments)
        .status()
        .unwrap();
    assert!(built.success(), "{file}");
}

/// Returns the calls that a library must have, from the loader's error for a library that has only
/// `known`.
fn required(known: &[&str], name: &str, other: &str) -> Vec<String> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let define =
        |calls: &[&str]| calls.iter().map(|call| format!("void {call}(void) {{}}\n")).collect::<String>();
    // Give these libraries another soname, so that the loader does not mistake later libraries for these.
    for (file, source) in [(name, ""), (other, &*define(known))] {
        library(dir.path(), file, source, &["-Wl,-soname,probe"]);
    }
    match Library::open_in(dir.path()) {
        Err(LoadError::MissingSymbols { symbols, .. }) => symbols,
        other => panic!("{other:?}"),
    }
}

/// Builds an SPDK and a DPDK below `root`, laid out as in SPDK's source tree. Returns the directory of
/// SPDK's libraries.
pub(crate) fn tree(root: &Path) -> PathBuf {
    let (spdk, dpdk) = (root.join("build/lib"), root.join("dpdk/build/lib"));
    fs::create_dir_all(&spdk).unwrap();
    fs::create_dir_all(&dpdk).unwrap();
    let env = required(&[], "libspdk_env_dpdk.so.17.0", "libspdk_ioat.so.9.0");
    let known: Vec<&str> = env.iter().map(String::as_str).collect();
    let ioat = required(&known, "libspdk_ioat.so.9.0", "libspdk_env_dpdk.so.17.0");

    library(&dpdk, "librte_log.so.25", "int rte_of_log(void) { return 1; }", &[]);
    let at = format!("-L{}", dpdk.display());
    library(
        &dpdk,
        "librte_eal.so.25",
        "int rte_of_log(void); int rte_of_eal(void) { return 10 * rte_of_log(); }",
        &[&at, "-l:librte_log.so.25"],
    );
    // No library calls this library by name.
    library(&dpdk, "librte_mempool_ring.so.25", "int registered;", &[]);
    library(&dpdk, "libcrypto.so.9", "int EVP_of_crypto(void) { return 100; }", &[]);

    let at = format!("-L{}", spdk.display());
    library(&spdk, "libspdk_log.so.9.0", "int of_log(void) { return 1000; }", &[]);
    let source = "int EVP_of_crypto(void); int of_log(void); void *spdk_realloc(void);
        int of_util(void) { return EVP_of_crypto() + of_log() + (spdk_realloc() ? 10000 : 0); }";
    library(&spdk, "libspdk_util.so.12.0", source, &[&at, "-l:libspdk_log.so.9.0"]);
    let rest = |calls: &[String]| -> String {
        let rest = calls.iter().filter(|call| *call != "spdk_env_init");
        rest.map(|call| format!("void {call}(void) {{}}\n")).collect()
    };
    let source = format!(
        "int of_util(void); int rte_of_eal(void); void *spdk_realloc(void) {{ return &of_util; }}
        int spdk_env_init(const void *opts) {{ return of_util() + rte_of_eal(); }}\n{}",
        rest(&env)
    );
    library(
        &spdk,
        "libspdk_env_dpdk.so.17.0",
        &source,
        &[&at, "-l:libspdk_log.so.9.0", "-l:libspdk_util.so.12.0"],
    );
    library(
        &spdk,
        "libspdk_ioat.so.9.0",
        &format!(
            "void *spdk_realloc(void); void *of_ioat(void) {{ return spdk_realloc(); }}\n{}",
            rest(&ioat)
        ),
        &[&at, "-l:libspdk_log.so.9.0"],
    );
    spdk
}
