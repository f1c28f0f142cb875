//! Engine names: `cpu`, `cpu:threads=2`, `sim:seed=7,profile=bluefield3`, `doca:03:00.0`, `ioat:0000:00:04.0`.

use std::str::FromStr;

use dma_core::{Error, ErrorKind, PciAddress, Result};

/// The engines that a name can begin with, whether or not this build has them.
pub(crate) const BACKENDS: [&str; 5] = ["auto", "cpu", "sim", "doca", "ioat"];

/// A parsed engine name: a backend, then its options or its device.
///
/// The grammar is `BACKEND[:OPTION=VALUE[,OPTION=VALUE...]]` for the software engines and `BACKEND[:PCI_ADDRESS][,OPTION=VALUE...]` for hardware; without
/// an address, `BACKEND:OPTION=VALUE[,...]`. The address is a [`PciAddress`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineName {
    /// Whatever is best on this machine: see [`open`](crate::open).
    Auto,
    /// The CPU engine, with its options as given.
    Cpu(Vec<(String, String)>),
    /// The simulator, with its options as given.
    Sim(Vec<(String, String)>),
    /// A BlueField.
    Doca(DeviceName),
    /// An I/OAT channel.
    Ioat(DeviceName),
}

/// A device of a hardware backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceName {
    /// Its PCI address; the backend's first usable device if there is none.
    pub address: Option<PciAddress>,
    /// The options, as given.
    pub options: Vec<(String, String)>,
}

impl FromStr for EngineName {
    type Err = Error;

    /// Reads an engine name. Option values are checked by [`open`](crate::open).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an unknown backend, with the closest known one, or for options or an address of the wrong form.
    fn from_str(name: &str) -> Result<Self> {
        let (backend, rest) =
            name.split_once(':').map_or((name, None), |(backend, rest)| (backend, Some(rest)));
        if rest == Some("") && BACKENDS.contains(&backend) {
            return Err(bad_name(name, "nothing follows the colon".to_owned())
                .with_hint("leave the colon out, or name a device or options behind it"));
        }
        match backend {
            "auto" => match rest {
                None => Ok(Self::Auto),
                Some(rest) => Err(bad_name(name, format!("auto takes no options, but there is `{rest}`"))
                    .with_hint("name the engine to give it options, such as cpu:threads=2")),
            },
            "cpu" => Ok(Self::Cpu(options(name, rest)?)),
            "sim" => Ok(Self::Sim(options(name, rest)?)),
            "doca" => Ok(Self::Doca(device(name, rest)?)),
            "ioat" => Ok(Self::Ioat(device(name, rest)?)),
            unknown => {
                let error = bad_name(name, format!("there is no engine `{unknown}`"));
                let known = BACKENDS.join(", ");
                // `CPU`, `cpu,threads=2`, `doca/03:00.0`: the word that it begins with.
                let end = unknown.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(unknown.len());
                let word = unknown[..end].to_ascii_lowercase();
                let colon = if end < unknown.len() {
                    "; a device or options follow behind a colon, such as doca:03:00.0 or cpu:threads=2"
                } else {
                    ""
                };
                Err(match closest(&word, BACKENDS) {
                    Some(close) => {
                        error.with_hint(format!("did you mean `{close}`? There are: {known}{colon}"))
                    }
                    None => error.with_hint(format!("there are: {known}")),
                })
            }
        }
    }
}

fn device(name: &str, rest: Option<&str>) -> Result<DeviceName> {
    let Some(rest) = rest else { return Ok(DeviceName::default()) };
    let (first, others) = rest.split_once(',').map_or((rest, None), |(first, others)| (first, Some(others)));
    if first.contains('=') {
        return Ok(DeviceName { address: None, options: options(name, Some(rest))? });
    }
    let address = first.parse().map_err(|e: Error| e.with_operation(format!("open engine `{name}`")))?;
    let options = options(name, others)?;
    if options.iter().any(|(key, _)| key == "address") {
        return Err(bad_name(name, "the address is given twice".to_owned()).with_hint("give it once"));
    }
    Ok(DeviceName { address: Some(address), options })
}

