//! The paths of programs that cargo has built.

use std::path::{Path, PathBuf};

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
