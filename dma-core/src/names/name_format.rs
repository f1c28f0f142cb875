//! [`NameFormat`]: the parts that a backend's engine names can have, and the methods of [`EngineName`] that
//! check names against it.

use crate::contract::error::{Error, ErrorKind, Result};
use crate::names::closest::closest_name;
use crate::names::engine_name::{EngineName, invalid};
use crate::names::option_value::OptionValue;

/// The format of a backend's engine names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameFormat {
    /// The backend's name, such as `doca`, with which its engine names begin: a lowercase letter, followed by
    /// lowercase letters, digits, `-` and `_`.
    pub backend: &'static str,
    /// The description of a name's device, such as `a PCI address, such as 03:00.0`. `None` if the names have
    /// no device.
    pub device: Option<&'static str>,
    /// The options that the names can have.
    pub options: &'static [OptionInfo],
}

impl NameFormat {
    /// Makes the format of names without a device.
    #[must_use]
    pub const fn new(backend: &'static str, options: &'static [OptionInfo]) -> Self {
        Self { backend, device: None, options }
    }

    /// Sets the description of the device.
    #[must_use]
    pub const fn with_device(self, device: &'static str) -> Self {
        Self { device: Some(device), ..self }
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

impl EngineName {
    /// Returns the engine name of a backend without a device and options.
    #[must_use]
    pub fn of(format: NameFormat) -> Self {
        Self::plain(format.backend)
    }

    /// Calls `set` with each option and its value, after checking that this name has the format `format`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an option that `format` does not have, with the valid options in the hint, and
    /// for a device if `format` has no device; errors of `set`. Every error names the backend.
    pub fn read_options(
        &self,
        format: NameFormat,
        mut set: impl FnMut(&str, OptionValue<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_format(format)
            .and_then(|()| self.options().try_for_each(|(key, value)| set(key, OptionValue::new(key, value))))
            .map_err(|e| e.with_backend(format.backend))
    }

    /// Checks that `format` has these options, and that it has a device if this name has one.
    fn check_format(&self, format: NameFormat) -> Result<()> {
        let NameFormat { backend, device, options: known } = format;
        if let (Some(device), None) = (self.device(), device) {
            return Err(invalid(format!("`{device}` is not an option, and {backend} has no devices"))
                .with_hint("write options as key=value, separated by commas"));
        }
        match self.options().find(|(key, _)| !known.iter().any(|info| info.key == *key)) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(invalid(format!("{backend} has no options, but the name has the option `{key}`"))
                    .with_hint("leave the option out, or name another engine, such as cpu:threads=2"))
            }
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
    /// the option makes the backend load code or open files, or makes this process or its memory reachable
    /// over a network.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`, with the option in the message.
    pub fn refuse_untrusted(&self, format: NameFormat) -> Result<()> {
        let loads = |key: &str| format.options.iter().any(|info| info.needs_trust && info.key == key);
        match self.options().find(|(key, _)| loads(key)) {
            None => Ok(()),
            Some((key, value)) => {
                let message = format!(
                    "option {key}={value} has effects beyond the device, and the name is from untrusted input"
                );
                Err(Error::new(ErrorKind::PermissionDenied, message).with_backend(format.backend).with_hint(
                    "leave the option out, or set it in a name that the program itself contains; the backend's environment variables can also set the paths of libraries and devices",
                ))
            }
        }
    }
}
