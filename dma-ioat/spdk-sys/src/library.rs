//! Finding and loading SPDK's libraries.
#![expect(unsafe_code, reason = "loads libraries and takes their symbols for functions")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Read;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_LAZY, RTLD_NOW};

use crate::{Env, Ioat, LoadError, Log, Release};

/// The environment variable that names the directory of the libraries.
pub const LIB_DIR_VARIABLE: &str = "DMA_SPDK_LIB_DIR";

const ENV: &str = "libspdk_env_dpdk.so";
const IOAT: &str = "libspdk_ioat.so";
const LOG: &str = "libspdk_log.so";

/// Where SPDK's `make install` and distributions put libraries, if the system's loader does not look there by itself.
const USUAL: [&str; 6] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/spdk/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib",
];

/// The numbers after `.so` that the system's loader is asked for: from what is too old, to be told so, to far beyond today's.
const NUMBERS: std::ops::RangeInclusive<u32> = 1..=40;

/// How many libraries that others need are found for them.
const NEEDED_MAX: usize = 128;

/// `spdk_emu_model` of the stand-in SPDK: writes what its channels are models of, in at most `size` bytes, and returns 0.
pub type StandIn = unsafe extern "C" fn(model: *mut c_char, size: usize) -> c_int;

/// SPDK's calls. Once loaded they stay so until the process ends, since DPDK, behind them, has threads and state of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Library {
    /// The environment: memory, PCI functions, cores.
    pub env: Env,
    /// I/OAT.
    pub ioat: Ioat,
    /// The log, if its library was found.
    pub log: Option<Log>,
    /// The release, as far as it is known.
    pub release: Release,
    /// The one call that no SPDK has, if this is the project's stand-in.
    pub stand_in: Option<StandIn>,
    /// The file of the env library; empty if it was not loaded from one.
    pub path: PathBuf,
}

impl Library {
    /// Loads the libraries: from the directory in the environment variable [`LIB_DIR_VARIABLE`] if it is set, and then from nowhere
    /// else; else from where the system finds them, or the usual directories.
    ///
    /// Blocks while files are read.
    ///
    /// # Errors
    ///
    /// [`LoadError`] for the first library that cannot be used.
    pub fn open() -> Result<Self, LoadError> {
        match named() {
            Some(dir) => Self::open_in(&dir),
            None => Self::open_from_system(),
        }
    }

    /// The directories in which [`open`](Self::open) looks, in that order. If the environment variable [`LIB_DIR_VARIABLE`] is not set, the system's search
    /// comes before them.
    #[must_use]
    pub fn directories() -> Vec<PathBuf> {
        match named() {
            Some(dir) => in_and_below(&dir),
            None => USUAL.map(PathBuf::from).into(),
        }
    }

    /// The file that is taken for `library`, such as `libspdk_ioat.so`, from the first of `dirs` that has one: without a number, or with the highest.
    /// Loads nothing.
    #[must_use]
    pub fn find_in(library: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
        dirs.iter().find_map(|dir| {
            let plain = dir.join(library);
            if plain.exists() {
                return Some(plain);
            }
            let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            files.filter(|file| numbered(file, library)).max_by_key(|file| soname_of(file))
        })
    }

