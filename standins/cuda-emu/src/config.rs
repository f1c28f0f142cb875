//! The configuration: the GPUs of the stand-in.

use dma_sim::model::{FaultPlan, Profile, Time};
pub use dma_standin::config::ConfigError;
use dma_standin::config::{ProcessConfig, bytes, faults, one_line, settings, tables};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::profile;

/// A whole configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) machine: Machine,
    pub(crate) gpus: Vec<GpuConfig>,
}

/// Settings of the driver, which all its devices share.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Machine {
    /// Version of the driver's interface, as `cuDriverGetVersion` returns it.
    pub(crate) version: i32,
    /// `cuInit` returns this code, if it is not 0.
    pub(crate) init: i32,
    /// True if read-only memory can be registered.
    pub(crate) read_only_register: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self { version: 13_000, init: 0, read_only_register: true }
    }
}

/// The keys of [`Machine`].
const MACHINE: [&str; 3] = ["version", "init", "read_only_register"];

/// One GPU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GpuConfig {
    pub(crate) name: String,
    #[serde(deserialize_with = "bytes")]
    pub(crate) memory: u64,
    #[serde(deserialize_with = "profile")]
    pub(crate) profile: Profile,
    /// Time added to each copy and fill.
    #[serde(deserialize_with = "delay")]
    pub(crate) delay: Option<Time>,
    pub(crate) seed: u64,
    #[serde(deserialize_with = "faults")]
    pub(crate) faults: FaultPlan,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            name: "Stand-in GPU".to_owned(),
            memory: 4 << 30,
            profile: Profile::ideal(),
            delay: None,
            seed: 0,
            faults: FaultPlan::none(),
        }
    }
}

fn profile<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    let name = String::deserialize(from)?;
    profile::by_name(&name).ok_or_else(|| {
        D::Error::custom(format!("no profile `{name}`; there are: {}", profile::NAMES.join(", ")))
    })
}

fn delay<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(|error| D::Error::custom(format!("{error}")))
}

impl Config {
    /// Reads the text of a configuration. Keys of GPUs at the top level are the defaults of all GPUs.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut top: toml::Table = text.parse().map_err(|error: toml::de::Error| one_line(&error))?;
        let machine = settings(&mut top, &MACHINE)?;
        Ok(Self { machine, gpus: tables(top, "gpu", &MACHINE, GpuConfig::check)? })
    }

    /// Returns the configuration that [`use_config`] set. Without one, reads the environment variables.
    pub(crate) fn in_use() -> Result<Self, ConfigError> {
        IN_USE.read(Self::parse)
    }
}

impl GpuConfig {
    /// Checks the ranges of values.
    fn check(self) -> Result<Self, String> {
        if !(1 << 20..=1 << 42).contains(&self.memory) {
            return Err(format!("memory is {}; give 1M to 4096G", self.memory));
        }
        Ok(self)
    }
}

static IN_USE: ProcessConfig = ProcessConfig::new("CUDA_EMU_CONFIG", "CUDA_EMU");

/// Sets the configuration of this process, which `cuInit` uses instead of the environment variables. Only the
/// first call has an effect.
///
/// # Errors
///
/// The text is not a valid configuration.
pub fn use_config(text: &str) -> Result<(), ConfigError> {
    IN_USE.set(text, Config::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_one_gpu() {
        let config = Config::parse("").unwrap();
        assert_eq!((config.gpus.len(), config.machine.version), (1, 13_000));
        assert_eq!(config.gpus[0].profile.name, "ideal");
    }

    #[test]
    fn top_level_keys_are_for_all_gpus() {
        let text = "version = 11040\nprofile = 'hopper'\n[[gpu]]\n[[gpu]]\nmemory = '2M'\ndelay = '20us'\n";
        let config = Config::parse(text).unwrap();
        assert_eq!((config.machine.version, config.gpus.len()), (11_040, 2));
        assert_eq!(config.gpus[1].delay, Some(Time::from_us(20)));
        assert_eq!((config.gpus[1].memory, config.gpus[0].memory), (2 << 20, 4 << 30));
        assert_eq!(config.gpus[0].profile.name, "hopper");
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        for (text, problem) in [
            ("profil = 'hopper'", "unknown field `profil`"),
            ("profile = 'hoper'", "there are: ideal, hopper"),
            ("memory = '1K'", "gpu 1: memory is 1024; give 1M to 4096G"),
            ("delay = 'long'", "long"),
            ("faults = 'fial@5'", "no fault `fial`"),
            ("[", "TOML parse error"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
