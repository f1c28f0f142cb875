//! [`Backend`]: lists, opens and diagnoses the engines of one type.

use std::fmt;
use std::sync::Arc;

use crate::contract::error::Result;
use crate::names::engine_name::EngineName;
use crate::names::name_format::NameFormat;
use crate::{DmaEngine, EngineInfo};

/// A type of engine. A backend finds its devices, opens engines on them, and diagnoses problems.
///
/// A backend is a `static` value that implements this trait. The facade's registry lists the backends of its
/// build, and programs can add others.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the format of the backend's engine names.
    fn name_format(&self) -> NameFormat;

    /// Returns the backend's name: see [`NameFormat::backend`].
    fn name(&self) -> &'static str {
        self.name_format().backend
    }

    /// Describes the backend's engines in one line.
    fn about(&self) -> &'static str;

    /// Returns the backend whose engines this backend opens, if it has no engines of its own. Discovery and
    /// diagnosis skip a backend without its own engines.
    fn delegates_to(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether the backend's engines drive hardware other than the CPU.
    fn is_hardware(&self) -> bool;

    /// Opens the engine `name`. The name's backend is this backend.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` or `OutOfRange` for a device, option or value that does not exist, with the valid
    /// ones in the hint; errors of opening the engine.
    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>>;

    /// Lists the devices. A device that cannot be used has the reason in its entry. If there is no device,
    /// returns one entry with the reason.
    ///
    /// May open each device briefly, and load the vendor's libraries.
    fn discover(&self) -> Vec<Discovered>;

    /// Checks this machine for the requirements of the backend's engines. Does not open engines.
    fn doctor(&self) -> Vec<Finding>;
}

/// A [`Backend`] as a table of properties and functions. Each field is the method of the same name.
#[derive(Debug)]
pub struct StaticBackend {
    /// See [`Backend::name_format`].
    pub name_format: NameFormat,
    /// See [`Backend::about`].
    pub about: &'static str,
    /// See [`Backend::is_hardware`].
    pub is_hardware: bool,
    /// See [`Backend::open`].
    pub open: fn(&EngineName) -> Result<Arc<dyn DmaEngine>>,
    /// See [`Backend::discover`].
    pub discover: fn() -> Vec<Discovered>,
    /// See [`Backend::doctor`].
    pub doctor: fn() -> Vec<Finding>,
}

impl Backend for StaticBackend {
    fn name_format(&self) -> NameFormat {
        self.name_format
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn is_hardware(&self) -> bool {
        self.is_hardware
    }
    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        (self.open)(name)
    }
    fn discover(&self) -> Vec<Discovered> {
        (self.discover)()
    }
    fn doctor(&self) -> Vec<Finding> {
        (self.doctor)()
    }
}

/// One engine that can be opened, or the reason why it cannot.
#[derive(Debug)]
#[non_exhaustive]
pub struct Discovered {
    /// The name that opens the engine.
    pub name: EngineName,
    /// The engine's description, or the reason why the engine cannot be used, with a remedy.
    pub info: Result<EngineInfo>,
}

impl Discovered {
    /// Makes an entry for the engine `name`.
    #[must_use]
    pub const fn new(name: EngineName, info: Result<EngineInfo>) -> Self {
        Self { name, info }
    }

    /// Makes an entry from the result of opening the engine.
    #[must_use]
    pub fn opened(name: EngineName, engine: Result<impl DmaEngine>) -> Self {
        Self::new(name, engine.map(|engine| engine.info().clone()))
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The requirement is met.
    Ok,
    /// The state may reduce speed, or is a problem only in some cases.
    Warning,
    /// The backend cannot be used in this state.
    Bad,
}

/// One check of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The subject of the check, such as a library or a device.
    pub what: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The state that was found.
    pub found: String,
    /// The remedy; empty if there is nothing to do.
    pub fix: String,
}

impl Finding {
    /// Makes a finding of [`Verdict::Ok`].
    #[must_use]
    pub fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Ok, found: found.into(), fix: String::new() }
    }

    /// Makes a finding of [`Verdict::Warning`].
    #[must_use]
    pub fn warning(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Warning, found: found.into(), fix: fix.into() }
    }

    /// Makes a finding of [`Verdict::Bad`].
    #[must_use]
    pub fn bad(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Bad, found: found.into(), fix: fix.into() }
    }
}