    /// Loads the libraries from `dir`, or, if `dir` is an installation's prefix or SPDK's source tree, from its `lib`, `lib64` or `build/lib`. What they
    /// need and the system does not find is loaded from there as well, and from where SPDK's source tree has DPDK.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(dir: &Path) -> Result<Self, LoadError> {
        Self::open_from(&in_and_below(dir))
    }

    /// The calls that other code defines: for tests, or for a program that has loaded the libraries itself.
    #[must_use]
    pub fn from_tables(env: Env, ioat: Ioat, release: Release) -> Self {
        Self { env, ioat, log: None, release, stand_in: None, path: PathBuf::new() }
    }

    /// The calls that this program was linked with; those that a release may lack are looked up when this is called.
    #[cfg(feature = "linked")]
    #[must_use]
    pub fn linked() -> Self {
        let program = Handle::this();
        // SAFETY: the linker found these names in SPDK's libraries, which stay with the program.
        let env = unsafe { Env::linked(|name| symbol(&program, name)) };
        // SAFETY: as above.
        let ioat = unsafe { Ioat::linked(|name| symbol(&program, name)) };
        // SAFETY: as above.
        let log = Some(unsafe { Log::linked(|name| symbol(&program, name)) });
        Self { log, stand_in: stand_in(&program), ..Self::from_tables(env, ioat, Release::default()) }
    }

    fn open_from(dirs: &[PathBuf]) -> Result<Self, LoadError> {
        let env_file = find(ENV, dirs)?;
        let home = env_file.parent().unwrap_or(Path::new("")).to_owned();
        // The other is of the same installation.
        let ioat_file = find(IOAT, std::slice::from_ref(&home))?;
        let beside = [home.join("../../dpdk/build/lib"), home.join("../dpdk/lib"), home];
        // The I/OAT library takes the env calls from whoever has them, and names nobody: env comes first, seen by all.
        let env = load(&env_file, &beside)?;
        let ioat = load(&ioat_file, &beside)?;
        Self::bind((env, env_file), (ioat, ioat_file))
    }

    fn open_from_system() -> Result<Self, LoadError> {
        let mut missing = ENV;
        if let Some(env) = known(ENV)? {
            if let Some(ioat) = known(IOAT)? {
                return Self::bind(env, ioat);
            }
            missing = IOAT;
        }
        let dirs = USUAL.map(PathBuf::from);
        Self::open_from(&dirs).map_err(|error| match error {
            // The usual directories have none of them: what is missing is what the system lacks.
            LoadError::NotFound { library: ENV, .. } => {
                let looked = dirs.iter().map(|dir| dir.join(missing));
                LoadError::NotFound {
                    library: missing,
                    looked: std::iter::once(PathBuf::from(missing)).chain(looked).collect(),
                }
            }
            other => other,
        })
    }

    fn bind(
        (env, env_path): (ManuallyDrop<Handle>, PathBuf),
        (ioat, ioat_path): (ManuallyDrop<Handle>, PathBuf),
    ) -> Result<Self, LoadError> {
        let path = symbol(&env, c"spdk_env_init").and_then(file_of).unwrap_or(env_path);
        let release = Release::of_soname(soname_of(&path));
        if release.soname().is_some_and(|soname| soname < Release::LEAST) {
            return Err(LoadError::TooOld { path, release });
        }
        let incomplete = |path: PathBuf| {
            move |missing: Vec<&CStr>| {
                let symbols = missing.iter().map(|name| name.to_string_lossy().into_owned()).collect();
                LoadError::MissingSymbols { path, release, symbols }
            }
        };
        // SAFETY: the library says by its name that it is SPDK's, whose functions the declarations describe; it stays loaded.
        let env_calls = unsafe { Env::load(|name| symbol(&env, name)) }.map_err(incomplete(path.clone()))?;
        // SAFETY: as above.
        let ioat_calls = unsafe { Ioat::load(|name| symbol(&ioat, name)) }.map_err(incomplete(ioat_path))?;
        let log = log_of(&env, &path);
        Ok(Self { env: env_calls, ioat: ioat_calls, log, release, stand_in: stand_in(&env), path })
    }
}

