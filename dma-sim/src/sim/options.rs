//! [`SimOptions`]: options of a simulated device.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use dma_core::{Error, ErrorKind};

use crate::model::{Curve, DeviceConfig, Direction, FaultPlan, Profile, Reporting, Time, TraceMode};

/// Clock of a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Polling advances time: a poll that finds no completion jumps to the next one. Operations take the
    /// profile's time on this clock, and tests do not wait in real time. No time passes while the polled
    /// queue has no operation in flight.
    #[default]
    Virtual,
    /// The computer's clock: a copy takes as long as on the modelled device, or longer if no thread polls.
    Real,
    /// Time advances only in calls of [`SimEngine::advance`](super::SimEngine::advance).
    Manual,
}

/// Allowed depths of a queue.
const DEPTHS: RangeInclusive<u32> = 1..=Profile::DEPTH_MAX;
/// Allowed numbers of queues and of segments.
const COUNTS: RangeInclusive<u32> = 1..=u32::MAX;
/// Allowed maximum lengths of a descriptor, in bytes. The smallest is the contract's minimum.
const TRANSFERS: RangeInclusive<u64> = 64..=u64::MAX;
/// Allowed bandwidths, in bytes a second.
const BANDWIDTHS: RangeInclusive<u64> = 1..=u64::MAX;
/// Allowed jitters, in thousandths.
const JITTERS: RangeInclusive<u32> = 0..=1_000;
/// Allowed sizes of device memory, in bytes. The greatest is the size of an address space.
const DEVICE_MEMORIES: RangeInclusive<u64> = 4_096..=1 << 46;

dma_core::options! {
    /// Options of a simulated device.
    ///
    /// The profile determines the value of a field that is `None`.
    ///
    /// ```
    /// use dma_sim::sim::SimOptions;
    ///
    /// let name = "sim:profile=bluefield3,seed=7,faults=fail@5+lose:p=0.001".parse()?;
    /// let options = SimOptions::from_name(&name)?;
    /// assert_eq!((options.seed, &*options.profile.name), (7, "bluefield3"));
    /// let wrong = SimOptions::from_name(&"sim:sed=7".parse()?);
    /// assert!(wrong.unwrap_err().to_string().contains("seed"));
    /// # Ok::<(), dma_core::Error>(())
    /// ```
    ///
    /// For their text in an engine name, see [`INFO`](Self::INFO). Each option there sets the field with the
    /// same name.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SimOptions {
        /// Seed of all random decisions. Default 0.
        pub seed: u64, with_seed(u64),
            "seed": number(0..=u64::MAX), "seed of all random decisions", default "0";
        /// The modelled device. Default: [`Profile::ideal`].
        pub profile: Profile = Profile::ideal(), with_profile(Profile => profile),
            "profile": read("ideal|bluefield2|bluefield3|ioat|dsa", Profile::by_name), "modelled device",
            default "ideal";
        /// Injected faults. Default: none.
        pub faults: FaultPlan = FaultPlan::none(), with_faults(FaultPlan => faults),
            "faults": read("RULE[+RULE...]", str::parse), "injected faults (refuse, fail, reset, lose, stick, gone, dead, slow, corrupt, oversize), such as fail@5+lose:p=0.1",
            default "none";
        /// Clock of the device. Default: [`Clock::Virtual`].
        pub clock: Clock, with_clock(Clock),
            "clock": choice("virtual" => Clock::Virtual, "real" => Clock::Real, "manual" => Clock::Manual),
            "clock of the device", default "virtual";
        /// Extent of the trace. Default: no events.
        pub trace: TraceMode, with_trace(TraceMode),
            "trace": choice("off" => TraceMode::Off, "digest" => TraceMode::Digest,
                "record" => TraceMode::Record),
            "extent of the trace", default "off";
        /// True if bytes move in parts, so that a copy can be observed half done. Default: true.
        pub tearing: bool = true, with_tearing(bool),
            "tearing": choice("on" => true, "off" => false), "bytes move in parts", default "on";
        /// True if the completions of all but the newest descriptor of each doorbell are coalesced, where the
        /// device supports this. Small copies become cheaper, but none is reported before the newest.
        /// Default: false.
        pub coalesce: bool, with_coalesce(bool),
            "coalesce": choice("on" => true, "off" => false),
            "one report for each doorbell, if supported", default "off";
        /// Maximum depth of a queue, in descriptors: 1 to [`Profile::DEPTH_MAX`].
        pub depth: Option<u32>, with_depth(Some(u32)),
            "depth": number(DEPTHS), "maximum queue depth, in descriptors", default "the profile's";
        /// Maximum number of open queues, at least 1.
        pub queues: Option<u32>, with_queues(Some(u32)),
            "queues": number(COUNTS), "maximum number of queues", default "the profile's";
        /// Maximum length of a descriptor in bytes, at least 64.
        pub max_transfer: Option<u64>, with_max_transfer(Some(u64)),
            "max_transfer": size(TRANSFERS), "longest descriptor", default "the profile's";
        /// Maximum length of a descriptor that the engine declares, in bytes, at least 64. Set it to a wrong
        /// value for tests: callers then submit descriptors that the device refuses or fails, depending on
        /// [`Profile::oversize`].
        pub claimed_max_transfer: Option<u64>, with_claimed_max_transfer(Some(u64)),
            "claimed_max_transfer": size(TRANSFERS), "claimed longest descriptor", default "max_transfer";
        /// Maximum number of segments on either side of a descriptor, at least 1.
        pub max_segments: Option<u32>, with_max_segments(Some(u32)),
            "max_segments": number(COUNTS), "maximum segments per side of a descriptor",
            default "the profile's";
        /// Latency of a descriptor on an idle device, for every length.
        pub latency: Option<Time>, with_latency(Some(Time)),
            "latency": read("TIME", str::parse), "latency on an idle device, such as 5us",
            default "the profile's";
        /// Bandwidth of all queues together in each direction, in bytes a second, at least 1.
        pub bandwidth: Option<u64>, with_bandwidth(Some(u64)),
            "bandwidth": size(BANDWIDTHS), "bytes a second in each direction", default "the profile's";
        /// Jitter of latencies, in thousandths, up to 1000.
        pub jitter: Option<u32>, with_jitter(Some(u32)),
            "jitter": number(JITTERS), "jitter of latencies, in thousandths", default "the profile's";
        /// The device's own memory, in bytes, at least 4096. Default: none.
        pub device_memory: Option<u64>, with_device_memory(Some(u64)),
            "device_memory": size(DEVICE_MEMORIES), "size of the device's own memory, such as 64M",
            default "none";
    }
    names super::NAME;
}

