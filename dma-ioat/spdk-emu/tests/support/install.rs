//! The stand-in SPDK, installed once for all tests that start or load it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory under which the stand-in SPDK lies, brought up to date first.
///
/// Waits while another test process does the same.
///
/// # Panics
///
/// If the installation fails; the message has what it printed.
pub fn spdk_emu_prefix() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let prefix = target.join("spdk-emu");
    fs::create_dir_all(target).expect("the directory for what tests write");
    let lock = File::create(target.join("spdk-emu.lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let output = Command::new(install_script())
        .arg(&prefix)
        .args(["--profile", "test"])
        .stdin(Stdio::null())
        .output()
        .expect("dma-ioat/spdk-emu/install starts");
    assert!(
        output.status.success(),
        "dma-ioat/spdk-emu/install failed: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    prefix
}

/// Found from any package of the workspace.
fn install_script() -> PathBuf {
    let mut dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    loop {
        for candidate in ["install", "spdk-emu/install", "dma-ioat/spdk-emu/install"] {
            let script = dir.join(candidate);
            if script.is_file() && script.parent().is_some_and(|d| d.ends_with("spdk-emu")) {
                return script;
            }
        }
        dir = dir.parent().expect("dma-ioat/spdk-emu/install in a parent directory");
    }
}
