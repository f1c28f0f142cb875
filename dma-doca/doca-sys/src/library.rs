//! Finding and loading the SDK's libraries.
#![expect(unsafe_code, reason = "loads libraries and takes their symbols for functions")]

use std::ffi::{CStr, c_char, c_void};
use std::io::Read;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW};

use crate::bindings::{doca_devinfo, doca_error_t};
use crate::{Comch, Common, Dma, LoadError};

/// The environment variable that names the directory of the libraries.
pub const LIB_DIR_VARIABLE: &str = "DMA_DOCA_LIB_DIR";

/// `doca_emu_model` of the stand-in SDK: writes which profile a device is a model of, in at most `size` bytes.
pub type StandIn =
    unsafe extern "C" fn(devinfo: *const doca_devinfo, model: *mut c_char, size: u32) -> doca_error_t;

/// The SDK's calls. Once loaded they stay so until the process ends, since the libraries have threads and state of their own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Library {
    /// Devices, memory, buffers, progress engines, tasks, logs.
    pub common: Common,
    /// DMA.
    pub dma: Dma,
    /// The comm channel; its library is a package of its own and may be absent.
    pub comch: Option<Comch>,
    /// Why there is no comm channel.
    pub comch_missing: Option<LoadError>,
    /// The one call that no SDK has, if this is the project's stand-in.
    pub stand_in: Option<StandIn>,
    /// The libraries' version as they state it, else as the file's name does, else empty.
    pub version: String,
    /// The file of the common library; empty if it was not loaded from one.
    pub path: PathBuf,
}

impl Library {
    /// Loads the libraries: from the directory in the environment variable [`LIB_DIR_VARIABLE`] if it is set, and then from nowhere
    /// else; else from the SDK's default prefix, `/opt/mellanox/doca`; else from where the system finds them.
    ///
    /// Blocks while files are read.
    ///
    /// # Errors
    ///
    /// [`LoadError`] for the first library that is required and cannot be used.
    pub fn open() -> Result<Self, LoadError> {
        Self::open_from(&Self::directories(), named().is_none())
    }

    /// The directories in which [`open`](Self::open) looks, in that order. If the environment variable [`LIB_DIR_VARIABLE`] is not set, the system's search
    /// comes after them.
    #[must_use]
    pub fn directories() -> Vec<PathBuf> {
        match named() {
            Some(dir) => in_and_below(&dir),
            None => default_dirs(),
        }
    }

    /// The file that is taken for `library`, such as `libdoca_dma.so`, from the first of `dirs` that has one. Loads nothing.
    #[must_use]
    pub fn find_in(library: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
        candidates(library, dirs).into_iter().find(|path| path.exists())
    }

