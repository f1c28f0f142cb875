//! Configuration of the devices.

use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr};

use dma_sim::model::{FaultPlan, Profile};
use dma_standin::config::{faults, one_line, profile, tables};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

pub(crate) use dma_standin::config::{Bytes, Clock};

/// Maximum length of a card's serial number in bytes, so that an export descriptor has at most 150 bytes.
pub(crate) const MAX_SERIAL: usize = 40;

/// The default of the key `version`: the version of the headers.
pub const VERSION: &str = if cfg!(feature = "generation-1-5") {
    "1.5.0055"
} else if cfg!(feature = "generation-2-2") {
    "2.2.0080"
} else if cfg!(feature = "generation-2-5") {
    "2.5.0108"
} else {
    "3.0.0058"
};

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) version: CString,
    pub(crate) cards: Vec<CardConfig>,
}

/// Side of a card that a function is on, or sides that a process sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    #[default]
    Both,
    Host,
    Dpu,
}

/// Place where a mistake in a task is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Found {
    Submit,
    Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    Any,
    Submitted,
}

/// Effect of a copy on a destination that already has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DestinationData {
    /// The copy writes after the destination's data.
    Append,
    /// The copy overwrites the destination's data.
    Replace,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CardConfig {
    #[serde(default = "default_serial")]
    pub(crate) serial: String,
    #[serde(default = "Profile::ideal", deserialize_with = "profile")]
    pub(crate) profile: Profile,
    pub(crate) clock: Option<Clock>,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default, deserialize_with = "faults")]
    pub(crate) faults: FaultPlan,
    pub(crate) order: Option<Order>,
    pub(crate) max_buf_size: Option<Bytes>,
    pub(crate) max_list_len: Option<u32>,
    pub(crate) max_tasks: Option<u32>,
    pub(crate) queue_depth: Option<u32>,
    pub(crate) max_contexts: Option<u32>,
    pub(crate) over_limit: Option<Found>,
    pub(crate) destination_data: Option<DestinationData>,
    /// If true, a side of the card can copy memory that it exported itself.
    pub(crate) self_import: Option<bool>,
    pub(crate) memlock: Option<Bytes>,
    #[serde(default)]
    pub(crate) create_contention: bool,
    #[serde(default)]
    pub(crate) comch: ComchConfig,
    #[serde(default = "default_functions")]
    pub(crate) function: Vec<FunctionConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ComchConfig {
    pub(crate) max_msg_size: u32,
    pub(crate) max_name_len: u32,
    pub(crate) max_clients: u32,
    pub(crate) max_recv_queue_size: u32,
    pub(crate) max_send_tasks: u32,
    /// Maximum number of consumers at each end of a connection.
    pub(crate) max_consumers: u32,
    pub(crate) max_producers: u32,
    /// Maximum number of tasks of a producer and of a consumer.
    pub(crate) max_fast_tasks: u32,
    /// Maximum length of a producer's message, in bytes.
    pub(crate) max_fast_size: Bytes,
}

