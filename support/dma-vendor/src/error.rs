//! [`LoadError`]: the reason why a vendor's libraries cannot be used.

use std::path::PathBuf;

use dma_core::{Error, ErrorKind};

use crate::Vendor;

/// The reason why a vendor's libraries cannot be used. `Display` prints one line.
/// [`remedy`](LoadError::remedy) returns the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library was not found.
    #[error("no {library} {}", places(looked))]
    NotFound {
        /// The first file name that was tried.
        library: String,
        /// All files that were tried, in order. A name without a directory was tried by the system's loader,
        /// in the directories that it searches. The message names the first directories of a long list.
        looked: Vec<PathBuf>,
    },
    /// Only static libraries were found, which cannot be loaded.
    #[error("only static libraries were found ({}), which cannot be loaded at run time", archive.display())]
    StaticOnly {
        /// The first archive that was found.
        archive: PathBuf,
    },
    /// The file is not a library, or it is for another processor.
    #[error("{} is not a library ({reason})", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The system cannot load the library. Usually a dependency of it is missing.
    #[error("{} cannot be loaded ({reason})", path.display())]
    Unloadable {
        /// The library.
        path: PathBuf,
        /// The message of the system's loader.
        reason: String,
    },
    /// The process or the system has no file descriptor left to read the libraries.
    #[error("no file descriptor is left to load libraries")]
    NoDescriptors,
    /// The libraries must be loaded together, but the file that lists them cannot be written.
    #[error("libraries that depend on each other cannot be loaded: {reason}")]
    NoList {
        /// The failed system calls and their errors.
        reason: String,
    },
    /// The process has already loaded another library of this kind, and can use only one.
    #[error("{} cannot be used together with {}, which this process has already loaded", path.display(), other.display())]
    Second {
        /// The library.
        path: PathBuf,
        /// The library that was loaded before.
        other: PathBuf,
    },
    /// The libraries are older than the oldest version that the backend supports.
    #[error("{} has the version {version}, which is too old", path.display())]
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
        /// The missing calls.
        symbols: Vec<String>,
    },
}

impl LoadError {
    /// Returns the category of the error, for programs to branch on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDescriptors => ErrorKind::OutOfResources,
            Self::NoList { .. } => ErrorKind::PermissionDenied,
            Self::TooOld { .. } => ErrorKind::VersionMismatch,
            _ => ErrorKind::MissingSdk,
        }
    }

    /// Converts this error into the contract's error of `backend`, with kind, message, remedy and source.
    /// `vendor` is the vendor whose libraries were opened.
    #[must_use]
    pub fn into_error(self, vendor: &Vendor, backend: &'static str) -> Error {
        Error::new(self.kind(), self.to_string())
            .with_backend(backend)
            .with_hint(self.remedy(vendor))
            .with_source(self)
    }

    /// Returns the remedy, in a few words. `vendor` is the vendor whose libraries were opened.
    #[must_use]
    pub fn remedy(&self, vendor: &Vendor) -> String {
        let Vendor { sdk, min_version, build, variable, .. } = vendor;
        match self {
            Self::NotFound { .. } => format!(
                "install {sdk} ({min_version} or later{build}), or set {variable} to the directory that has its \
                 libraries"
            ),
            Self::StaticOnly { .. } => {
                format!("install {sdk}{build}, or build this program with the feature `linked`")
            }
            Self::NotALibrary { .. } => {
                format!("reinstall {sdk}, or set {variable} to the directory that has its libraries")
            }
            Self::Unloadable { .. } if cfg!(all(target_env = "musl", target_feature = "crt-static")) => {
                "build this program with RUSTFLAGS=\"-C target-feature=-crt-static\": with musl, a static \
                 program loads no libraries"
                    .to_owned()
            }
            Self::Unloadable { .. } => {
                "put the libraries that it needs beside it, in LD_LIBRARY_PATH or where \
                 ldconfig looks, all of one build and for this processor"
                    .to_owned()
            }
            Self::NoDescriptors => {
                "close files, or raise the process's limit with `ulimit -n` (the system's is \
                 fs.file-max)"
                    .to_owned()
            }
            Self::NoList { .. } => "allow `memfd_create` in the sandbox and mount /proc, or set TMPDIR to a \
                 directory that this process may write to"
                .to_owned(),
            Self::Second { .. } => "use only one of them in a process".to_owned(),
            Self::TooOld { .. } => format!("install {sdk}, {min_version} or later"),
            Self::MissingSymbols { .. } => {
                format!(
                    "install a complete {sdk}, {min_version} or later; all of its libraries must come from one build"
                )
            }
        }
    }
}

/// Maximum number of directories that a message names. A longer list would hide the remedy after it.
const NAMED_MAX: usize = 3;

/// Returns a phrase with the directories of `looked`, each once. Of a long list, it names the first.
fn places(looked: &[PathBuf]) -> String {
    let mut dirs: Vec<String> = Vec::new();
    let mut system = false;
    for path in looked {
        match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            Some(dir) => dirs.push(dir.display().to_string()),
            None => system = true,
        }
    }
    dirs.dedup();
    if dirs.len() > NAMED_MAX {
        let others = dirs.len() - (NAMED_MAX - 1);
        dirs.truncate(NAMED_MAX - 1);
        dirs.push(format!("{others} other directories"));
    }
    let dirs = (!dirs.is_empty()).then(|| format!("in {}", dirs.join(", ")));
    let system = system.then(|| "where the system looks".to_owned());
    dirs.into_iter().chain(system).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_first_directories_of_a_long_list() {
        let says = |files: &[&str]| {
            let looked = files.iter().map(PathBuf::from).collect();
            LoadError::NotFound { library: "liba.so".to_owned(), looked }.to_string()
        };
        assert_eq!(says(&["liba.so"]), "no liba.so where the system looks");
        assert_eq!(says(&["/a/liba.so", "/a/liba.so.2", "/b/liba.so"]), "no liba.so in /a, /b");
        assert_eq!(says(&["/a/x", "/b/x", "/c/x"]), "no liba.so in /a, /b, /c");
        assert_eq!(
            says(&["/a/x", "/b/x", "/c/x", "/d/x", "x"]),
            "no liba.so in /a, /b, 2 other directories or where the system looks"
        );
    }
}
