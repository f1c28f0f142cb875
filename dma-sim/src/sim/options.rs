//! [`SimOptions`]: what a simulated device is to be like.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use dma_core::{Error, ErrorKind};

use crate::model::{
    Curve, DeviceConfig, DeviceError, Direction, FaultPlan, Profile, ProfileError, Reporting, Time, TraceMode,
};

/// What passes the time of a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Polling does: a poll that finds no completion jumps to when the next one comes. Everything takes as long as the profile says, and
    /// the tests take no time. While nothing is in flight on the queue that is polled, no time passes.
    #[default]
    Virtual,
    /// The computer's clock does: a copy takes as long as on the modelled device (or longer, if nobody polls).
    Real,
    /// [`SimEngine::advance`](super::SimEngine::advance) does, and nothing else.
    Manual,
}

/// The texts that stand for values, by value.
const CLOCKS: [(&str, Clock); 3] =
    [("virtual", Clock::Virtual), ("real", Clock::Real), ("manual", Clock::Manual)];
const TRACES: [(&str, TraceMode); 3] =
    [("off", TraceMode::Off), ("digest", TraceMode::Digest), ("record", TraceMode::Record)];
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// What a simulated device is to be like.
///
/// Fields that are `None` are as the profile has them.
///
/// ```
/// use dma_sim::sim::SimOptions;
///
/// let mut options = SimOptions::new();
/// options.set("profile", "bluefield3")?;
/// options.set("seed", "7")?;
/// options.set("faults", "fail@5+lose:p=0.001")?;
/// assert!(options.set("sed", "7").unwrap_err().to_string().contains("seed"));
/// # Ok::<(), dma_sim::sim::OptionError>(())
/// ```
///
/// # Text
///
/// [`set`](Self::set) takes these keys, in any order; a later value replaces an earlier one:
///
/// | key | value | field |
/// |---|---|---|
/// | `seed` | a number | [`seed`](Self::seed) |
/// | `profile` | `ideal`, `bluefield2`, `bluefield3`, `ioat`, `dsa` | [`profile`](Self::profile) |
/// | `faults` | a [`FaultPlan`], rules joined by `+` | [`faults`](Self::faults) |
/// | `clock` | `virtual`, `real`, `manual` | [`clock`](Self::clock) |
/// | `trace` | `off`, `digest`, `record` | [`trace`](Self::trace) |
/// | `tearing` | `on`, `off` | [`tearing`](Self::tearing) |
/// | `coalesce` | `on`, `off` | [`coalesce`](Self::coalesce) |
/// | `depth` | a number | [`depth`](Self::depth) |
/// | `queues` | a number | [`queues`](Self::queues) |
/// | `max_transfer` | bytes: `2097152`, `2MiB` (also `KiB`, `GiB`) | [`max_transfer`](Self::max_transfer) |
/// | `claimed_max_transfer` | bytes, as above | [`claimed_max_transfer`](Self::claimed_max_transfer) |
/// | `max_segments` | a number | [`max_segments`](Self::max_segments) |
/// | `latency` | a [time](Time): `5us` | [`latency`](Self::latency) |
/// | `bandwidth` | bytes a second, as above | [`bandwidth`](Self::bandwidth) |
/// | `jitter` | thousandths | [`jitter`](Self::jitter) |
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SimOptions {
    /// The device that is modelled. Default: [`Profile::ideal`].
    pub profile: Profile,
    /// Decides all that is left to chance. Default 0.
    pub seed: u64,
    /// What goes wrong. Default: nothing.
    pub faults: FaultPlan,
    /// What passes the time. Default: polling.
    pub clock: Clock,
    /// What is recorded. Default: nothing.
    pub trace: TraceMode,
    /// Bytes move in parts, so that a copy can be seen half done. Default yes.
    pub tearing: bool,
    /// The completions of all but the newest descriptor of each doorbell are coalesced, where the device can do that: small copies
    /// become cheaper, and none is reported before the newest. Default no.
    pub coalesce: bool,
    /// The deepest queue, in descriptors: 1 to [`Profile::DEPTH_MAX`].
    pub depth: Option<u32>,
    /// How many queues there can be at once, at least 1.
    pub queues: Option<u32>,
    /// The longest descriptor in bytes, at least 64.
    pub max_transfer: Option<u64>,
    /// What the engine says that its longest descriptor is, in bytes, at least 64, where that is not the truth. Callers who believe it send
    /// descriptors that the device refuses or chokes on, as [`Profile::oversize`] says.
    pub claimed_max_transfer: Option<u64>,
    /// The most segments on either side of a descriptor, at least 1.
    pub max_segments: Option<u32>,
    /// How long a descriptor takes on an idle device, whatever its length.
    pub latency: Option<Time>,
    /// What all queues together move in each direction, in bytes a second, at least 1.
    pub bandwidth: Option<u64>,
    /// How far latencies may be off, in thousandths, up to 1000.
    pub jitter: Option<u32>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            profile: Profile::ideal(),
            seed: 0,
            faults: FaultPlan::none(),
            clock: Clock::default(),
            trace: TraceMode::default(),
            tearing: true,
            coalesce: false,
            depth: None,
            queues: None,
            max_transfer: None,
            claimed_max_transfer: None,
            max_segments: None,
            latency: None,
            bandwidth: None,
            jitter: None,
        }
    }
}

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has this name.
    #[error("no option `{key}`; there are: {}", SimOptions::KEYS.join(", "))]
    UnknownKey {
        /// The name given.
        key: String,
    },
    /// The value is no value for this option.
    #[error("{key}={value}: {expected}")]
    BadValue {
        /// The option's name.
        key: &'static str,
        /// The value given.
        value: String,
        /// What would have been one.
        expected: String,
    },
    /// A number is too small or too large.
    #[error("{key}={value}: allowed are {min} to {max}")]
    OutOfRange {
        /// The option's name.
        key: &'static str,
        /// The value given.
        value: u64,
        /// The least that is allowed.
        min: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// The profile's device cannot do that.
    #[error("{key}: a device of profile `{profile}` cannot do that; leave it out, or use another profile")]
    NotOfThisDevice {
        /// The option's name.
        key: &'static str,
        /// The profile's name.
        profile: String,
    },
    /// The device cannot be made for another reason.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        let kind = match &error {
            OptionError::OutOfRange { .. } => ErrorKind::OutOfRange,
            _ => ErrorKind::InvalidArgument,
        };
        let wrapped = Self::new(kind, error.to_string());
        match error {
            OptionError::OutOfRange { value, min, max, .. } => {
                wrapped.with_numbers(value, if value < min { min } else { max })
            }
            _ => wrapped,
        }
        .with_operation("open engine")
        .with_backend(super::BACKEND)
        .with_source(error)
    }
}

