//! Finds and opens a vendor's libraries.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::file_name::newest;
use crate::scope::{self, Places};
use crate::{LoadError, Loaded, Vendor};

/// Directories that the system's loader searches on most systems, and directories of local installations.
const SYSTEM: [&str; 8] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/lib/{arch}-linux-gnu",
    "/lib/{arch}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib/{arch}-linux-gnu",
    "/usr/lib",
];

/// Version numbers after `.so` by which to try to load a library whose version is not fixed. The range
/// begins with releases that are too old, to report them, and ends far beyond today's releases.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=40;

/// Number of file descriptors that loading needs at the same time: one for the list of libraries, and one
/// for the file that the loader reads.
const DESCRIPTORS: usize = 2;

impl Vendor {
    /// Loads [`required_libs`](Self::required_libs), in this order. If the environment variable is set,
    /// loads only from its directory; otherwise from [`directories`](Self::directories), or by the search
    /// of the system's loader. Blocks while it reads files, and while another thread loads libraries. A
    /// process loads each file once and never unloads it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] for the first library that cannot be used.
    pub fn open(&self) -> Result<Vec<Loaded>, LoadError> {
        match self.named() {
            Some(dir) => self.open_in(&dir),
            None => self.open_from_system().map_err(check_descriptors),
        }
    }

