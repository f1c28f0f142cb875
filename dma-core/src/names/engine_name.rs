//! [`EngineName`]: a backend, a device and options.

use std::fmt;
use std::str::FromStr;

use crate::contract::error::{Error, ErrorKind, Result};

/// The name of an engine: a backend, optionally one of its devices, and options.
///
/// The notation is `BACKEND[:DEVICE][,KEY=VALUE...]` or, without a device,
/// `BACKEND:KEY=VALUE[,KEY=VALUE...]`. `Display` writes the name as it was parsed. Parsing checks only the
/// notation. The facade checks the backend, and each [`Backend`](crate::Backend) checks its devices and
/// options.
///
/// ```
/// use dma_core::EngineName;
///
/// let name: EngineName = "doca:03:00.0,depth=64".parse()?;
/// assert_eq!((name.backend(), name.device()), ("doca", Some("03:00.0")));
/// assert_eq!(name.options().collect::<Vec<_>>(), [("depth", "64")]);
/// assert_eq!(name.to_string(), "doca:03:00.0,depth=64");
/// assert_eq!(EngineName::new("sim")?.with_option("seed", "7")?.to_string(), "sim:seed=7");
/// # Ok::<(), dma_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineName {
    backend: String,
    device: Option<String>,
    options: Vec<(String, String)>,
}

impl EngineName {
    /// Makes the engine name of a backend, without a device and options.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `backend` contains a colon, because a colon ends the backend's name.
    pub fn new(backend: impl Into<String>) -> Result<Self> {
        let backend = backend.into();
        if backend.contains(':') {
            return Err(invalid(format!("`{backend}` is not the name of a backend"))
                .with_hint("a colon ends the backend's name: parse the whole engine name instead"));
        }
        Ok(Self::plain(backend))
    }

    pub(crate) fn plain(backend: impl Into<String>) -> Self {
        Self { backend: backend.into(), device: None, options: Vec::new() }
    }

    /// Sets the device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `device` is empty, or contains a comma or an equals sign, which the notation
    /// reserves.
    pub fn with_device(mut self, device: impl Into<String>) -> Result<Self> {
        let device = device.into();
        if device.is_empty() || device.contains([',', '=']) {
            return Err(invalid(format!("`{device}` is not a device"))
                .with_hint("give a text without commas and equals signs, such as 03:00.0"));
        }
        self.device = Some(device);
        Ok(self)
    }

    /// Adds an option.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the name already has an option with this key, if the key is empty or contains one
    /// of `:,=`, or if the value contains a comma.
    pub fn with_option(mut self, key: &str, value: &str) -> Result<Self> {
        if key.is_empty() || key.contains([',', '=']) || value.contains(',') {
            return Err(no_option(&format!("{key}={value}")));
        }
        if let Some((before, key)) = key.rsplit_once(':') {
            return Err(invalid(format!("`{before}:{key}={value}` is not an option"))
                .with_hint(format!("write a comma after `{before}`: {before},{key}={value}")));
        }
        if self.option(key).is_some() {
            return Err(invalid(format!("option `{key}` is given twice")).with_hint("give it once"));
        }
        self.options.push((key.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Returns the backend's name.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the device, as it is written in the name.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Parses the device, for example as a [`PciAddress`](crate::PciAddress). Returns `None` if the name has
    /// no device.
    ///
    /// # Errors
    ///
    /// Errors of parsing the device.
    pub fn device_as<T: FromStr<Err = Error>>(&self) -> Result<Option<T>> {
        self.device().map(str::parse).transpose()
    }

    /// Returns the keys and values of the options, in the order of the name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the value of an option, if the name has it.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.backend)?;
        let mut separator = ':';
        if let Some(device) = &self.device {
            write!(f, "{separator}{device}")?;
            separator = ',';
        }
        for (key, value) in self.options() {
            write!(f, "{separator}{key}={value}")?;
            separator = ',';
        }
        Ok(())
    }
}

impl FromStr for EngineName {
    type Err = Error;

    /// Parses the name of an engine.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the name has a control character, if nothing follows the colon, if the text after
    /// the device is not an option, or if an option is given twice.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(invalid(format!("the engine name {text:?} has the control character {control:?}"))
                .with_hint("remove it"));
        }
        let named = |e: Error| e.with_operation(format!("open engine `{text}`"));
        let (backend, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let mut name = Self::plain(backend);
        let Some(rest) = rest else { return Ok(name) };
        if rest.is_empty() {
            return Err(named(invalid("nothing follows the colon"))
                .with_hint("leave the colon out, or name a device or options after the colon"));
        }
        for (at, part) in rest.split(',').enumerate() {
            name = match part.split_once('=') {
                Some((key, value)) => name.with_option(key, value),
                None if at == 0 => name.with_device(part),
                None => Err(no_option(part)),
            }
            .map_err(named)?;
        }
        Ok(name)
    }
}