    /// Loads the libraries from `dir`, or, if `dir` is an installation's prefix, from its `lib/<arch>-linux-gnu` or `lib64`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(dir: &Path) -> Result<Self, LoadError> {
        Self::open_from(&in_and_below(dir), false)
    }

    /// The calls that other code defines: for tests, or for a program that has loaded the libraries itself. `version` is what it says of itself.
    #[must_use]
    pub fn from_tables(common: Common, dma: Dma, comch: Option<Comch>, version: impl Into<String>) -> Self {
        Self {
            common,
            dma,
            comch,
            comch_missing: None,
            stand_in: None,
            version: version.into(),
            path: PathBuf::new(),
        }
    }

    /// The calls that this program was linked with; those that a version may lack are looked up when this is called.
    #[cfg(feature = "linked")]
    #[must_use]
    pub fn linked() -> Self {
        let this = File { handle: ManuallyDrop::new(Handle::this()), path: PathBuf::new() };
        // SAFETY: the linker and the system found these names in the SDK's libraries, which stay loaded with the program.
        let common = unsafe { Common::linked(|name| this.symbol(name)) };
        // SAFETY: as above.
        let dma = unsafe { Dma::linked(|name| this.symbol(name)) };
        // SAFETY: as above.
        let comch = unsafe { Comch::linked(|name| this.symbol(name)) };
        // SAFETY: `doca_version_runtime` is this.
        let version = common.doca_version_runtime.and_then(|call| unsafe { stated(call) });
        let tables = Self::from_tables(common, dma, Some(comch), version.unwrap_or_default());
        Self { stand_in: this.stand_in(), ..tables }
    }

    fn open_from(dirs: &[PathBuf], system: bool) -> Result<Self, LoadError> {
        let common = File::find("libdoca_common.so", dirs, system)?;
        // SAFETY: the library says by its name that it is the SDK's, whose functions the declarations describe; it stays loaded.
        let loaded = unsafe { Common::load(|name| common.symbol(name)) };
        let calls = loaded.map_err(|missing| common.incomplete(missing))?;
        // The others are of the same installation.
        let beside: Vec<_> = common
            .path
            .parent()
            .filter(|d| !d.as_os_str().is_empty())
            .map(Path::to_owned)
            .into_iter()
            .collect();
        let dma = File::find("libdoca_dma.so", &beside, beside.is_empty())?;
        // SAFETY: as above.
        let dma_calls =
            unsafe { Dma::load(|name| dma.symbol(name)) }.map_err(|missing| dma.incomplete(missing))?;
        let comch = File::find("libdoca_comch.so", &beside, beside.is_empty()).and_then(|comch| {
            // SAFETY: as above.
            unsafe { Comch::load(|name| comch.symbol(name)) }.map_err(|missing| comch.incomplete(missing))
        });
        let (comch, comch_missing) = match comch {
            Ok(calls) => (Some(calls), None),
            Err(error) => (None, Some(error)),
        };
        let version = common.version().unwrap_or_default();
        Ok(Self {
            common: calls,
            dma: dma_calls,
            comch,
            comch_missing,
            stand_in: common.stand_in(),
            version,
            path: common.path.clone(),
        })
    }
}

/// The directory that the user named.
fn named() -> Option<PathBuf> {
    std::env::var_os(LIB_DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Where the SDK installs its libraries.
fn default_dirs() -> Vec<PathBuf> {
    below(Path::new("/opt/mellanox/doca")).into()
}

/// Where an installation has its libraries: on Debian and its like, and on Red Hat's.
fn below(prefix: &Path) -> [PathBuf; 2] {
    [prefix.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)), prefix.join("lib64")]
}

/// A directory of libraries, or an installation's prefix.
fn in_and_below(dir: &Path) -> Vec<PathBuf> {
    std::iter::once(dir.to_owned()).chain(below(dir)).collect()
}

/// A library's names, the one that is looked for first in front.
fn names(library: &str) -> [String; 2] {
    [format!("{library}.2"), library.to_owned()]
}

/// All that a library may be in `dirs`, in the order in which it is looked for.
fn candidates(library: &str, dirs: &[PathBuf]) -> Vec<PathBuf> {
    let names = names(library);
    dirs.iter().flat_map(|dir| names.iter().map(|name| dir.join(name))).collect()
}

/// A loaded library, never unloaded.
struct File {
    handle: ManuallyDrop<Handle>,
    path: PathBuf,
}

impl File {
    /// Loads the first `name.2` or `name` that exists in `dirs`, or, with `system`, that the system finds.
    fn find(name: &str, dirs: &[PathBuf], system: bool) -> Result<Self, LoadError> {
        if let Some(path) = Library::find_in(name, dirs) {
            return Self::load(path);
        }
        let names = names(name);
        let mut looked = candidates(name, dirs);
        if system {
            for name in &names {
                match Self::load(PathBuf::from(name)) {
                    // The system says the same of a file that it does not find and of one that it cannot load.
                    Err(LoadError::Unloadable { path, reason })
                        if !reason.contains(&format!("{name}: cannot open")) =>
                    {
                        return Err(LoadError::Unloadable { path, reason });
                    }
                    Err(_) => looked.push(PathBuf::from(name)),
                    Ok(file) => return Ok(file),
                }
            }
        }
        Err(LoadError::NotFound { library: names[0].clone(), looked })
    }