/// The directory that the user named.
fn named() -> Option<PathBuf> {
    std::env::var_os(LIB_DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// A directory of libraries, an installation's prefix, or SPDK's source tree.
fn in_and_below(dir: &Path) -> Vec<PathBuf> {
    vec![dir.to_owned(), dir.join("lib"), dir.join("lib64"), dir.join("build/lib")]
}

fn stand_in(env: &Handle) -> Option<StandIn> {
    // SAFETY: only the stand-in has a call of this name, with these parameters.
    symbol(env, c"spdk_emu_model").map(|f| unsafe { std::mem::transmute::<NonNull<c_void>, StandIn>(f) })
}

/// The log, of the library that the env library needs, or of the one beside it.
fn log_of(env: &Handle, path: &Path) -> Option<Log> {
    // SAFETY: what has these names is SPDK's, whose functions the declarations describe; it stays loaded.
    let calls = |library: &Handle| unsafe { Log::load(|name| symbol(library, name)) }.ok();
    calls(env).or_else(|| {
        let beside = [path.parent()?.to_owned()];
        let library = load(&find(LOG, &beside).ok()?, &beside).ok()?;
        calls(&library)
    })
}

fn symbol(library: &Handle, name: &'static CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the address is only kept; who calls it has its type from the headers.
    let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    NonNull::new(symbol.as_raw_ptr())
}

/// Loads a library whose calls all others see. What it needs and the system does not find is loaded from `beside`.
fn load(file: &Path, beside: &[PathBuf]) -> Result<ManuallyDrop<Handle>, LoadError> {
    is_elf(file)?;
    let mut budget = NEEDED_MAX;
    load_within(file, RTLD_NOW, beside, &mut budget)
}

fn load_within(
    file: &Path,
    binding: c_int,
    beside: &[PathBuf],
    budget: &mut usize,
) -> Result<ManuallyDrop<Handle>, LoadError> {
    let mut last = String::new();
    loop {
        let reason = match open(file, binding) {
            Ok(handle) => return Ok(handle),
            Err(reason) => reason,
        };
        // "libspdk_log.so.9: cannot open shared object file: No such file or directory"
        let needed = reason.split(':').next().unwrap_or_default().trim();
        let path = beside.iter().map(|dir| dir.join(needed)).find(|path| path.is_file());
        let Some(path) = path.filter(|path| reason != last && path != file && *budget > 0) else {
            return Err(LoadError::Unloadable { path: file.to_owned(), reason });
        };
        *budget -= 1;
        // Not bound yet: libspdk_util calls libspdk_env_dpdk, which needs it, and does not say so.
        load_within(&path, RTLD_LAZY, beside, budget)?;
        last = reason;
    }
}

/// Asks the system's loader; the error is what it says.
fn open(file: &Path, binding: c_int) -> Result<ManuallyDrop<Handle>, String> {
    // SAFETY: libraries of SPDK's and DPDK's names run their initialisers, as they would in any program linked with them.
    match unsafe { Handle::open(Some(file), binding | RTLD_GLOBAL) } {
        Ok(handle) => Ok(ManuallyDrop::new(handle)),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Err(cause.unwrap_or_else(|| error.to_string()))
        }
    }
}

/// The library `name` that the system's loader knows, the newest first.
fn known(name: &str) -> Result<Option<(ManuallyDrop<Handle>, PathBuf)>, LoadError> {
    let versioned = NUMBERS.rev().map(|n| format!("{name}.{n}"));
    for file in std::iter::once(name.to_owned()).chain(versioned) {
        let path = PathBuf::from(&file);
        match open(&path, RTLD_NOW) {
            Ok(handle) => return Ok(Some((handle, path))),
            // The system says the same of a file that it does not find and of one that it cannot load.
            Err(reason) if reason.contains(&format!("{file}: cannot open")) => {}
            Err(reason) => return Err(LoadError::Unloadable { path, reason }),
        }
    }
    Ok(None)
}

/// The file of the library `name` in the first of `dirs` that has one: without a number, or with the highest.
fn find(name: &'static str, dirs: &[PathBuf]) -> Result<PathBuf, LoadError> {
    if let Some(file) = Library::find_in(name, dirs) {
        return Ok(file);
    }
    let archives = dirs.iter().map(|dir| dir.join(name.replace(".so", ".a")));
    match archives.into_iter().find(|path| path.is_file()) {
        Some(archive) => Err(LoadError::StaticOnly { archive }),
        None => Err(LoadError::NotFound {
            library: name,
            looked: dirs.iter().map(|dir| dir.join(name)).collect(),
        }),
    }
}

/// Whether the file is called `name.NUMBER` or `name.NUMBER.NUMBER`.
fn numbered(file: &Path, name: &str) -> bool {
    let number = file.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('.'));
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// The number behind `.so`.
fn soname_of(file: &Path) -> Option<u32> {
    let (_, version) = file.file_name()?.to_str()?.split_once(".so.")?;
    version.split('.').next()?.parse().ok()
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

/// The file that a function is in, links followed: its name has the number.
fn file_of(function: NonNull<c_void>) -> Option<PathBuf> {
    let address = function.addr().get();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let path = || rest.find('/').map(|at| PathBuf::from(&rest[at..]));
        (hex(start)? <= address && address < hex(end)?).then(path)?
    })?;
    Some(std::fs::canonicalize(&path).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_by_the_number_of_the_env_library() {
        let of = |file: &str| Release::of_soname(soname_of(Path::new(file))).to_string();
        assert_eq!(of("/x/libspdk_env_dpdk.so.17.0"), "26.05");
        assert_eq!(of("/x/libspdk_env_dpdk.so.12"), "23.05 to 23.09");
        assert!(of("/x/libspdk_env_dpdk.so.11.0").contains("before 23.05"));
        assert!(of("/x/libspdk_env_dpdk.so.99").contains("after 26.05"));
        assert!(of("/x/libspdk_env_dpdk.so").contains("unknown"));
    }

    #[test]
    fn a_function_is_in_a_file() {
        let function: fn() = a_function_is_in_a_file;
        let file = file_of(NonNull::new(function as *mut c_void).unwrap()).unwrap();
        assert_eq!(file, std::env::current_exe().unwrap().canonicalize().unwrap());
    }
}
