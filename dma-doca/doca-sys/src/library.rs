//! The SDK's libraries and their calls.
#![expect(unsafe_code, reason = "uses symbols as functions")]

use std::ffi::{CStr, c_char};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dma_vendor::{LoadError, Loaded, Vendor, version_in_name};

use crate::bindings::{doca_devinfo, doca_error_t};
use crate::workq::{self, WorkqCommon, WorkqDma};
use crate::{Comch, Common, Dma};

/// The environment variable that names the directory of the libraries.
pub const LIB_DIR_VARIABLE: &str = "DMA_DOCA_LIB_DIR";

/// The SDK's libraries and their usual directories.
pub static DOCA: Vendor = Vendor {
    sdk: "the DOCA SDK",
    min_version: "1.5",
    build: "",
    variable: LIB_DIR_VARIABLE,
    required_libs: &["libdoca_common.so", "libdoca_dma.so"],
    optional_libs: &[],
    soname: Some(2),
    default_dirs: &["/opt/mellanox/doca/lib/{arch}-linux-gnu", "/opt/mellanox/doca/lib64"],
    lib_subdirs: &["lib/{arch}-linux-gnu", "lib64"],
    dependency_dirs: |home| vec![home.to_owned()],
    implicit_symbols: &[],
};

/// The generation of the library that was loaded first (true for work queues), and the library's file. Only
/// one generation can be loaded, because the generations have calls of the same names, which the system's
/// loader would mix in one process.
static GENERATION: OnceLock<(bool, PathBuf)> = OnceLock::new();

/// `doca_emu_model` of the stand-in SDK: writes the profile of a device, in at most `size` bytes.
pub type StandIn =
    unsafe extern "C" fn(devinfo: *const doca_devinfo, model: *mut c_char, size: u32) -> doca_error_t;

/// The SDK's calls. The libraries are never unloaded, because they have threads and state of their own.
///
/// The tables can be read, but not replaced, because engines trust them:
///
/// ```compile_fail,E0594
/// # fn demo(mut library: doca_sys::Library, other: doca_sys::Common) {
/// library.common = other;
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
    /// Devices, memory, buffers, progress engines, tasks, logs.
    pub common: Common,
    /// Copies.
    pub dma: Dma,
    /// The comm channel. Its library is a separate package, which may be absent.
    pub comch: Option<Comch>,
    /// The error of loading the comm channel's library, if it failed.
    pub comch_missing: Option<LoadError>,
    /// The call that identifies the project's stand-in; `None` for an SDK.
    pub stand_in: Option<StandIn>,
    /// The version that the common library reports. If it reports none, the version in its file's name. Empty
    /// if both are missing.
    pub version: String,
    /// The file of the common library. Empty if the calls were linked or passed as tables.
    pub path: PathBuf,
}

impl Library {
    /// Finds and loads the libraries, as [`Vendor::open`] does for [`DOCA`].
    ///
    /// # Errors
    ///
    /// [`LoadError`] for the first library that is required and cannot be used.
    pub fn open() -> Result<Self, LoadError> {
        Self::of(&DOCA.open()?)
    }

    /// Loads the libraries from `dir`, as [`Vendor::open_in`] does for [`DOCA`].
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_in(dir: &Path) -> Result<Self, LoadError> {
        Self::of(&DOCA.open_in(dir)?)
    }

    /// Uses calls that other code provides, for tests or for programs that have loaded the libraries
    /// themselves. Error messages contain `version`.
    ///
    /// Safe code cannot pass tables:
    ///
    /// ```compile_fail,E0133
    /// # fn demo(common: doca_sys::Common, dma: doca_sys::Dma) {
    /// let library = doca_sys::Library::from_tables(common, dma, None, "");
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// Each function must behave as the vendor's headers and documentation say about the function of its
    /// name, and must stay loaded as long as the library or a clone of it is used.
    #[must_use]
    pub unsafe fn from_tables(
        common: Common,
        dma: Dma,
        comch: Option<Comch>,
        version: impl Into<String>,
    ) -> Self {
        Self(Tables {
            common,
            dma,
            comch,
            comch_missing: None,
            stand_in: None,
            version: version.into(),
            path: PathBuf::new(),
        })
    }

    /// Uses the calls that this program was linked with. Calls that a version may lack are looked up by this
    /// function.
    #[cfg(feature = "linked")]
    #[must_use]
    pub fn linked() -> Self {
        let program = Loaded::program();
        // SAFETY: the linker and the system found these names in the SDK's libraries, which stay loaded with
        // the program.
        let common = unsafe { Common::linked(|name| program.symbol(name)) };
        // SAFETY: the declarations are those of the library that the program is linked with, which stays
        // loaded with the program.
        let dma = unsafe { Dma::linked(|name| program.symbol(name)) };
        // SAFETY: the declarations are those of the library that the program is linked with, which stays
        // loaded with the program.
        let comch = unsafe { Comch::linked(|name| program.symbol(name)) };
        let version = version(&program).unwrap_or_default();
        // SAFETY: the functions are those of the SDK's libraries, which the program is linked with.
        let Self(tables) = unsafe { Self::from_tables(common, dma, Some(comch), version) };
        Self(Tables { stand_in: stand_in(&program), ..tables })
    }

