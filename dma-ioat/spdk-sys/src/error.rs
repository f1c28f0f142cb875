//! Why SPDK's libraries cannot be used.

use std::path::PathBuf;

use crate::Release;

/// Why SPDK's libraries cannot be used. `Display` is one line: what and where; [`remedy`](LoadError::remedy) is what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library is nowhere.
    #[error("no {library} {}", places(looked))]
    NotFound {
        /// The file that was looked for first.
        library: &'static str,
        /// All that was tried, in order. A name without a directory is left to the system's search.
        looked: Vec<PathBuf>,
    },
    /// SPDK is there, but as static libraries only, which cannot be loaded.
    #[error("SPDK is there as static libraries only ({}), which cannot be loaded at run time", archive.display())]
    StaticOnly {
        /// One of them.
        archive: PathBuf,
    },
    /// There is a file, but it is no library.
    #[error("{} is not a library ({reason})", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What the system says of it.
        reason: String,
    },
    /// There is a library, but the system cannot load it: mostly another one that it needs is missing.
    #[error("{} cannot be loaded ({reason})", path.display())]
    Unloadable {
        /// The library.
        path: PathBuf,
        /// What the system says of it.
        reason: String,
    },
    /// The libraries are older than what this crate knows how to call.
    #[error("{} is of an SPDK {release}", path.display())]
    TooOld {
        /// The library.
        path: PathBuf,
        /// What its name tells.
        release: Release,
    },
    /// A library lacks calls that every supported release has.
    #[error("{} (SPDK {release}) lacks {}", path.display(), symbols.join(", "))]
    MissingSymbols {
        /// The library.
        path: PathBuf,
        /// The release, as far as its name tells.
        release: Release,
        /// The calls that it lacks.
        symbols: Vec<String>,
    },
}

impl LoadError {
    /// What to do about it, in a few words.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => {
                "install SPDK (23.05 or later) built with ./configure --with-shared, and set DMA_SPDK_LIB_DIR to the directory that has its \
                 libraries, such as spdk/build/lib"
            }
            Self::StaticOnly { .. } => {
                "build SPDK with ./configure --with-shared, or build this program with the feature `linked`"
            }
            Self::NotALibrary { .. } => {
                "reinstall SPDK, or set DMA_SPDK_LIB_DIR to the directory that has its libraries"
            }
            Self::Unloadable { .. } => {
                "put what it needs (DPDK's libraries, too) beside it, in LD_LIBRARY_PATH or where ldconfig looks, all of one build and for this \
                 processor"
            }
            Self::TooOld { .. } => "install SPDK 23.05 or later",
            Self::MissingSymbols { .. } => {
                "install a complete SPDK, 23.05 or later, whose env and I/OAT libraries are of one build"
            }
        }
    }
}

/// The directories that were looked in, each once.
fn places(looked: &[PathBuf]) -> String {
    let mut dirs: Vec<String> = Vec::new();
    let mut system = false;
    for path in looked {
        match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            Some(dir) => dirs.push(format!("in {}", dir.display())),
            None => system = true,
        }
    }
    dirs.dedup();
    dirs.extend(system.then(|| "where the system looks".to_owned()));
    dirs.join(" or ")
}
