//! Converts `pkg-config`'s flags for SPDK's static libraries to cargo's instructions.

use std::path::{Path, PathBuf};

/// Flags of `pkg-config --libs`.
pub(crate) struct Flags {
    /// Flags for SPDK, and for the DPDK libraries that its build names.
    pub(crate) spdk: Vec<String>,
    /// Flags for the dependencies of these libraries: the installed DPDK, and the system's libraries.
    pub(crate) behind: Vec<String>,
}

/// Returns cargo's instructions. Each library is named only once, because the compiler refuses a library that
/// is named with two kinds.
///
/// SPDK's archives, and DPDK's archives that SPDK's build lists, are linked whole, because their drivers
/// register themselves and are not called by name. Other archives of DPDK are linked as needed. If SPDK's
/// build has no such list, all of DPDK is linked whole.
///
/// Libraries that are not installed are skipped: SPDK's list has the libraries of all DPDK releases, and
/// DPDK's list has dependencies of drivers that are not linked. `is_known` returns true for a library file
/// that the compiler finds in its own directories.
pub(crate) fn instructions(
    flags: &Flags,
    exists: impl Fn(&Path) -> bool,
    is_known: impl Fn(&str) -> bool,
) -> Vec<String> {
    let all = || flags.spdk.iter().chain(&flags.behind);
    let mut dirs: Vec<PathBuf> = Vec::new();
    // Some archives are named by their paths.
    let by_path = all().filter(|flag| flag.ends_with(".a")).filter_map(|flag| Path::new(flag).parent());
    for dir in all().filter_map(|flag| flag.strip_prefix("-L")).map(Path::new).chain(by_path) {
        if dir.is_absolute() && !dirs.iter().any(|known| known == dir) {
            dirs.push(dir.to_owned());
        }
    }
    let listed = flags.spdk.iter().filter_map(|flag| name(flag)).any(|name| name.starts_with("rte_"));
    let mut libraries: Vec<(&str, &str)> = Vec::new();
    for (flags, whole) in [(&flags.spdk, true), (&flags.behind, !listed)] {
        for name in flags.iter().filter_map(|flag| name(flag)) {
            let theirs = name.starts_with("spdk_") || name.starts_with("rte_");
            // pkg-config omits the compiler's own directories.
            let is_there = |file: String| dirs.iter().any(|dir| exists(&dir.join(&file))) || is_known(&file);
            let kind = match theirs && is_there(format!("lib{name}.a")) {
                true if whole => "static:+whole-archive,-bundle",
                true => "static:-bundle",
                false if is_there(format!("lib{name}.so")) || is_there(format!("lib{name}.a")) => "dylib",
                false => continue,
            };
            if !libraries.iter().any(|(_, known)| *known == name) {
                libraries.push((kind, name));
            }
        }
    }
    let dirs = dirs.iter().map(|dir| format!("cargo::rustc-link-search=native={}", dir.display()));
    dirs.chain(libraries.iter().map(|(kind, name)| format!("cargo::rustc-link-lib={kind}={name}"))).collect()
}

/// Returns the library that a flag names. The flag is `-lX`, `-l:libX.a` or `/path/libX.a`.
fn name(flag: &str) -> Option<&str> {
    let file = match flag.strip_prefix("-l") {
        Some(named) => match named.strip_prefix(':') {
            Some(file) => file,
            None => return Some(named),
        },
        None => Path::new(flag).file_name()?.to_str()?,
    };
    let stem = file.strip_prefix("lib")?;
    stem.strip_suffix(".a").or_else(|| stem.split_once(".so").map(|(name, _)| name))
}