    fn of(loaded: &[Loaded]) -> Result<Self, LoadError> {
        let [common, dma] = loaded else { unreachable!("one library for each of `required_libs`") };
        let work_queues =
            common.symbol(c"doca_workq_create").is_some() && common.symbol(c"doca_pe_create").is_none();
        if let Some((_, other)) = GENERATION.get().filter(|(of, _)| *of != work_queues) {
            return Err(LoadError::Second { path: common.path().to_owned(), other: other.clone() });
        }
        let library =
            if work_queues { Self::of_work_queues(common, dma) } else { Self::of_tasks(common, dma) }?;
        GENERATION.get_or_init(|| (work_queues, common.path().to_owned()));
        Ok(library)
    }

    fn of_tasks(common: &Loaded, dma: &Loaded) -> Result<Self, LoadError> {
        let incomplete =
            |library: &Loaded, missing: &[&CStr]| library.incomplete(named(version(common)), missing);
        // SAFETY: by its name, the library is the SDK's, and the declarations describe the SDK's functions.
        // It stays loaded.
        let common_calls = unsafe { Common::load(|name| common.symbol(name)) }
            .map_err(|missing| incomplete(common, &missing))?;
        // SAFETY: the declarations are those of the functions of `libdoca_dma.so`, which stays loaded.
        let dma_calls =
            unsafe { Dma::load(|name| dma.symbol(name)) }.map_err(|missing| incomplete(dma, &missing))?;
        let comch = DOCA.open_beside("libdoca_comch.so", common).and_then(|comch| {
            // SAFETY: the declarations are those of the functions of `libdoca_comch.so`, which stays loaded.
            unsafe { Comch::load(|name| comch.symbol(name)) }.map_err(|missing| incomplete(&comch, &missing))
        });
        let (comch, comch_missing) = match comch {
            Ok(calls) => (Some(calls), None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self(Tables {
            common: common_calls,
            dma: dma_calls,
            comch,
            comch_missing,
            stand_in: stand_in(common),
            version: version(common).unwrap_or_default(),
            path: common.path().to_owned(),
        }))
    }

    fn of_work_queues(common: &Loaded, dma: &Loaded) -> Result<Self, LoadError> {
        let incomplete =
            |library: &Loaded, missing: &[&CStr]| library.incomplete(named(version(common)), missing);
        // SAFETY: the library has the calls of this generation, and not those of later ones, so the
        // declarations of this generation describe its functions. It stays loaded.
        let own_common = unsafe { WorkqCommon::load(|name| common.symbol(name)) }
            .map_err(|missing| incomplete(common, &missing))?;
        // SAFETY: the declarations are those of the functions of `libdoca_dma.so` of this generation, which
        // stays loaded.
        let own_dma = unsafe { WorkqDma::load(|name| dma.symbol(name)) }
            .map_err(|missing| incomplete(dma, &missing))?;
        let missing = workq::missing(&own_common);
        if !missing.is_empty() {
            return Err(LoadError::MissingSymbols {
                path: common.path().to_owned(),
                version: named(version(common)),
                symbols: missing.into_iter().map(str::to_owned).collect(),
            });
        }
        // SAFETY: the tables have the functions of the loaded libraries.
        let (common_calls, dma_calls) = unsafe { workq::tables(&own_common, &own_dma, common.path()) }
            .map_err(|other| LoadError::Second { path: common.path().to_owned(), other })?;
        let version = version(common).unwrap_or_default();
        // SAFETY: the functions call those of the loaded libraries, which are never unloaded.
        let Self(tables) = unsafe { Self::from_tables(common_calls, dma_calls, None, version) };
        Ok(Self(Tables { stand_in: stand_in(common), path: common.path().to_owned(), ..tables }))
    }
}

fn stand_in(common: &Loaded) -> Option<StandIn> {
    // SAFETY: only the stand-in has a function of this name, which has these parameters.
    common.symbol(c"doca_emu_model").map(|f| unsafe { dma_vendor::function(f) })
}

/// Returns the version that the common library reports, or the version in its file's name.
fn version(common: &Loaded) -> Option<String> {
    type VersionRuntime = unsafe extern "C" fn() -> *const c_char;
    let stated = common.symbol(c"doca_version_runtime").and_then(|f| {
        // SAFETY: in every library that has a function of this name, it takes nothing and returns a string.
        let call: VersionRuntime = unsafe { dma_vendor::function(f) };
        // SAFETY: the library's function takes nothing and returns a string.
        let text = unsafe { call() };
        // SAFETY: the pointer is not null, so it is a string that lives as long as the library, which stays
        // loaded.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    });
    // The file is `libdoca_common.so.2.10.0087`, and links with shorter names point to it.
    stated.or_else(|| {
        let file = common.path().canonicalize().ok()?;
        // A single number is the version of the ABI, which several SDK versions share.
        version_in_name(&file).filter(|version| version.contains('.')).map(str::to_owned)
    })
}

/// Formats a version for errors.
fn named(version: Option<String>) -> String {
    format!("DOCA {}", version.as_deref().unwrap_or("of unknown version"))
}