impl SimOptions {
    /// Describes the model: the profile and its source, the changed options, and a note if the clock is
    /// real.
    pub(super) fn model(&self) -> String {
        let mut text = format!("{} ({})", self.profile.name, self.profile.source);
        let changed = self.changed();
        if !changed.is_empty() {
            let _ = write!(text, ", changed: {}", changed.join(", "));
        }
        if self.clock == Clock::Real {
            text.push_str(", in real time, not faster than this computer can simulate");
        }
        text
    }

    /// Returns the names and values of the options that differ from the profile, and so from its source.
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
            ("device_memory", bytes(self.device_memory)),
        ];
        all.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect()
    }

    /// Returns the device's configuration, and the declared maximum length of a descriptor.
    pub(super) fn device(&self) -> dma_core::Result<(DeviceConfig, u64)> {
        let mut profile = self.profile.clone();
        within("depth", self.depth, DEPTHS)?;
        within("queues", self.queues, COUNTS)?;
        within("max_transfer", self.max_transfer, TRANSFERS)?;
        within("claimed_max_transfer", self.claimed_max_transfer, TRANSFERS)?;
        within("max_segments", self.max_segments, COUNTS)?;
        within("bandwidth", self.bandwidth, BANDWIDTHS)?;
        within("jitter", self.jitter, JITTERS)?;
        within("device_memory", self.device_memory, DEVICE_MEMORIES)?;
        profile.depth = self.depth.unwrap_or(profile.depth);
        profile.channels = self.queues.unwrap_or(profile.channels);
        profile.max_task = self.max_transfer.unwrap_or(profile.max_task);
        profile.max_segments = self.max_segments.unwrap_or(profile.max_segments);
        profile.jitter = self.jitter.unwrap_or(profile.jitter);
        if self.coalesce {
            if profile.reporting != (Reporting::Each { coalescing: true }) {
                let message = format!("coalesce: a device of profile `{}` cannot do that", profile.name);
                return Err(invalid(ErrorKind::InvalidArgument, message)
                    .with_hint("leave it out, or use another profile"));
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
        let config = DeviceConfig {
            tearing: self.tearing,
            trace: self.trace,
            ..DeviceConfig::new(profile).with_seed(self.seed).with_faults(self.faults.clone())
        };
        Ok((config, claimed))
    }
}

/// Returns an error of these options.
pub(super) fn invalid(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_operation("open engine").with_backend(super::NAME)
}

/// Checks the range of an option, if it is set.
fn within<N: Copy + Into<u64>>(
    key: &str,
    value: Option<N>,
    range: RangeInclusive<N>,
) -> dma_core::Result<()> {
    let Some(value) = value.map(Into::into) else { return Ok(()) };
    let (min, max) = ((*range.start()).into(), (*range.end()).into());
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(invalid(ErrorKind::OutOfRange, format!("{key}={value}: allowed are {min} to {max}"))
        .with_numbers(value, if value < min { min } else { max }))
}

#[cfg(test)]
mod tests {
    use dma_core::EngineName;

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
            ("device_memory", "65536"),
        ] {
            let expected = format!("{source}, changed: {key}={value}");
            assert_eq!(model(&[("profile", "dsa"), (key, value)]), expected);
        }
        let both = model(&[("profile", "dsa"), ("latency", "1us"), ("jitter", "0")]);
        assert!(both.ends_with(", changed: latency=1us, jitter=0"), "{both}");
        assert!(
            model(&[("profile", "dsa"), ("clock", "real")])
                .contains("not faster than this computer can simulate")
        );
    }

    fn set(pairs: &[(&str, &str)]) -> dma_core::Result<SimOptions> {
        let name = EngineName::of(SimOptions::NAME_FORMAT);
        let name = pairs.iter().try_fold(name, |name, (key, value)| name.with_option(key, value))?;
        SimOptions::from_name(&name)
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
            ("device_memory", "64M"),
        ];
        let keys: Vec<_> = SimOptions::INFO.iter().map(|info| info.key).collect();
        assert_eq!(pairs.map(|(key, _)| key), *keys);
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
            ("sed", "7", "no option `sed`; did you mean `seed`? There are: seed, profile, faults"),
            ("seed", "x", "seed=x; give a whole number"),
            ("seed", "-1", "whole number"),
            ("profile", "bf3", "there are: ideal, bluefield2, bluefield3, ioat, dsa"),
            ("faults", "fial@5", "no fault `fial`"),
            ("clock", "wall", "give one of virtual, real, manual"),
            ("tearing", "yes", "give one of on, off"),
            ("max_transfer", "2MB", "such as 65536, 64K"),
            ("max_transfer", "99999999999GiB", "such as"),
            ("latency", "5", "write a number and a unit"),
            ("depth", "5000000000", "limit 65536"),
        ] {
            let error = set(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(says), "{key}={value}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_found_when_opening() {
        let set_all = |value: u64| {
            let (number, bytes) = (u32::try_from(value).ok(), Some(value));
            let new = SimOptions::new;
            [
                ("depth", SimOptions { depth: number, ..new() }),
                ("queues", SimOptions { queues: number, ..new() }),
                ("max_transfer", SimOptions { max_transfer: bytes, ..new() }),
                ("claimed_max_transfer", SimOptions { claimed_max_transfer: bytes, ..new() }),
                ("max_segments", SimOptions { max_segments: number, ..new() }),
                ("bandwidth", SimOptions { bandwidth: bytes, ..new() }),
                ("jitter", SimOptions { jitter: number, ..new() }),
                ("device_memory", SimOptions { device_memory: bytes, ..new() }),
            ]
        };
        for (key, value, min, max) in [
            ("depth", 0, 1, 65_536),
            ("depth", 65_537, 1, 65_536),
            ("queues", 0, 1, u64::from(u32::MAX)),
            ("max_transfer", 63, 64, u64::MAX),
            ("claimed_max_transfer", 0, 64, u64::MAX),
            ("max_segments", 0, 1, u64::from(u32::MAX)),
            ("bandwidth", 0, 1, u64::MAX),
            ("jitter", 1_001, 0, 1_000),
            ("device_memory", 4_095, 4_096, 1 << 46),
        ] {
            let options = set_all(value).into_iter().find(|(of, _)| *of == key).unwrap().1;
            let error = options.device().unwrap_err();
            assert_eq!(error.message(), format!("{key}={value}: allowed are {min} to {max}"));
            assert_eq!((error.kind(), error.requested()), (ErrorKind::OutOfRange, Some(value)));
            // A name with this option is refused for the same reason before an engine is opened.
            let error = set(&[(key, &value.to_string())]).unwrap_err();
            assert_eq!((error.kind(), error.requested()), (ErrorKind::OutOfRange, Some(value)), "{error}");
        }
        let error = set(&[("profile", "ioat"), ("coalesce", "on")]).unwrap().device().unwrap_err();
        assert!(error.to_string().contains("profile `ioat` cannot"), "{error}");
    }
}
