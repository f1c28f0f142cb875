//! SPDK's libraries and their calls.
#![expect(unsafe_code, reason = "uses symbols as functions")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use dma_vendor::{ImplicitSymbols, LoadError, Loaded, Vendor, soname_in_name};

use crate::{Env, Ioat, Log, Release};

/// The environment variable that names the directory of the libraries.
pub const LIB_DIR_VARIABLE: &str = "DMA_SPDK_LIB_DIR";

const LOG: &str = "libspdk_log.so";

/// SPDK's libraries and their usual directories.
pub static SPDK: Vendor = Vendor {
    sdk: "SPDK",
    min_version: "23.05",
    build: " built with ./configure --with-shared",
    variable: LIB_DIR_VARIABLE,
    required_libs: &["libspdk_env_dpdk.so", "libspdk_ioat.so"],
    optional_libs: &[LOG],
    soname: None,
    default_dirs: &["/opt/spdk/lib"],
    lib_subdirs: &["lib", "lib64", "build/lib"],
    dependency_dirs,
    implicit_symbols: &[
        ImplicitSymbols {
            prefixes: &["rte_"],
            product: "DPDK",
            // The last two libraries register themselves, and are not called by name.
            libraries: &[
                "librte_eal.so",
                "librte_ring.so",
                "librte_mempool.so",
                "librte_pci.so",
                "librte_bus_pci.so",
                "librte_mempool_ring.so",
            ],
        },
        ImplicitSymbols {
            prefixes: &["EVP_", "OPENSSL_", "SSL_"],
            product: "OpenSSL",
            libraries: &["libcrypto.so", "libssl.so"],
        },
    ],
};

/// `spdk_emu_model` of the stand-in SPDK: writes the profiles of its channels, in at most `size` bytes, and
/// returns 0.
pub type StandIn = unsafe extern "C" fn(model: *mut c_char, size: usize) -> c_int;

/// SPDK's calls. The libraries are never unloaded, because DPDK has threads and state of its own.
///
/// The tables can be read, but not replaced, because engines trust them:
///
/// ```compile_fail,E0594
/// # fn demo(mut library: spdk_sys::Library, other: spdk_sys::Env) {
/// library.env = other;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Library(Tables);

impl Deref for Library {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.0
    }
}

/// The tables of a [`Library`], and its facts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tables {
    /// The environment: memory, PCI functions, cores.
    pub env: Env,
    /// The calls for I/OAT channels.
    pub ioat: Ioat,
    /// The log, if its library was found.
    pub log: Option<Log>,
    /// The release, if it is known.
    pub release: Release,
    /// The version of DPDK that SPDK uses, such as `DPDK 23.11.0`, if it is known.
    pub dpdk: Option<String>,
    /// The call that identifies the project's stand-in; `None` for SPDK.
    pub stand_in: Option<StandIn>,
    /// The file of the env library. Empty if the calls were linked or passed as tables.
    pub path: PathBuf,
}

impl Library {
    /// Finds and loads the libraries, as [`Vendor::open`] does for [`SPDK`].
    ///
    /// # Errors
    ///
    /// [`LoadError`] for the first library that cannot be used.
    pub fn open() -> Result<Self, LoadError> {
        Self::of(&SPDK.open()?)
    }

    /// Loads the libraries from `dir`, as [`Vendor::open_in`] does for [`SPDK`].
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_in(dir: &Path) -> Result<Self, LoadError> {
        Self::of(&SPDK.open_in(dir)?)
    }

    /// Uses calls that other code provides, for tests or for programs that have loaded the libraries
    /// themselves.
    ///
    /// Safe code cannot pass tables:
    ///
    /// ```compile_fail,E0133
    /// # fn demo(env: spdk_sys::Env, ioat: spdk_sys::Ioat) {
    /// let library = spdk_sys::Library::from_tables(env, ioat, None, spdk_sys::Release::default());
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// Each function must behave as the vendor's headers and documentation say about the function of its
    /// name, and must stay loaded as long as the library or a clone of it is used.
    #[must_use]
    pub unsafe fn from_tables(env: Env, ioat: Ioat, log: Option<Log>, release: Release) -> Self {
        Self(Tables { env, ioat, log, release, dpdk: None, stand_in: None, path: PathBuf::new() })
    }

    /// Uses the calls that this program was linked with. Calls that a release may lack are looked up by this
    /// function. If only shared libraries were installed when the program was built, they are loaded from the
    /// same directory. If no libraries were installed then, this function loads them as [`open`](Self::open)
    /// does.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open). A program that was linked with static libraries gets no error.
    #[cfg(feature = "linked")]
    pub fn linked() -> Result<Self, LoadError> {
        #[cfg(not(spdk_linked))]
        return match option_env!("DMA_SPDK_LINKED_DIR") {
            Some(dir) if SPDK.named().is_none() => Self::open_in(Path::new(dir)),
            _ => Self::open(),
        };
        #[cfg(spdk_linked)]
        Ok(Self::of_program())
    }