    fn load(path: PathBuf) -> Result<Self, LoadError> {
        if path.is_absolute() || path.components().count() > 1 {
            is_elf(&path)?;
        }
        // SAFETY: a library of the SDK's name runs its initialisers, as it would in any program linked with it.
        match unsafe { Handle::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(handle) => Ok(Self { handle: ManuallyDrop::new(handle), path }),
            Err(e) => {
                let cause = std::error::Error::source(&e).map(ToString::to_string);
                Err(LoadError::Unloadable { path, reason: cause.unwrap_or_else(|| e.to_string()) })
            }
        }
    }

    fn symbol(&self, name: &'static CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the address is only kept; who calls it has its type from the headers.
        let symbol = unsafe { self.handle.get::<*mut c_void>(name) }.ok()?;
        NonNull::new(symbol.as_raw_ptr())
    }

    fn stand_in(&self) -> Option<StandIn> {
        // SAFETY: only the stand-in has a call of this name, with these parameters.
        self.symbol(c"doca_emu_model").map(|f| unsafe { std::mem::transmute::<NonNull<c_void>, StandIn>(f) })
    }

    fn version(&self) -> Option<String> {
        let runtime = self.symbol(c"doca_version_runtime").and_then(|f| {
            // SAFETY: of a library that declares it, the call takes nothing and returns a string.
            let call = unsafe { std::mem::transmute::<NonNull<c_void>, VersionRuntime>(f) };
            // SAFETY: as above.
            unsafe { stated(call) }
        });
        // Installed as `libdoca_common.so.2.10.0087`, with links of shorter names to it.
        runtime.or_else(|| {
            let file = self.path.canonicalize().ok()?;
            let (_, version) = file.file_name()?.to_str()?.split_once(".so.")?;
            // A single number is the interface's, which all have.
            version.contains('.').then(|| version.to_owned())
        })
    }

    /// The error for a library without the calls `missing`.
    fn incomplete(&self, missing: Vec<&'static CStr>) -> LoadError {
        let (path, version) = (self.path.clone(), self.version());
        if self.symbol(c"doca_workq_create").is_some() {
            return LoadError::TooOld { path, version };
        }
        let symbols = missing.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        LoadError::MissingSymbols { path, version, symbols }
    }
}

type VersionRuntime = unsafe extern "C" fn() -> *const c_char;

/// What a library says of its version.
///
/// # Safety
///
/// `call` is `doca_version_runtime`: it returns a string that lives as long as its library, or none.
unsafe fn stated(call: VersionRuntime) -> Option<String> {
    // SAFETY: the caller's promise.
    let text = unsafe { call() };
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Whether a file begins as libraries do and is there to its end: the system maps one that is cut off, and dies of it.
fn is_elf(path: &Path) -> Result<(), LoadError> {
    /// Of a header for 64 bits, in bytes.
    const HEADER: usize = 64;
    let bad = |reason: &str| LoadError::NotALibrary { path: path.to_owned(), reason: reason.to_owned() };
    let metadata = std::fs::metadata(path).map_err(|e| bad(&e.to_string()))?;
    if !metadata.is_file() {
        return Err(bad("not a file"));
    }
    let mut header = Vec::with_capacity(HEADER);
    std::fs::File::open(path)
        .and_then(|file| file.take(HEADER as u64).read_to_end(&mut header))
        .map_err(|e| bad(&e.to_string()))?;
    if !header.starts_with(b"\x7fELF") {
        return Err(bad("it does not begin as an ELF file does"));
    }
    let Ok(header) = <[u8; HEADER]>::try_from(header) else { return Err(bad("it is too short")) };
    // The table of sections is the last thing in a file. What is for 32 bits is refused for that.
    let [table, size, count] = [0x28..0x30, 0x3a..0x3c, 0x3c..0x3e].map(|place: std::ops::Range<usize>| {
        header[place].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    });
    if header[4] == 2 && table.saturating_add(size * count) > metadata.len() {
        return Err(bad("it is cut off"));
    }
    Ok(())
}