impl Default for ComchConfig {
    fn default() -> Self {
        Self {
            max_msg_size: 4080,
            max_name_len: 120,
            max_clients: 512,
            max_recv_queue_size: 8192,
            max_send_tasks: 8192,
            max_consumers: 512,
            max_producers: 512,
            max_fast_tasks: 8192,
            max_fast_size: Bytes(1 << 30),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FunctionKind {
    #[default]
    Pf,
    Vf,
    Sf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionConfig {
    #[serde(deserialize_with = "pci")]
    pub(crate) pci: String,
    #[serde(deserialize_with = "one_side")]
    pub(crate) side: Side,
    #[serde(default)]
    pub(crate) kind: FunctionKind,
    pub(crate) sf: Option<u32>,
    pub(crate) iface: Option<String>,
    pub(crate) ibdev: Option<String>,
    #[serde(default, deserialize_with = "mac")]
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// The LID, which only InfiniBand ports have.
    pub(crate) lid: Option<u16>,
    pub(crate) vuid: Option<String>,
    pub(crate) vhca_id: Option<u16>,
    /// Data rate in Gb/s.
    #[serde(default = "default_rate")]
    pub(crate) rate: u64,
    #[serde(default = "yes")]
    pub(crate) dma: bool,
    #[serde(default = "yes")]
    pub(crate) comch: bool,
    #[serde(default = "yes")]
    pub(crate) sync_event: bool,
    #[serde(default = "yes")]
    pub(crate) export: bool,
    #[serde(default = "yes")]
    pub(crate) import: bool,
    /// If true, the DPU has a representor of this function. By default, all functions of the host have
    /// one.
    pub(crate) representor: Option<bool>,
    #[serde(default)]
    pub(crate) hotplug: bool,
    #[serde(default)]
    pub(crate) emulated: bool,
    #[serde(skip, default = "yes")]
    pub(crate) seen: bool,
}

impl FunctionConfig {
    pub(crate) fn is_represented(&self) -> bool {
        self.representor.unwrap_or(self.side == Side::Host)
    }
}

fn default_serial() -> String {
    "EMU0000X00001".to_owned()
}

const fn default_rate() -> u64 {
    200
}

const fn yes() -> bool {
    true
}

/// Returns the functions of a BlueField on both of its sides: two on the DPU, and four on the host.
fn default_functions() -> Vec<FunctionConfig> {
    let functions = [
        ("dpu", "0000:03:00.0", "p0"),
        ("dpu", "0000:03:00.1", "p1"),
        ("host", "0000:3b:00.0", "ens1f0np0"),
        ("host", "0000:3b:00.1", "ens1f1np1"),
        ("host", "0000:b1:00.0", "ens2f0np0"),
        ("host", "0000:b1:00.1", "ens2f1np1"),
    ];
    let functions = functions.into_iter().zip(0..).map(|((side, pci, iface), number)| {
        let next = number + 1;
        let text = format!(
            "side = '{side}'\npci = '{pci}'\niface = '{iface}'\nibdev = 'mlx5_{number}'\n\
             mac = '02:00:00:00:00:0{next}'\nipv4 = '192.168.100.{next}'\nipv6 = 'fe80::{next}'\n\
             vuid = 'EMU0000X00001ECMLNXS0D0F{number}'\nvhca_id = {number}"
        );
        toml::from_str(&text).expect("a function in this file")
    });
    functions.collect()
}

fn one_side<'de, D: Deserializer<'de>>(from: D) -> Result<Side, D::Error> {
    match Side::deserialize(from)? {
        Side::Both => Err(D::Error::custom("a function must be on one side: `host` or `dpu`")),
        side => Ok(side),
    }
}

fn pci<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let whole = crate::config::whole_address(&text);
    whole
        .ok_or_else(|| D::Error::custom(format!("`{text}` is not a PCI address; write it as `0000:03:00.0`")))
}

fn mac<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[u8; 6]>, D::Error> {
    let text = String::deserialize(from)?;
    let bytes: Option<Vec<_>> = text
        .split(':')
        .map(|byte| (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok()).flatten())
        .collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    let bad = || D::Error::custom(format!("`{text}` is not a MAC address; write it as `02:00:00:00:00:01`"));
    bytes.ok_or_else(bad).map(Some)
}

impl Config {
    /// Parses the text of a configuration.
    ///
    /// Keys of cards at the top level are defaults for all cards.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut top: toml::Table = text.parse().map_err(|error: toml::de::Error| one_line(&error))?;
        let version = match top.remove("version") {
            None => VERSION.to_owned(),
            Some(toml::Value::String(version)) => version,
            Some(other) => return Err(format!("version is {other}; give a string, such as `{VERSION}`")),
        };
        let version = CString::new(version).map_err(|_| "version contains a NUL".to_owned())?;
        let side = match top.remove("side") {
            None => Side::Both,
            Some(side) => side.try_into().map_err(|error| format!("side: {}", one_line(&error)))?,
        };
        let cards = tables(top, "card", &["version", "side"], CardConfig::check)?;
        let mut config = Self { version, cards };
        config.check()?;
        if side != Side::Both {
            for card in &mut config.cards {
                // Keep all functions, because representors show functions that the process itself does not
                // list.
                card.function.iter_mut().for_each(|function| function.seen = function.side == side);
            }
        }
        Ok(config)
    }
}

impl CardConfig {
    /// Checks values that the types of the keys do not restrict.
    fn check(self) -> Result<Self, String> {
        let least_one = [
            ("max_buf_size", self.max_buf_size.map(|size| size.0)),
            ("max_list_len", self.max_list_len.map(u64::from)),
            ("max_tasks", self.max_tasks.map(u64::from)),
            ("queue_depth", self.queue_depth.map(u64::from)),
            ("max_contexts", self.max_contexts.map(u64::from)),
        ];
        if let Some((key, _)) = least_one.iter().find(|(_, value)| *value == Some(0)) {
            return Err(format!("{key} is 0; give 1 or more"));
        }
        for (key, value) in [("max_tasks", self.max_tasks), ("queue_depth", self.queue_depth)] {
            if let Some(value) = value.filter(|value| *value > Profile::DEPTH_MAX) {
                return Err(format!("{key} is {value}; the maximum is {}", Profile::DEPTH_MAX));
            }
        }
        if self.serial.len() > MAX_SERIAL {
            return Err(format!("serial has {} bytes; the maximum is {MAX_SERIAL}", self.serial.len()));
        }
        Ok(self)
    }
}

impl Config {
    /// Checks that addresses and names are unique, because programs find devices by them.
    fn check(&self) -> Result<(), String> {
        let mut serials = std::collections::BTreeSet::new();
        if let Some(card) = self.cards.iter().find(|card| !serials.insert(&card.serial)) {
            return Err(format!("two cards have serial = `{}`; give each its own", card.serial));
        }
        let functions = || self.cards.iter().flat_map(|card| &card.function);
        for key in ["pci", "ibdev", "vuid"] {
            let mut seen = std::collections::BTreeSet::new();
            let names = functions().filter_map(|function| match key {
                "pci" => Some(&function.pci),
                "ibdev" => function.ibdev.as_ref(),
                _ => function.vuid.as_ref(),
            });
            for name in names {
                if !seen.insert(name) {
                    return Err(format!("two functions have {key} = `{name}`; give each its own"));
                }
            }
        }
        Ok(())
    }
}

/// Converts `DDDD:BB:DD.F` or `BB:DD.F`, in letters of either case, to `DDDD:BB:DD.F` in lower case;
/// `None` for other texts.
pub(crate) fn whole_address(text: &str) -> Option<String> {
    let whole = match text.len() {
        12 => text.to_ascii_lowercase(),
        7 => format!("0000:{}", text.to_ascii_lowercase()),
        _ => return None,
    };
    let good = whole.bytes().zip(0..).all(|(byte, at)| match at {
        4 | 7 => byte == b':',
        10 => byte == b'.',
        11 => (b'0'..=b'7').contains(&byte),
        _ => byte.is_ascii_hexdigit(),
    });
    good.then_some(whole)
}