impl SimOptions {
    /// The names that [`set`](Self::set) knows.
    pub const KEYS: [&'static str; 15] = [
        "seed",
        "profile",
        "faults",
        "clock",
        "trace",
        "tearing",
        "coalesce",
        "depth",
        "queues",
        "max_transfer",
        "claimed_max_transfer",
        "max_segments",
        "latency",
        "bandwidth",
        "jitter",
    ];

    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the device that is modelled.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets what goes wrong.
    #[must_use]
    pub fn with_faults(self, faults: FaultPlan) -> Self {
        Self { faults, ..self }
    }

    /// Sets what passes the time.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets what is recorded.
    #[must_use]
    pub fn with_trace(self, trace: TraceMode) -> Self {
        Self { trace, ..self }
    }

    /// Sets an option by its name; see the table above. Ranges are checked when the engine is opened.
    ///
    /// # Errors
    ///
    /// There is no such option, with a list of those there are; or it has no such value, with what it may be.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), OptionError> {
        let known = Self::KEYS.into_iter().find(|known| *known == key);
        let key = known.ok_or_else(|| OptionError::UnknownKey { key: key.to_owned() })?;
        match key {
            "seed" => self.seed = number(key, value)?,
            "profile" => {
                self.profile = Profile::by_name(value).map_err(|e| bad(key, value, &e))?;
            }
            "faults" => self.faults = value.parse().map_err(|e| bad(key, value, &e))?,
            "clock" => self.clock = choice(key, value, &CLOCKS)?,
            "trace" => self.trace = choice(key, value, &TRACES)?,
            "tearing" => self.tearing = choice(key, value, &SWITCH)?,
            "coalesce" => self.coalesce = choice(key, value, &SWITCH)?,
            "depth" => self.depth = Some(number(key, value)?),
            "queues" => self.queues = Some(number(key, value)?),
            "max_transfer" => self.max_transfer = Some(bytes(key, value)?),
            "claimed_max_transfer" => self.claimed_max_transfer = Some(bytes(key, value)?),
            "max_segments" => self.max_segments = Some(number(key, value)?),
            "latency" => self.latency = Some(value.parse().map_err(|e| bad(key, value, &e))?),
            "bandwidth" => self.bandwidth = Some(bytes(key, value)?),
            "jitter" => self.jitter = Some(number(key, value)?),
            _ => return Err(OptionError::UnknownKey { key: key.to_owned() }),
        }
        Ok(())
    }

    /// What the device is a model of: the profile and its source, what of it is changed, and whether this computer may be slower.
    pub(super) fn model(&self) -> String {
        let mut text = format!("{} ({})", self.profile.name, self.profile.source);
        let changed = self.changed();
        if !changed.is_empty() {
            let _ = write!(text, ", changed: {}", changed.join(", "));
        }
        if self.clock == Clock::Real {
            text.push_str(", on this computer's clock: no faster than it simulates");
        }
        text
    }

    /// What is otherwise than the profile has it, and so than its source: names and values.
    #[must_use]
    pub fn changed(&self) -> Vec<String> {
        let number = |value: Option<u32>| value.map(|v| v.to_string());
        let bytes = |value: Option<u64>| value.map(|v| v.to_string());
        let faults = (self.faults != FaultPlan::none()).then(|| self.faults.to_string());
        let all = [
            ("faults", faults),
            ("depth", number(self.depth)),
            ("queues", number(self.queues)),
            ("max_transfer", bytes(self.max_transfer)),
            ("claimed_max_transfer", bytes(self.claimed_max_transfer)),
            ("max_segments", number(self.max_segments)),
            ("latency", self.latency.map(|t| t.to_string())),
            ("bandwidth", bytes(self.bandwidth)),
            ("jitter", number(self.jitter)),
        ];
        all.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect()
    }

    /// The device that all this makes, and what it says that its longest descriptor is.
    pub(super) fn device(&self) -> Result<(DeviceConfig, u64), OptionError> {
        let mut profile = self.profile.clone();
        let range = |key, value: Option<u64>, min, max| match value {
            Some(value) if !(min..=max).contains(&value) => {
                Err(OptionError::OutOfRange { key, value, min, max })
            }
            value => Ok(value),
        };
        range("depth", self.depth.map(u64::from), 1, u64::from(Profile::DEPTH_MAX))?;
        range("queues", self.queues.map(u64::from), 1, u64::from(u32::MAX))?;
        // The contract's least.
        range("max_transfer", self.max_transfer, 64, u64::MAX)?;
        range("claimed_max_transfer", self.claimed_max_transfer, 64, u64::MAX)?;
        range("max_segments", self.max_segments.map(u64::from), 1, u64::from(u32::MAX))?;
        range("bandwidth", self.bandwidth, 1, u64::MAX)?;
        range("jitter", self.jitter.map(u64::from), 0, 1_000)?;
        profile.depth = self.depth.unwrap_or(profile.depth);
        profile.channels = self.queues.unwrap_or(profile.channels);
        profile.max_task = self.max_transfer.unwrap_or(profile.max_task);
        profile.max_segments = self.max_segments.unwrap_or(profile.max_segments);
        profile.jitter = self.jitter.unwrap_or(profile.jitter);
        if self.coalesce {
            if profile.reporting != (Reporting::Each { coalescing: true }) {
                let profile = profile.name.into_owned();
                return Err(OptionError::NotOfThisDevice { key: "coalesce", profile });
            }
            profile.reporting = Reporting::PerDoorbell;
        }
        for direction in Direction::ALL {
            let costs = profile.costs_mut(direction);
            if let Some(latency) = self.latency {
                costs.latency = Curve::flat(latency);
            }
            if let Some(bandwidth) = self.bandwidth {
                costs.engine = Curve::linear(Time::ZERO, bandwidth);
            }
        }
        let claimed = self.claimed_max_transfer.unwrap_or(profile.max_task);
        profile.validate().map_err(DeviceError::from)?;
        self.faults.validate().map_err(DeviceError::from)?;
        let config = DeviceConfig {
            tearing: self.tearing,
            trace: self.trace,
            ..DeviceConfig::new(profile).with_seed(self.seed).with_faults(self.faults.clone())
        };
        Ok((config, claimed))
    }
}

