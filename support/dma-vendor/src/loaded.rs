//! [`Loaded`]: a library in this process.
#![expect(unsafe_code, reason = "loads libraries, and looks up their symbols")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_NOW};

use crate::LoadError;

/// `RTLD_NOLOAD` of Linux: opening succeeds only for a library that is already loaded.
const RTLD_NOLOAD: c_int = 0x4;

/// A library in this process. It is never unloaded, because vendors' libraries have their own threads and
/// state.
#[derive(Debug)]
pub struct Loaded {
    handle: ManuallyDrop<Library>,
    path: PathBuf,
}

impl Loaded {
    /// Returns a handle of the program itself, with the libraries that are linked to it.
    #[must_use]
    pub fn program() -> Self {
        Self { handle: ManuallyDrop::new(Library::this()), path: PathBuf::new() }
    }

    /// Loads a library. All later libraries can use its symbols. The error is the message of the system's
    /// loader.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the initialisers of a vendor's library, which any program that is linked
        // with it also runs.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(handle) => Ok(Self { handle: ManuallyDrop::new(handle), path: path.to_owned() }),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                Err(cause.unwrap_or_else(|| error.to_string()))
            }
        }
    }

    /// Opens a library like [`open`](Self::open), but with a [`LoadError`] as the error.
    pub(crate) fn at(path: PathBuf) -> Result<Self, LoadError> {
        Self::open(&path).map_err(|reason| LoadError::Unloadable { path, reason })
    }

    /// Returns the library's file, or the name by which the system found it. The path is empty for the
    /// program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address of a symbol, if the library or a dependency exports it.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the symbol is only used as an address, which this function does not dereference. Its
        // callers know the symbol's type from the vendor's headers. The library is never unloaded.
        let symbol = unsafe { self.handle.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        NonNull::new(symbol.as_raw_ptr())
    }

    /// Returns the error for a library of `version` that lacks the calls `missing`.
    #[must_use]
    pub fn incomplete(&self, version: String, missing: &[&CStr]) -> LoadError {
        let symbols = missing.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        LoadError::MissingSymbols { path: self.path.clone(), version, symbols }
    }
}

/// Returns whether a library of this name is loaded, such as the C library.
pub(crate) fn is_loaded(name: &str) -> bool {
    // SAFETY: with `RTLD_NOLOAD`, the call loads no library, so it runs no initialiser.
    let found = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) };
    found.is_ok()
}