fn no_option(text: &str) -> Error {
    invalid(format!("`{text}` is not an option")).with_hint("write options as key=value, separated by commas")
}

pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(name: &str) -> String {
        let error = name.parse::<EngineName>().expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(!error.hint().is_empty(), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        error.to_string()
    }

    #[test]
    fn names_are_a_backend_a_device_and_options() {
        let name: EngineName = "sim:seed=7,faults=fail@5+lose:p=0.1,path=".parse().unwrap();
        assert_eq!((name.backend(), name.device()), ("sim", None));
        let options: Vec<_> = name.options().collect();
        assert_eq!(options, [("seed", "7"), ("faults", "fail@5+lose:p=0.1"), ("path", "")]);
        assert_eq!((name.option("seed"), name.option("sed")), (Some("7"), None));
        let name: EngineName = "doca:0000:03:00.0".parse().unwrap();
        let address = name.device_as::<crate::PciAddress>().unwrap().unwrap();
        assert_eq!((address.bus, name.options().count()), (3, 0));
        let name: EngineName = "mine:first one".parse().unwrap();
        assert_eq!(name.device(), Some("first one"));
        assert!(name.device_as::<crate::PciAddress>().is_err());
    }

    #[test]
    fn bad_names_say_what_would_have_been_right() {
        assert!(error("cpu:").contains("nothing follows the colon"));
        for name in ["sim:seed=1,", "sim:,seed=1", "doca:03:00.0,x", "sim:=1", "sim:seed=1,=2"] {
            let error = error(name);
            assert!(error.contains("key=value") || error.contains("is not a device"), "{error}");
        }
        assert!(error("sim:seed=1,seed=2").contains("`seed` is given twice"));
        assert!(error("doca:03:00.0:depth=4").contains("03:00.0,depth=4"));
        for name in ["cp\nu", "cpu:\u{1b}[31mthreads=2"] {
            let error = name.parse::<EngineName>().unwrap_err().to_string();
            assert!(error.contains("control character") && !error.contains(char::is_control), "{error}");
        }
        for refused in [
            EngineName::new("a:b"),
            EngineName::new("a").unwrap().with_device(""),
            EngineName::new("a").unwrap().with_device("b=c"),
            EngineName::new("a").unwrap().with_device("b,c"),
            EngineName::new("a").unwrap().with_option("", "1"),
            EngineName::new("a").unwrap().with_option("b=c", "1"),
            EngineName::new("a").unwrap().with_option("b:c", "1"),
            EngineName::new("a").unwrap().with_option("b", "1,2"),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    fn names() -> impl Strategy<Value = EngineName> {
        let options = proptest::collection::btree_map(r"[^:,=\p{Cc}]{1,8}", r"[^,\p{Cc}]{0,8}", 0..4);
        (r"[^:\p{Cc}]{0,8}", proptest::option::of(r"[^,=\p{Cc}]{1,12}"), options).prop_map(
            |(backend, device, options)| EngineName {
                backend,
                device,
                options: options.into_iter().collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_printed_name_parses_to_itself(name in names()) {
            prop_assert_eq!(name.to_string().parse::<EngineName>().unwrap(), name);
        }

        #[test]
        fn a_parsed_name_prints_as_it_was(text in "[a:,=]{0,12}|.{0,40}") {
            if let Ok(name) = text.parse::<EngineName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
