//! [`Backend`]: lists, opens and diagnoses the engines of one type.

use std::fmt;
use std::sync::Arc;

use crate::contract::error::{Error, ErrorKind, Result};
use crate::names::closest::closest_name;
use crate::names::engine_name::{EngineName, invalid};
use crate::names::option_value::OptionValue;
use crate::{DmaEngine, EngineInfo};

/// A type of engine. A backend finds its devices, opens engines on them, and diagnoses problems.
///
/// A backend is a `static` value that implements this trait. The facade's registry lists the backends of its
/// build, and programs can add others.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the backend's name, such as `doca`, which is the beginning of its engine names. A backend's
    /// name is a lowercase letter, followed by lowercase letters, digits, `-` and `_`.
    fn name(&self) -> &'static str;

    /// Describes the backend's engines in one line.
    fn about(&self) -> &'static str;

    /// Returns the backend whose engines this backend opens, if it has no engines of its own. Discovery and
    /// diagnosis skip a backend without its own engines.
    fn delegates_to(&self) -> Option<&'static str> {
        None
    }

    /// Describes the device part of engine names, for example as `a PCI address, such as 03:00.0`. Returns
    /// `None` if the names have no device.
    fn device(&self) -> Option<&'static str>;

    /// Returns whether the backend's engines drive hardware other than the CPU.
    fn is_hardware(&self) -> bool;

    /// Returns the options that the backend's engine names can have.
    fn options(&self) -> &'static [OptionInfo];

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
    /// See [`Backend::name`].
    pub name: &'static str,
    /// See [`Backend::about`].
    pub about: &'static str,
    /// See [`Backend::device`].
    pub device: Option<&'static str>,
    /// See [`Backend::is_hardware`].
    pub is_hardware: bool,
    /// See [`Backend::options`].
    pub options: &'static [OptionInfo],
    /// See [`Backend::open`].
    pub open: fn(&EngineName) -> Result<Arc<dyn DmaEngine>>,
    /// See [`Backend::discover`].
    pub discover: fn() -> Vec<Discovered>,
    /// See [`Backend::doctor`].
    pub doctor: fn() -> Vec<Finding>,
}

impl Backend for StaticBackend {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn device(&self) -> Option<&'static str> {
        self.device
    }
    fn is_hardware(&self) -> bool {
        self.is_hardware
    }
    fn options(&self) -> &'static [OptionInfo] {
        self.options
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

impl EngineName {
    /// Returns the engine name of `backend` without a device and options.
    #[must_use]
    pub fn of(backend: &dyn Backend) -> Self {
        Self::plain(backend.name())
    }

    /// Calls `set` with each option and its value, after checking that `backend` has that option.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an option that `backend` does not have, with the valid options in the hint, and
    /// for a device if names of `backend` have no device; errors of `set`. Every error names the backend.
    pub fn read_options(
        &self,
        backend: &dyn Backend,
        mut set: impl FnMut(&str, OptionValue<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_form(backend)
            .and_then(|()| self.options().try_for_each(|(key, value)| set(key, OptionValue::new(key, value))))
            .map_err(|e| e.with_backend(backend.name()))
    }

    /// Checks that `backend` has these options, and that its names can have a device if this name has one.
    fn check_form(&self, backend: &dyn Backend) -> Result<()> {
        if let (Some(device), None) = (self.device(), backend.device()) {
            return Err(invalid(format!(
                "`{device}` is not an option, and {} has no devices",
                backend.name()
            ))
            .with_hint("write options as key=value, separated by commas"));
        }
        let known = backend.options();
        match self.options().find(|(key, _)| !known.iter().any(|info| info.key == *key)) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => Err(invalid(format!(
                "{} has no options, but the name has the option `{key}`",
                backend.name()
            ))
            .with_hint("leave the option out, or name another engine, such as cpu:threads=2")),
            Some((key, _)) => {
                let keys: Vec<_> = known.iter().map(|info| info.key).collect();
                let hint = match closest_name(&key.to_ascii_lowercase(), &keys) {
                    Some(close) => format!("did you mean `{close}`? There are: {}", keys.join(", ")),
                    None => format!("there are: {}", keys.join(", ")),
                };
                Err(invalid(format!("there is no option `{key}`")).with_hint(hint))
            }
        }
    }

    /// Refuses this name, which is from untrusted input, if an option has effects beyond the engine's device:
    /// the option makes `backend` load code or open files, or makes this process or its memory reachable over
    /// a network.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`, with the option in the message.
    pub fn refuse_untrusted(&self, backend: &dyn Backend) -> Result<()> {
        let loads = |key: &str| backend.options().iter().any(|info| info.needs_trust && info.key == key);
        match self.options().find(|(key, _)| loads(key)) {
            None => Ok(()),
            Some((key, value)) => {
                let message = format!(
                    "option {key}={value} has effects beyond the device, and the name is from untrusted input"
                );
                Err(Error::new(ErrorKind::PermissionDenied, message).with_backend(backend.name()).with_hint(
                    "leave the option out, or set it in a name that the program itself contains; the backend's environment variables can also set the paths of libraries and devices",
                ))
            }
        }
    }
}

/// An option of a backend's engine names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The option's key, in lowercase.
    pub key: &'static str,
    /// The format of the value, such as `N`, `BYTES` or `on|off`.
    pub value: &'static str,
    /// The default, as a text.
    pub default: &'static str,
    /// The option's effect, in one line.
    pub about: &'static str,
    /// True if the value chooses code that this process loads, files that it opens, or a network over which
    /// the process or its memory can be reached. Untrusted names must not contain such an option: see
    /// [`EngineName::refuse_untrusted`].
    pub needs_trust: bool,
}

impl OptionInfo {
    /// Makes an option that untrusted names may contain.
    #[must_use]
    pub const fn new(
        key: &'static str,
        value: &'static str,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self { key, value, default, about, needs_trust: false }
    }

    /// Marks the option as having effects beyond the device: see [`Self::needs_trust`].
    #[must_use]
    pub const fn needing_trust(self) -> Self {
        Self { needs_trust: true, ..self }
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
