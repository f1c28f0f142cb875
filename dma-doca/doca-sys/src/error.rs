//! Why the SDK's libraries cannot be used.

use std::path::PathBuf;

/// Why the SDK's libraries cannot be used. `Display` is one line: what and where; [`remedy`](LoadError::remedy) is what to do.
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
    /// The libraries are of DOCA 1.5, or of another version that has work queues where later ones have progress engines and tasks.
    #[error(
        "{} is of a DOCA before 2.5 ({}): it has doca_workq_create where later versions have progress engines",
        path.display(),
        version.as_deref().unwrap_or("version unknown")
    )]
    TooOld {
        /// The library.
        path: PathBuf,
        /// Its version, if it or its file's name tells.
        version: Option<String>,
    },
    /// A library lacks calls that every supported version has.
    #[error(
        "{} ({}) lacks {}",
        path.display(),
        version.as_deref().unwrap_or("version unknown"),
        symbols.join(", ")
    )]
    MissingSymbols {
        /// The library.
        path: PathBuf,
        /// Its version, if it or its file's name tells.
        version: Option<String>,
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
                "install the DOCA SDK (2.5 or later), or set DMA_DOCA_LIB_DIR to the directory that has its libraries"
            }
            Self::NotALibrary { .. } => {
                "reinstall the DOCA SDK, or set DMA_DOCA_LIB_DIR to the directory that has its libraries"
            }
            Self::Unloadable { .. } => "install what it needs, or reinstall the DOCA SDK, for this processor",
            Self::TooOld { .. } => "install DOCA 2.5 or later",
            Self::MissingSymbols { .. } => "install a complete DOCA SDK, 2.5 or later",
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