    /// Loads the libraries like [`open`](Self::open), but from `dir`, or from the library directories
    /// below `dir` if `dir` is an installation's prefix.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_in(&self, dir: &Path) -> Result<Vec<Loaded>, LoadError> {
        self.open_from(&self.in_and_below(dir)).map_err(check_descriptors)
    }

    /// Loads one more library, from the directory of `loaded`.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_beside(&self, library: &str, loaded: &Loaded) -> Result<Loaded, LoadError> {
        let open = || {
            let file = match loaded.path().parent().filter(|home| !home.as_os_str().is_empty()) {
                Some(home) => self.find(library, &[home.to_owned()])?,
                None => match self.known(library)? {
                    Known::Loaded(loaded) => return Ok(loaded),
                    Known::Unbound(file) => file,
                    Known::Nowhere => return Err(self.nowhere(library, &[])),
                },
            };
            self.load(std::slice::from_ref(&file))?;
            Loaded::at(file)
        };
        open().map_err(check_descriptors)
    }

    /// Returns the directories that [`open`](Self::open) searches, in order. If the environment variable
    /// is not set, the system's loader searches after them.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        self.named().map_or_else(|| self.system_directories(), |dir| self.in_and_below(&dir))
    }

    /// Returns the file that would be loaded as `library`, from the first of `dirs` that has one. Does not
    /// load it.
    #[must_use]
    pub fn find_in(&self, library: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
        match self.soname {
            Some(_) => self.candidates(library, dirs).into_iter().find(|path| path.exists()),
            None => newest(library, dirs),
        }
    }

    /// Loads the libraries from the first of `dirs` that has the first required library.
    fn open_from(&self, dirs: &[PathBuf]) -> Result<Vec<Loaded>, LoadError> {
        let Some((first, others)) = self.required_libs.split_first() else { return Ok(Vec::new()) };
        let first = self.find(first, dirs)?;
        // The other libraries must belong to the same installation.
        let home = [first.parent().unwrap_or(Path::new("")).to_owned()];
        let others = others.iter().map(|library| self.find(library, &home));
        let files = std::iter::once(Ok(first)).chain(others).collect::<Result<Vec<_>, _>>()?;
        let optional: Vec<_> =
            self.optional_libs.iter().filter_map(|library| self.find_in(library, &home)).collect();
        self.load(&[&*files, &optional].concat())?;
        files.into_iter().map(Loaded::at).collect()
    }

    /// Loads these files, which are in one directory, and all their dependencies.
    fn load(&self, files: &[PathBuf]) -> Result<(), LoadError> {
        let home = files.first().and_then(|file| file.parent()).unwrap_or(Path::new(""));
        let places = Places { own: &(self.dependency_dirs)(home), system: &self.system_directories() };
        scope::load(files, &places, self.implicit_symbols)
    }

    /// Loads the libraries from the directories of this system, or by the search of the system's loader.
    fn open_from_system(&self) -> Result<Vec<Loaded>, LoadError> {
        let dirs = self.system_directories();
        let failure = match self.open_from(&dirs) {
            Err(LoadError::NotFound { .. }) => None,
            Err(error @ LoadError::StaticOnly { .. }) => Some(error),
            other => return other,
        };
        // The system's loader knows more directories, and may find each library in a different one.
        let mut found = Vec::new();
        for library in self.required_libs {
            match self.known(library)? {
                Known::Loaded(loaded) => found.push(loaded),
                Known::Unbound(file) => {
                    return self.open_from(&[file.parent().unwrap_or(Path::new("")).to_owned()]);
                }
                Known::Nowhere => return Err(failure.unwrap_or_else(|| self.nowhere(library, &dirs))),
            }
        }
        Ok(found)
    }

    /// Returns the directory that the environment variable names, if it is set and not empty.
    #[must_use]
    pub fn named(&self) -> Option<PathBuf> {
        std::env::var_os(self.variable).filter(|dir| !dir.is_empty()).map(PathBuf::from)
    }

    /// Returns `dir` and the library directories below it.
    fn in_and_below(&self, dir: &Path) -> Vec<PathBuf> {
        std::iter::once(dir.to_owned())
            .chain(self.lib_subdirs.iter().map(|subdir| dir.join(of_processor(subdir))))
            .collect()
    }

    /// Returns the directories of LD_LIBRARY_PATH, of the vendor and of the system, in this order.
    fn system_directories(&self) -> Vec<PathBuf> {
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let named = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
        named.chain(self.default_dirs.iter().chain(&SYSTEM).map(|dir| of_processor(dir).into())).collect()
    }

    fn first_name(&self, library: &str) -> String {
        self.soname.map_or_else(|| library.to_owned(), |number| format!("{library}.{number}"))
    }

    /// Returns the file names of a library, in the order in which they are tried with the system's loader.
    fn names(&self, library: &str) -> Vec<String> {
        let numbered = |number| format!("{library}.{number}");
        match self.soname {
            Some(number) => vec![numbered(number), library.to_owned()],
            None => std::iter::once(library.to_owned()).chain(NUMBERS.rev().map(numbered)).collect(),
        }
    }

    /// Returns the paths that `library` may have in `dirs`.
    fn candidates(&self, library: &str, dirs: &[PathBuf]) -> Vec<PathBuf> {
        let names: Vec<_> = match self.soname {
            Some(_) => self.names(library),
            None => vec![library.to_owned()],
        };
        dirs.iter().flat_map(|dir| names.iter().map(|name| dir.join(name))).collect()
    }

    /// Returns the file of `library` in the first of `dirs` that has one. The error lists the paths that were
    /// tried.
    fn find(&self, library: &str, dirs: &[PathBuf]) -> Result<PathBuf, LoadError> {
        if let Some(file) = self.find_in(library, dirs) {
            return Ok(file);
        }
        let archives = dirs.iter().map(|dir| dir.join(library.replace(".so", ".a")));
        match archives.into_iter().find(|path| path.is_file()) {
            Some(archive) => Err(LoadError::StaticOnly { archive }),
            None => {
                let looked = self.candidates(library, dirs);
                Err(LoadError::NotFound { library: self.first_name(library), looked })
            }
        }
    }

    /// Returns the error for a library that neither is in `dirs` nor was found by the system's loader.
    fn nowhere(&self, library: &str, dirs: &[PathBuf]) -> LoadError {
        let mut looked = self.candidates(library, dirs);
        looked.push(library.into());
        LoadError::NotFound { library: self.first_name(library), looked }
    }

    /// Loads the library that the system's loader finds by its name.
    fn known(&self, library: &str) -> Result<Known, LoadError> {
        for name in self.names(library) {
            let path = PathBuf::from(&name);
            match Loaded::open(&path) {
                Ok(loaded) => return Ok(Known::Loaded(loaded)),
                // The loader found no library of this name, so try the next name. If a dependency is missing,
                // the message names the dependency instead.
                Err(reason) if reason.contains(&format!("{name}: cannot open")) => {}
                Err(reason) => {
                    // Example: "/opt/x/libspdk_util.so.12.0: undefined symbol: spdk_realloc"
                    let unbound =
                        reason.split_once(": undefined symbol").map(|(file, _)| PathBuf::from(file));
                    return match unbound.filter(|file| file.is_absolute()) {
                        Some(file) => Ok(Known::Unbound(file)),
                        None => Err(LoadError::Unloadable { path, reason }),
                    };
                }
            }
        }
        Ok(Known::Nowhere)
    }
}

/// The result of a search by the system's loader for a library's name.
enum Known {
    Loaded(Loaded),
    /// This file, which is the library or one of its dependencies, uses symbols of libraries that it does
    /// not list.
    Unbound(PathBuf),
    Nowhere,
}

/// If no file descriptor is left, replaces the error by [`LoadError::NoDescriptors`], because without
/// descriptors the system's loader and the search report a missing file.
fn check_descriptors(error: LoadError) -> LoadError {
    use LoadError as E;
    let may_be =
        matches!(error, E::NotFound { .. } | E::NotALibrary { .. } | E::Unloadable { .. } | E::NoList { .. });
    if may_be && !has_descriptors() { E::NoDescriptors } else { error }
}

/// Returns whether this process can open [`DESCRIPTORS`] more files.
fn has_descriptors() -> bool {
    let mut held = Vec::with_capacity(DESCRIPTORS);
    for _ in 0..DESCRIPTORS {
        match rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => held.push(file),
            Err(errno) => return !matches!(errno, Errno::MFILE | Errno::NFILE),
        }
    }
    true
}
fn of_processor(dir: &str) -> String {
    dir.replace("{arch}", std::env::consts::ARCH)
}
