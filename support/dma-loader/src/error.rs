//! [`LoadError`]: why a vendor's libraries cannot be used.

use std::path::PathBuf;

use crate::Vendor;

/// Why a vendor's libraries cannot be used. `Display` is one line; [`remedy`](LoadError::remedy) is the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library is nowhere.
    #[error("no {library} {}", places(looked))]
    NotFound {
        /// The file that was looked for first.
        library: String,
        /// All that was tried, in order. A name without a directory is left to the system's search.
        looked: Vec<PathBuf>,
    },
    /// There are static libraries only, which cannot be loaded.
    #[error("there are static libraries only ({}), which cannot be loaded at run time", archive.display())]
    StaticOnly {
        /// One of them.
        archive: PathBuf,
    },
    /// There is a file, but it is no library, or none for this program.
    #[error("{} is not a library ({reason})", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// There is a library, but the system cannot load it: mostly another one that it needs is missing.
    #[error("{} cannot be loaded ({reason})", path.display())]
    Unloadable {
        /// The library.
        path: PathBuf,
        /// The message of the system's loader.
        reason: String,
    },
    /// The process has loaded another library of this kind, and can use only one.
    #[error("{} cannot be used beside {}, which this process has loaded", path.display(), other.display())]
    Second {
        /// The library.
        path: PathBuf,
        /// The one that was loaded before.
        other: PathBuf,
    },
    /// The libraries are older than what the backend can call.
    #[error("{} is of {version}, which is too old", path.display())]
    TooOld {
        /// The library.
        path: PathBuf,
        /// The vendor's name, and the version as far as it is known.
        version: String,
    },
    /// A library lacks calls that every supported version has.
    #[error("{} ({version}) lacks {}", path.display(), symbols.join(", "))]
    MissingSymbols {
        /// The library.
        path: PathBuf,
        /// The vendor's name, and the version as far as it is known.
        version: String,
        /// The calls that it lacks.
        symbols: Vec<String>,
    },
}

impl LoadError {
    /// Returns the remedy, in a few words. `vendor` is the one whose libraries were opened.
    #[must_use]
    pub fn remedy(&self, vendor: &Vendor) -> String {
        let Vendor { sdk, least, build, variable, .. } = vendor;
        match self {
            Self::NotFound { .. } => format!(
                "install {sdk} ({least} or later{build}), or set {variable} to the directory that has its libraries"
            ),
            Self::StaticOnly { .. } => {
                format!("install {sdk}{build}, or build this program with the feature `linked`")
            }
            Self::NotALibrary { .. } => {
                format!("reinstall {sdk}, or set {variable} to the directory that has its libraries")
            }
            Self::Unloadable { .. } => {
                "put the libraries that it needs beside it, in LD_LIBRARY_PATH or where ldconfig looks, all of one build and for this \
                 processor"
                    .to_owned()
            }
            Self::Second { .. } => "use one of them in a process".to_owned(),
            Self::TooOld { .. } => format!("install {sdk}, {least} or later"),
            Self::MissingSymbols { .. } => {
                format!("install a complete {sdk}, {least} or later, all of its libraries of one build")
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
