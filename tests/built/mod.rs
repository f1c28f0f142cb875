//! The paths of the examples' binaries.

use std::path::PathBuf;

/// Returns the path of the binary of the example `name`. `cargo test` builds it in a directory beside the
/// tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    // The test's path is target/PROFILE/deps/TEST-HASH.
    let profile = test.parent().and_then(std::path::Path::parent).expect("a profile's directory");
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not built; run cargo build --examples, or cargo test without --test",
        path.display()
    );
    path
}
