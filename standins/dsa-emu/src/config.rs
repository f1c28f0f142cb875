//! The configuration: the work queues.

use std::collections::BTreeSet;

use dma_sim::model::{Fault, FaultPlan};
pub use dma_standin::config::ConfigError;
use dma_standin::config::{ProcessConfig, bytes, faults, one_line, tables};
use serde::Deserialize;

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) queues: Vec<QueueConfig>,
}

/// Mode of a work queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One client submits with MOVDIR64B.
    #[default]
    Dedicated,
    /// Any number of clients submit with ENQCMD.
    Shared,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::Shared => "shared",
        }
    }
}

/// A work queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// The name `wqX.Y`. If empty, the next work queue of device 0.
    pub name: String,
    /// The name that an administrator gave the work queue.
    pub(crate) label: String,
    /// The clients that may submit, and their instruction.
    pub mode: Mode,
    /// Number of entries.
    pub(crate) size: u32,
    /// Longest batch, in descriptors; 1 for none.
    pub(crate) max_batch: u32,
    /// Longest transfer, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub(crate) max_transfer: u64,
    pub(crate) block_on_fault: bool,
    /// True if descriptors run in any order that fences allow.
    pub(crate) unordered: bool,
    /// True if the kernel maps the work queue. If false, `mmap` fails with EPERM.
    pub mmap: bool,
    pub(crate) state: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) seed: u64,
    #[serde(deserialize_with = "faults")]
    pub(crate) faults: FaultPlan,
    /// Probability that an operation or list meets a page fault.
    pub(crate) page_faults: f64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            label: "dpdk_emu".to_owned(),
            mode: Mode::Dedicated,
            size: 16,
            max_batch: 1024,
            max_transfer: 2 << 30,
            block_on_fault: false,
            unordered: false,
            mmap: true,
            state: "enabled".to_owned(),
            kind: "user".to_owned(),
            seed: 0,
            faults: FaultPlan::none(),
            page_faults: 0.0,
        }
    }
}

impl QueueConfig {
    /// The numbers of the device and of the work queue.
    pub(crate) fn numbers(&self) -> Option<(u32, u32)> {
        let (device, queue) = self.name.strip_prefix("wq")?.split_once('.')?;
        let number = |text: &str| match text.as_bytes() {
            [b'0'] | [b'1'..=b'9'] | [b'1'..=b'9', b'0'..=b'9'] => text.parse().ok(),
            _ => None,
        };
        Some((number(device)?, number(queue)?))
    }

    fn check(self) -> Result<Self, String> {
        let range = |name: &str, value: u64, most: u64| match value {
            0 => Err(format!("{name} is 0; give 1 to {most}")),
            _ if value > most => Err(format!("{name} is {value}; give 1 to {most}")),
            _ => Ok(()),
        };
        range("size", self.size.into(), 128)?;
        range("max_batch", self.max_batch.into(), 1024)?;
        range("max_transfer", self.max_transfer, 2 << 30)?;
        if !(0.0..=1.0).contains(&self.page_faults) {
            return Err(format!("page_faults is {}; give a probability from 0 to 1", self.page_faults));
        }
        for (key, value, known) in
            [("state", &self.state, ["enabled", "disabled"]), ("type", &self.kind, ["user", "kernel"])]
        {
            if !known.contains(&value.as_str()) {
                return Err(format!("{key} is `{value}`; give `{}` or `{}`", known[0], known[1]));
            }
        }
        if !(1..16).contains(&self.label.len()) || self.label.contains(['/', '\n', '\0']) {
            return Err(format!("label is `{}`; give 1 to 15 characters, the kernel's limit", self.label));
        }
        if let Some(rule) =
            self.faults.rules.iter().find(|rule| rule.fault == Fault::Oversize || rule.channel.is_some())
        {
            return Err(format!("faults has `{rule}`; a work queue has no `oversize` and no channels"));
        }
        Ok(self)
    }
}

impl Config {
    /// Reads the text of a configuration. Keys of queues at the top level are the defaults of all queues.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let top: toml::Table = text.parse().map_err(|error: toml::de::Error| one_line(&error))?;
        let mut queues = tables(top, "queue", &["queue"], QueueConfig::check)?;
        let mut seen = BTreeSet::new();
        for (queue, number) in queues.iter_mut().zip(0..) {
            if queue.name.is_empty() {
                queue.name = format!("wq0.{number}");
            }
            let numbers = queue.numbers().ok_or_else(|| {
                format!("name is `{}`; write it as `wq0.1`, with numbers below 100", queue.name)
            })?;
            if !seen.insert(numbers) {
                return Err(format!("two queues have the name `{}`; give each its own", queue.name));
            }
        }
        if queues.len() > Self::MOST {
            return Err(format!("there are {} queues; give at most {}", queues.len(), Self::MOST));
        }
        Ok(Self { queues })
    }

    /// Maximum number of work queues.
    pub(crate) const MOST: usize = 64;

    /// Reads the configuration that the environment names.
    ///
    /// # Errors
    ///
    /// The configuration cannot be read, or is invalid.
    pub fn from_environment() -> Result<Self, ConfigError> {
        ProcessConfig::new("DSA_EMU_CONFIG", "DSA_EMU").read(Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_one_dedicated_queue() {
        let config = Config::parse("").unwrap();
        let [queue] = &config.queues[..] else { panic!("{config:?}") };
        assert_eq!((&*queue.name, queue.mode, queue.size), ("wq0.0", Mode::Dedicated, 16));
    }

    #[test]
    fn top_level_keys_are_for_all_queues() {
        let text = "size = 8\n[[queue]]\n[[queue]]\nmode = 'shared'\nsize = 4\n[[queue]]\nname = 'wq1.7'\n";
        let config = Config::parse(text).unwrap();
        let found: Vec<_> = config.queues.iter().map(|queue| (&*queue.name, queue.size)).collect();
        assert_eq!(found, [("wq0.0", 8), ("wq0.1", 4), ("wq1.7", 8)]);
        assert_eq!(config.queues[1].mode, Mode::Shared);
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        for (text, problem) in [
            ("entries = 1", "unknown field `entries`"),
            ("size = 0", "queue 1: size is 0; give 1 to 128"),
            ("size = 129", "size is 129"),
            ("max_batch = 2000", "max_batch is 2000; give 1 to 1024"),
            ("max_transfer = '4G'", "max_transfer is 4294967296"),
            ("mode = 'own'", "unknown variant `own`, expected `dedicated` or `shared`"),
            ("state = 'on'", "state is `on`; give `enabled` or `disabled`"),
            ("type = 'mdev'", "give `user` or `kernel`"),
            ("page_faults = 2.0", "page_faults is 2; give a probability"),
            ("label = ''", "label is ``; give 1 to 15 characters"),
            ("name = 'wq0.01'", "write it as `wq0.1`"),
            ("name = '../wq0.1'", "write it as `wq0.1`"),
            ("faults = 'oversize'", "no `oversize`"),
            ("faults = 'fial@5'", "no fault `fial`"),
            ("[[queue]]\nname = 'wq0.1'\n[[queue]]", "two queues have the name `wq0.1`"),
            ("[", "TOML parse error"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