impl From<ProfileError> for OptionError {
    fn from(error: ProfileError) -> Self {
        Self::Device(error.into())
    }
}

fn bad(key: &'static str, value: &str, expected: &dyn fmt::Display) -> OptionError {
    OptionError::BadValue { key, value: value.to_owned(), expected: expected.to_string() }
}

fn number<N: FromStr>(key: &'static str, value: &str) -> Result<N, OptionError> {
    value.parse().map_err(|_| bad(key, value, &"give a whole number, and not too large a one"))
}

fn choice<V: Copy>(key: &'static str, value: &str, choices: &[(&str, V)]) -> Result<V, OptionError> {
    let found = choices.iter().find(|(name, _)| *name == value).map(|(_, found)| *found);
    found.ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        bad(key, value, &format!("give one of {}", names.join(", ")))
    })
}

fn bytes(key: &'static str, value: &str) -> Result<u64, OptionError> {
    crate::size::parse(value).ok_or_else(|| bad(key, value, &"give bytes, such as 65536, 64K, 2M or 1GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_says_what_of_it_is_not_from_its_source() {
        let model = |pairs: &[(&str, &str)]| set(pairs).unwrap().model();
        let source = SimOptions::new().with_profile(Profile::by_name("dsa").unwrap()).model();
        assert!(source.starts_with("dsa (") && source.ends_with(')'), "{source}");
        for same in [("seed", "7"), ("clock", "virtual"), ("trace", "digest"), ("tearing", "off")] {
            assert_eq!(model(&[("profile", "dsa"), same]), source, "{same:?}");
        }
        for (key, value) in [
            ("faults", "fail@5"),
            ("depth", "8"),
            ("queues", "2"),
            ("max_transfer", "4096"),
            ("claimed_max_transfer", "4096"),
            ("max_segments", "3"),
            ("latency", "50us"),
            ("bandwidth", "1024"),
            ("jitter", "9"),
        ] {
            let expected = format!("{source}, changed: {key}={value}");
            assert_eq!(model(&[("profile", "dsa"), (key, value)]), expected);
        }
        let both = model(&[("profile", "dsa"), ("latency", "1us"), ("jitter", "0")]);
        assert!(both.ends_with(", changed: latency=1us, jitter=0"), "{both}");
        assert!(model(&[("profile", "dsa"), ("clock", "real")]).contains("no faster than it simulates"));
    }

    fn set(pairs: &[(&str, &str)]) -> Result<SimOptions, OptionError> {
        let mut options = SimOptions::new();
        pairs.iter().try_for_each(|(key, value)| options.set(key, value))?;
        Ok(options)
    }

    #[test]
    fn every_key_is_settable_in_any_order() {
        let mut pairs = [
            ("seed", "7"),
            ("profile", "bluefield3"),
            ("faults", "fail@5"),
            ("clock", "manual"),
            ("trace", "digest"),
            ("tearing", "off"),
            ("coalesce", "on"),
            ("depth", "9"),
            ("queues", "3"),
            ("max_transfer", "64KiB"),
            ("claimed_max_transfer", "1M"),
            ("max_segments", "2"),
            ("latency", "5us"),
            ("bandwidth", "1000"),
            ("jitter", "0"),
        ];
        assert_eq!(pairs.map(|(key, _)| key), SimOptions::KEYS);
        let options = set(&pairs).unwrap();
        pairs.reverse();
        assert_eq!(set(&pairs).unwrap(), options);
        let (config, claimed) = options.device().unwrap();
        let profile = &config.profile;
        assert_eq!((config.seed, config.tearing, config.trace), (7, false, TraceMode::Digest));
        assert_eq!((profile.depth, profile.channels, profile.max_segments, profile.jitter), (9, 3, 2, 0));
        assert_eq!((profile.max_task, claimed), (64 << 10, 1 << 20));
        assert_eq!(profile.reporting, Reporting::PerDoorbell);
        assert_eq!(profile.push.latency.at(1 << 20), Time::from_us(5));
        assert_eq!(profile.pull.engine.at(1), Time::from_us(1_000));
        assert_eq!(options.clock, Clock::Manual);
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        for (key, value, says) in [
            ("sed", "7", "no option `sed`; there are: seed, profile, faults"),
            ("seed", "x", "seed=x: give a whole number"),
            ("seed", "-1", "whole number"),
            ("profile", "bf3", "there are: ideal, bluefield2, bluefield3, ioat, dsa"),
            ("faults", "fial@5", "no fault `fial`"),
            ("clock", "wall", "give one of virtual, real, manual"),
            ("tearing", "yes", "give one of on, off"),
            ("max_transfer", "2MB", "such as 65536, 64K"),
            ("max_transfer", "99999999999GiB", "such as"),
            ("latency", "5", "write a number and a unit"),
            ("depth", "5000000000", "not too large"),
        ] {
            let error = set(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(says), "{key}={value}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_found_when_opening() {
        for (key, value, min, max) in [
            ("depth", 0, 1, 65_536),
            ("depth", 65_537, 1, 65_536),
            ("queues", 0, 1, u64::from(u32::MAX)),
            ("max_transfer", 63, 64, u64::MAX),
            ("claimed_max_transfer", 0, 64, u64::MAX),
            ("max_segments", 0, 1, u64::from(u32::MAX)),
            ("bandwidth", 0, 1, u64::MAX),
            ("jitter", 1_001, 0, 1_000),
        ] {
            let error = set(&[(key, &value.to_string())]).unwrap().device().unwrap_err();
            assert_eq!(error, OptionError::OutOfRange { key, value, min, max });
            let error = Error::from(error);
            assert_eq!((error.kind(), error.asked()), (ErrorKind::OutOfRange, Some(value)));
        }
        let error = set(&[("profile", "ioat"), ("coalesce", "on")]).unwrap().device().unwrap_err();
        assert!(error.to_string().contains("profile `ioat` cannot"), "{error}");
    }
}
