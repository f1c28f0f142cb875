//! File names of libraries, and the versions in them.

use std::path::{Path, PathBuf};

/// Returns the version in a library's file name: the text after `.so.`.
#[must_use]
pub fn version_in_name(file: &Path) -> Option<&str> {
    Some(file.file_name()?.to_str()?.split_once(".so.")?.1)
}

/// Returns the major version in a library's file name (the number after `.so.`), which identifies the ABI.
#[must_use]
pub fn soname_in_name(file: &Path) -> Option<u32> {
    version_in_name(file)?.split('.').next()?.parse().ok()
}

/// Returns the file of `library`, such as `libspdk_ioat.so`, in the first of `dirs` that has one. Prefers
/// the name without a number, then the highest number.
pub(crate) fn newest(library: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter().find_map(|dir| {
        let plain = dir.join(library);
        if plain.exists() {
            return Some(plain);
        }
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|file| numbered(file, library)).max_by_key(|file| soname_in_name(file))
    })
}

/// Returns whether the file is called `library.NUMBER` or `library.NUMBER.NUMBER`.
fn numbered(file: &Path, library: &str) -> bool {
    let number = file.file_name().and_then(|file| file.to_str()?.strip_prefix(library)?.strip_prefix('.'));
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}
