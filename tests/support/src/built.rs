//! The paths of programs that cargo has built, and of files that tests build.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the directory of this test's profile, such as `target/debug`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    // The test's path is target/PROFILE/deps/TEST-HASH.
    test.parent().and_then(Path::parent).expect("a profile's directory").to_owned()
}

/// Returns the directory of the profiles, `target` or `target/TRIPLE`. Its `tmp` is CARGO_TARGET_TMPDIR.
pub(crate) fn target_directory() -> PathBuf {
    profile_directory().parent().expect("the target directory").to_owned()
}

/// Returns the directory `target/tmp/NAME`, in which this test program builds files. If another process uses
/// the directory, waits until that process ends. So two runs of the tests at once do not replace each other's
/// files.
///
/// # Panics
///
/// If the program asks for a second name, because two runs could then wait for each other. If the directory
/// cannot be created.
pub fn own_folder(name: &str) -> PathBuf {
    static OWN: OnceLock<(PathBuf, File)> = OnceLock::new();
    let wanted = target_directory().join("tmp").join(name);
    let (folder, _) = OWN.get_or_init(|| {
        fs::create_dir_all(&wanted).expect("a directory");
        let lock = File::create(wanted.with_extension("lock")).expect("a lock file");
        lock.lock().expect("the lock");
        (wanted.clone(), lock)
    });
    assert_eq!(*folder, wanted, "a program has one directory");
    wanted
}

/// Returns whether C programs can be built with the address sanitizer and run. Some distributions have its
/// library in a package of its own, and it refuses a program with another library in `LD_PRELOAD`. Tries it
/// once, in `folder`.
///
/// # Panics
///
/// If the source cannot be written.
pub fn can_sanitize(folder: &Path) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let (source, program) = (folder.join("sanitized.c"), folder.join("sanitized-probe"));
        fs::write(&source, "int main(void) { return 0; }\n").expect("the probe's source");
        let succeeds = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let mut compiler = Command::new("cc");
        compiler.arg("-fsanitize=address,undefined").arg("-o").arg(&program).arg(&source);
        succeeds(&mut compiler) && succeeds(&mut Command::new(&program))
    })
}

/// Returns the path of the binary of the example `name`. `cargo test` builds it in a directory beside the
/// tests.
///
/// # Panics
///
/// If the example is not built.
pub fn example(name: &str) -> PathBuf {
    let path = profile_directory().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not built; run cargo build --examples, or cargo test without --test",
        path.display()
    );
    path
}