    #[cfg(spdk_linked)]
    fn of_program() -> Self {
        let program = Loaded::program();
        // SAFETY: the linker found these names in SPDK's libraries, which are part of the program and whose
        // functions the declarations describe.
        let env = unsafe { Env::linked(|name| program.symbol(name)) };
        // SAFETY: the linker found these names in `libspdk_ioat`, whose functions the declarations describe.
        let ioat = unsafe { Ioat::linked(|name| program.symbol(name)) };
        // SAFETY: the linker found these names in `libspdk_log`, whose functions the declarations describe.
        let log = Some(unsafe { Log::linked(|name| program.symbol(name)) });
        // SAFETY: the functions are those of SPDK's libraries, which the program is linked with.
        let Self(tables) = unsafe { Self::from_tables(env, ioat, log, Release::default()) };
        Self(Tables { dpdk: dpdk(&program), stand_in: stand_in(&program), ..tables })
    }

    fn of(loaded: &[Loaded]) -> Result<Self, LoadError> {
        let [env, ioat] = loaded else { unreachable!("one library for each name of `required_libs`") };
        let path = env.symbol(c"spdk_env_init").and_then(file_of).unwrap_or_else(|| env.path().to_owned());
        let release = Release::of_soname(soname_in_name(&path));
        let version = format!("SPDK {release}");
        if release.soname().is_some_and(|soname| soname < Release::LEAST) {
            return Err(LoadError::TooOld { path, version });
        }
        let incomplete =
            |library: &Loaded, missing: Vec<&CStr>| library.incomplete(version.clone(), &missing);
        // SAFETY: by its name, the library is SPDK's, and the declarations describe SPDK's functions. It
        // stays loaded.
        let env_calls =
            unsafe { Env::load(|name| env.symbol(name)) }.map_err(|missing| incomplete(env, missing))?;
        // SAFETY: by its name, the library is `libspdk_ioat`, whose functions the declarations describe. It
        // stays loaded.
        let ioat_calls =
            unsafe { Ioat::load(|name| ioat.symbol(name)) }.map_err(|missing| incomplete(ioat, missing))?;
        // SAFETY: functions of these names are those of SPDK's log, which the declarations describe; the
        // library stays loaded.
        let log_calls = |library: &Loaded| unsafe { Log::load(|name| library.symbol(name)) }.ok();
        // In all releases up to now, the env library depends on the log library.
        let log = log_calls(env).or_else(|| log_calls(&SPDK.open_beside(LOG, env).ok()?));
        // A library that does not name DPDK as a dependency has found it among the symbols of the program.
        let dpdk = dpdk(env).or_else(|| dpdk(&Loaded::program()));
        let stand_in = stand_in(env);
        Ok(Self(Tables { env: env_calls, ioat: ioat_calls, log, release, dpdk, stand_in, path }))
    }
}

fn stand_in(env: &Loaded) -> Option<StandIn> {
    // SAFETY: only the stand-in has a function of this name, which has these parameters.
    env.symbol(c"spdk_emu_model").map(|f| unsafe { dma_vendor::function(f) })
}

/// Returns the version of the DPDK that `loaded` uses, as DPDK reports it.
fn dpdk(loaded: &Loaded) -> Option<String> {
    let symbol = loaded.symbol(c"rte_version")?;
    // SAFETY: DPDK's call of this name has no parameters, and returns a string (`rte_version.h`).
    let version: unsafe extern "C" fn() -> *const c_char = unsafe { dma_vendor::function(symbol) };
    // SAFETY: the call only formats a number, and can be made before DPDK is set up.
    let text = NonNull::new(unsafe { version() }.cast_mut())?;
    // SAFETY: the pointer is not null, so it is DPDK's string, which DPDK never changes or frees.
    Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

/// Returns the directories of SPDK's libraries in `home` and of their DPDK, in SPDK's build or source tree.
fn dependency_dirs(home: &Path) -> Vec<PathBuf> {
    let said = std::fs::read_to_string(home.join("pkgconfig/spdk_dpdklibs.pc")).unwrap_or_default();
    let said = said.lines().filter_map(|line| line.strip_prefix("Libs:")).flat_map(str::split_whitespace);
    let said =
        said.filter_map(|flag| flag.strip_prefix("-L")).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let own = [home.to_owned(), home.join("../../dpdk/build/lib"), home.join("../dpdk/lib")];
    own.into_iter().chain(said).collect()
}

/// Returns the file that a function was loaded from. Links are resolved, because only the file's own name has
/// the number.
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
        let of = |file: &str| Release::of_soname(soname_in_name(Path::new(file))).to_string();
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