fn options(name: &str, rest: Option<&str>) -> Result<Vec<(String, String)>> {
    let Some(rest) = rest else { return Ok(Vec::new()) };
    let mut options: Vec<(String, String)> = Vec::new();
    for pair in rest.split(',') {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(bad_name(name, format!("`{pair}` is no option"))
                .with_hint("write options as key=value, separated by commas"));
        };
        if let Some((before, key)) = key.rsplit_once(':') {
            return Err(bad_name(name, format!("`{pair}` is no option"))
                .with_hint(format!("write a comma behind `{before}`: {before},{key}={value}")));
        }
        if options.iter().any(|(known, _)| known == key) {
            return Err(bad_name(name, format!("option `{key}` is given twice")).with_hint("give it once"));
        }
        options.push((key.to_owned(), value.to_owned()));
    }
    Ok(options)
}

fn bad_name(name: &str, message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message).with_operation(format!("open engine `{name}`"))
}

/// The word among `known` that is at most two typing errors from `word`, if any.
fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(d, _)| *d <= 2)
        .min()
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(name: &str) -> String {
        let error = name.parse::<EngineName>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn the_documented_names_parse() {
        assert_eq!("auto".parse::<EngineName>().unwrap(), EngineName::Auto);
        assert_eq!("cpu".parse::<EngineName>().unwrap(), EngineName::Cpu(vec![]));
        assert_eq!(
            "sim:seed=7,profile=bluefield3,faults=fail@5+lose:p=0.1".parse::<EngineName>().unwrap(),
            EngineName::Sim(vec![
                ("seed".into(), "7".into()),
                ("profile".into(), "bluefield3".into()),
                ("faults".into(), "fail@5+lose:p=0.1".into()),
            ])
        );
        let address = PciAddress { domain: 0, bus: 3, device: 0, function: 0 };
        let device = |address, options: &[(&str, &str)]| DeviceName {
            address,
            options: options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        let first = EngineName::Doca(device(Some(address), &[]));
        assert_eq!("doca:03:00.0".parse::<EngineName>().unwrap(), first);
        assert_eq!("doca:0000:03:00.0".parse::<EngineName>().unwrap(), first);
        assert_eq!("ioat".parse::<EngineName>().unwrap(), EngineName::Ioat(device(None, &[])));
        assert_eq!(
            "doca:03:00.0,lib=/opt/doca".parse::<EngineName>().unwrap(),
            EngineName::Doca(device(Some(address), &[("lib", "/opt/doca")]))
        );
        assert_eq!(
            "doca:interface=p0,lib=/opt/doca".parse::<EngineName>().unwrap(),
            EngineName::Doca(device(None, &[("interface", "p0"), ("lib", "/opt/doca")]))
        );
    }

    #[test]
    fn bad_names_say_what_would_have_been_right() {
        assert!(error("cpo").contains("did you mean `cpu`?"), "{}", error("cpo"));
        assert!(error("quantum").contains("there are: auto, cpu, sim, doca, ioat"));
        assert!(error("").contains("there is no engine ``"));
        assert!(error("sim:seed").contains("key=value"));
        assert!(error("sim:seed=1,").contains("key=value"));
        assert!(error("sim:seed=1,seed=2").contains("twice"));
        assert!(error("auto:x=1").contains("auto takes no options"));
        assert!(error("doca:3:0.0").contains("DDDD:BB:DD.F"));
        for name in ["auto:", "cpu:", "sim:", "doca:", "ioat:"] {
            assert!(error(name).contains("nothing follows the colon"), "{}", error(name));
        }
        for name in ["CPU", "Cpu:threads=2", "cpu,threads=2", "cpu;threads=2", "cpu=2", "cpu "] {
            assert!(error(name).contains("did you mean `cpu`?"), "{}", error(name));
        }
        assert!(error("cpu,threads=2").contains("behind a colon"));
        assert!(error("doca/03:00.0").contains("did you mean `doca`?"));
        assert!(error("doca:03:00.0:depth=4").contains("03:00.0,depth=4"));
        assert!(error("doca:03:00.0,address=03:00.1").contains("the address is given twice"));
        assert!(error("doca:03:00.0,").contains("key=value"));
        assert!(error("ioat:03:00.0,x").contains("key=value"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<EngineName>();
        }
    }
}
