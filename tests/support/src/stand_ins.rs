//! The stand-in SDKs. Each stand-in is installed once for all tests of a package that start or load it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Builds the stand-in DOCA SDK if it is out of date. Returns its directory, which has the layout of the
/// vendor's SDK.
///
/// Waits while another test process builds the SDK.
///
/// # Panics
///
/// If the installation fails. The message contains the output of the installation.
pub fn doca_emu_prefix() -> PathBuf {
    install("standins/doca-emu", &[])
}

/// Like [`doca_emu_prefix`], for DOCA 1.5, 2.2 or 2.5.
pub fn doca_emu_generation(generation: &str) -> PathBuf {
    install("standins/doca-emu", &["--generation", generation])
}

/// Returns the directory of the libraries under the prefix from [`doca_emu_prefix`].
pub fn library_dir(prefix: &Path) -> PathBuf {
    prefix.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH))
}

/// Builds the stand-in SPDK if it is out of date, and returns its directory, like [`doca_emu_prefix`].
pub fn spdk_emu_prefix() -> PathBuf {
    install("standins/spdk-emu", &[])
}

/// Builds the stand-in DSA if it is out of date, and returns its directory, like [`doca_emu_prefix`].
pub fn dsa_emu_prefix() -> PathBuf {
    install("standins/dsa-emu", &[])
}

/// Builds the stand-in for rdma-core if it is out of date, and returns its directory, like
/// [`doca_emu_prefix`].
pub fn rdma_emu_prefix() -> PathBuf {
    install("standins/rdma-emu", &[])
}

/// Builds the stand-in for NVIDIA's driver if it is out of date, and returns its directory, like
/// [`doca_emu_prefix`].
pub fn cuda_emu_prefix() -> PathBuf {
    install("standins/cuda-emu", &[])
}

/// Waits until no other test installs a stand-in, and keeps others from it until the file is dropped. All
/// stand-ins share one lock, because the generations of an SDK use the same cargo build output.
///
/// # Panics
///
/// If the lock's file cannot be created.
pub fn lock() -> File {
    let target = crate::built::target_directory().join("tmp");
    fs::create_dir_all(&target).expect("the directory for files of tests");
    let lock = File::create(target.join("stand-ins.lock")).expect("a lock file");
    lock.lock().expect("the lock");
    lock
}

fn install(package: &str, options: &[&str]) -> PathBuf {
    static INSTALLED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let name = Path::new(package).file_name().expect("a directory");
    let target = &crate::built::target_directory().join("tmp");
    let prefix = target.join(name.to_string_lossy().into_owned() + &options.join("-"));
    let mut installed = INSTALLED.lock().expect("no panic of another installation");
    if installed.contains(&prefix) {
        return prefix;
    }
    let _lock = lock();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(package).join("install");
    let output = Command::new(&script)
        .arg(&prefix)
        .args(["--profile", "test"])
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{} failed: {}\n{}{}",
        script.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    installed.insert(prefix.clone());
    prefix
}
