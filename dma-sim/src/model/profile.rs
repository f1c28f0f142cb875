//! Device profiles: limits, behaviour and costs.

use std::borrow::Cow;

use super::curve::Curve;
use super::time::Time;

/// Direction of a task's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From this device's memory to a peer's: some destination is remote.
    Push,
    /// From a peer's memory to this device's: some source is remote, no destination is.
    Pull,
    /// Within this device's memory.
    #[default]
    Local,
}

impl Direction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Push, Self::Pull, Self::Local];
}

/// Time at which a device detects an error in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At submission, which is refused.
    AtSubmit,
    /// In the engine: it was accepted, and fails.
    InEngine,
}

/// Result of a task of 0 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroLength {
    /// It completes.
    Completes,
    /// It is an error.
    Mistake(Found),
}

/// Effect of a failed task on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing.
    Continue,
    /// The channel halts; everything else in flight on it is aborted.
    Halt,
}

/// Completions that a device reports individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// Each, except coalesced ones where the device supports that.
    Each {
        /// True if [`Device::submit_coalesced`](super::Device::submit_coalesced) leaves out completions.
        coalescing: bool,
    },
    /// The last task of each doorbell is reported, together with the tasks before it.
    PerDoorbell,
}

/// Cost of a task for its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelCosts {
    /// Time to start a task, by its bytes. Its inverse is the channel's task rate.
    pub issue: Curve,
    /// Wait for earlier tasks, by the number in flight on the channel, itself included. It makes throughput
    /// approach its limit slowly as the window grows, as in measurements.
    pub contention: Curve,
}

/// Costs of tasks in one direction.
///
/// A task ends after the longest of: its latency and contention, from the doorbell; its latency, from the
/// start by the channel; and its time in the engine, which all channels share and which serves one task per
/// direction at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Latency on an idle device, by bytes.
    pub latency: Curve,
    /// Time in the engine, by bytes. It limits all channels together.
    pub engine: Curve,
    /// Tasks whose completions are reported one by one.
    pub reported: ChannelCosts,
    /// Tasks whose completions are coalesced.
    pub coalesced: ChannelCosts,
}

impl Costs {
    /// Costs that do not depend on the reporting of completions.
    fn of(latency: Curve, engine: Curve, issue: Curve, contention: Curve) -> Self {
        let channel = ChannelCosts { issue, contention };
        Self { latency, engine, reported: channel.clone(), coalesced: channel }
    }
}

/// A modelled device. Start from a constructor and change fields.
///
/// Figures in the constructors come from public measurements where there are any. Their documentation names
/// sources and assumptions. [`published`](super::published) holds the measurements and compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name.
    pub name: Cow<'static, str>,
    /// Source of its figures, in a few words.
    pub source: Cow<'static, str>,
    /// Channels that can be open at once, at least 1.
    pub channels: u32,
    /// Tasks that a channel holds, from submission until their completion is polled: 1 to
    /// [`Profile::DEPTH_MAX`].
    pub depth: u32,
    /// The longest task in bytes, at least 1.
    pub max_task: u64,
    /// Maximum number of segments on either side of a task, at least 1.
    pub max_segments: u32,
    /// Has a fill operation.
    pub fill: bool,
    /// Compares, computes CRC-32C alone and while it copies, and copies to two destinations. Each takes the
    /// time of a copy of the same length.
    pub results: bool,
    /// Has ordering marks in its interface. The model honours them on every device.
    pub fence: bool,
    /// Can signal completions, instead of being polled.
    pub wakes: bool,
    /// Tasks of one channel end, and are reported, in the order of submission.
    pub in_order: bool,
    /// Completions that are reported individually.
    pub reporting: Reporting,
    /// Result of tasks of 0 bytes.
    pub zero_length: ZeroLength,
    /// Detection of tasks longer than `max_task`.
    pub oversize: Found,
    /// Detection of segments outside of a region, or without the right.
    pub protection: Found,
    /// Effect of a failed task on its channel.
    pub on_failure: OnFailure,
    /// Time that a doorbell takes on a channel, in addition to its tasks.
    pub doorbell: Time,
    /// Additional latency and channel time for each segment beyond the first on either side.
    pub segment: Time,
    /// Jitter of the latency without its bytes, up or down, in thousandths: 0 to 1000.
    pub jitter: u32,
    /// Costs from this device's memory to a peer's.
    pub push: Costs,
    /// Costs from a peer's memory to this device's.
    pub pull: Costs,
    /// Costs within this device's memory.
    pub local: Costs,
}

/// An invalid profile or device configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No profile has this name.
    #[error("no profile `{name}`; there are: {}", Profile::NAMES.join(", "))]
    Unknown {
        /// The name given.
        name: String,
    },
    /// A number is out of its range.
    #[error("profile `{profile}`: {field} is {value}; allowed are {min} to {max}")]
    OutOfRange {
        /// The profile's name.
        profile: String,
        /// The field.
        field: &'static str,
        /// The value given.
        value: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Makes a curve through sizes and picoseconds, for the tables below. A test builds all of them.
fn curve(points: &[(u64, u64)]) -> Curve {
    let points: Vec<_> = points.iter().map(|&(size, ps)| (size, Time::from_ps(ps))).collect();
    Curve::points(&points).expect("the tables of this file are curves")
}

fn flat(ps: u64) -> Curve {
    Curve::flat(Time::from_ps(ps))
}

impl Profile {
    /// Names of all profiles.
    pub const NAMES: [&'static str; 5] = ["ideal", "bluefield2", "bluefield3", "ioat", "dsa"];
    /// Largest depth of a channel.
    pub const DEPTH_MAX: u32 = 65_536;

    /// Returns the profile of this name, one of [`Profile::NAMES`].
    ///
    /// # Errors
    ///
    /// Returns [`ProfileError::Unknown`] for other names.
    pub fn by_name(name: &str) -> Result<Self, ProfileError> {
        match name {
            "ideal" => Ok(Self::ideal()),
            "bluefield2" => Ok(Self::bluefield2()),
            "bluefield3" => Ok(Self::bluefield3()),
            "ioat" => Ok(Self::ioat()),
            "dsa" => Ok(Self::dsa()),
            _ => Err(ProfileError::Unknown { name: name.to_owned() }),
        }
    }

    /// Removes all costs and disorder. Every task ends within its doorbell, or for a device with faults or a
    /// trace once the time of the doorbell has passed.
    ///
    /// Without faults and trace, the device only checks and copies, and is several times as fast.
    #[must_use]
    pub fn timeless(self) -> Self {
        let costs = Costs::of(flat(0), flat(0), flat(0), flat(0));
        let zero = Time::ZERO;
        Self { in_order: true, doorbell: zero, segment: zero, jitter: 0, ..self }.with_costs(costs)
    }

    /// Sets the costs of all directions.
    fn with_costs(self, costs: Costs) -> Self {
        Self { push: costs.clone(), pull: costs.clone(), local: costs, ..self }
    }

    /// Returns true if nothing takes time, and all is in order.
    pub(super) fn is_timeless(&self) -> bool {
        let free = |costs: &Costs| {
            let channels = [&costs.reported, &costs.coalesced];
            let channels = channels.map(|costs| costs.issue.is_zero() && costs.contention.is_zero());
            costs.latency.is_zero() && costs.engine.is_zero() && channels == [true; 2]
        };
        let direct = self.doorbell == Time::ZERO && self.segment == Time::ZERO;
        // Jitter is a part of the latency.
        self.in_order && direct && Direction::ALL.iter().all(|direction| free(self.costs(*direction)))
    }

    /// Returns the costs of one direction.
    #[must_use]
    pub const fn costs(&self, direction: Direction) -> &Costs {
        match direction {
            Direction::Push => &self.push,
            Direction::Pull => &self.pull,
            Direction::Local => &self.local,
        }
    }

    /// Returns the costs of one direction, to change them.
    pub const fn costs_mut(&mut self, direction: Direction) -> &mut Costs {
        match direction {
            Direction::Push => &mut self.push,
            Direction::Pull => &mut self.pull,
            Direction::Local => &mut self.local,
        }
    }

    /// Checks every number against its range.
    ///
    /// # Errors
    ///
    /// Returns the first one out of its range.
    pub fn validate(&self) -> Result<(), ProfileError> {
        for (field, value, min, max) in [
            ("channels", u64::from(self.channels), 1, u64::from(u32::MAX)),
            ("depth", u64::from(self.depth), 1, u64::from(Self::DEPTH_MAX)),
            ("max_task", self.max_task, 1, u64::MAX),
            ("max_segments", u64::from(self.max_segments), 1, u64::from(u32::MAX)),
            ("jitter", u64::from(self.jitter), 0, 1_000),
        ] {
            if !(min..=max).contains(&value) {
                let profile = self.name.clone().into_owned();
                return Err(ProfileError::OutOfRange { profile, field, value, min, max });
            }
        }
        Ok(())
    }

    /// Models no real device: 1 ns for every task, no contention, all operations, wide limits.
    ///
    /// Completions come in any order. For tests of correctness.
    #[must_use]
    pub fn ideal() -> Self {
        let costs = Costs::of(flat(1_000), flat(0), flat(0), flat(0));
        Self {
            name: "ideal".into(),
            source: "no device".into(),
            channels: 1_024,
            depth: Self::DEPTH_MAX,
            max_task: 1 << 40,
            max_segments: 1_024,
            fill: true,
            results: true,
            fence: true,
            wakes: true,
            in_order: false,
            reporting: Reporting::Each { coalescing: true },
            zero_length: ZeroLength::Completes,
            oversize: Found::AtSubmit,
            protection: Found::AtSubmit,
            on_failure: OnFailure::Continue,
            doorbell: Time::ZERO,
            segment: Time::ZERO,
            jitter: 0,
            push: costs.clone(),
            pull: costs.clone(),
            local: costs,
        }
    }

    /// DMA of an NVIDIA BlueField-2, driven from its Arm cores with DOCA 1.5.
    ///
    /// **Measured:** task rate and bandwidth by size, 10.5 M/s read and 10.2 M/s write, 25.6 and 15.4 GB/s;
    /// 4.16 M/s from one thread with 64 in flight. Source: `smartnickit-project/smartnic-bench`,
    /// `benchs/docs/doca_dma.md`, commit 86d1377, the artefact of the OSDI'23 study of off-path SmartNICs.
    /// The source does not state the number of threads of the peaks; here four or more channels reach them.
    ///
    /// **Assumed:** the latency of a single task (1.5 µs and its bytes at 10 GB/s) and how it grows with the
    /// window; local copies cost as much as the slower direction; the longest task, 128 MiB, which is how far
    /// `digiou/dpu-coprocessing-artifacts` swept; 8 channels, one for each Arm core; lists of up to 64
    /// segments, as on [BlueField-3](Self::bluefield3), since NVIDIA's DMA samples, which are for both cards,
    /// ask for 2 at least; jitter. DOCA has no ordering marks. Mistakes are found in the engine and take the
    /// channel down, as on [BlueField-3](Self::bluefield3).
    #[must_use]
    pub fn bluefield2() -> Self {
        let latency = Curve::linear(Time::from_ns(1_400), 10_000_000_000);
        let contention = curve(&[(0, 0), (1_000, 100_000_000)]);
        let costs = |engine| Costs::of(latency.clone(), engine, flat(240_400), contention.clone());
        // One over the published rates.
        let write = curve(&[
            (256, 98_100),
            (KIB, 110_900),
            (4 * KIB, 269_500),
            (16 * KIB, 1_063_800),
            (64 * KIB, 4_348_000),
        ]);
        let read = curve(&[
            (256, 95_200),
            (KIB, 146_600),
            (4 * KIB, 258_400),
            (16 * KIB, 666_700),
            (64 * KIB, 2_564_000),
        ]);
        Self {
            name: "bluefield2".into(),
            source: "smartnickit-project/smartnic-bench".into(),
            channels: 8,
            depth: 1_024,
            max_task: 128 * MIB,
            max_segments: 64,
            fill: false,
            results: false,
            fence: false,
            reporting: Reporting::Each { coalescing: false },
            zero_length: ZeroLength::Mistake(Found::InEngine),
            oversize: Found::InEngine,
            protection: Found::InEngine,
            on_failure: OnFailure::Halt,
            segment: Time::from_ns(20),
            jitter: 100,
            push: costs(write.clone()),
            pull: costs(read),
            local: costs(write),
            ..Self::ideal()
        }
    }

    /// DMA of an NVIDIA BlueField-3, driven by one of its Arm cores with DOCA 3.2.
    ///
    /// **Measured:** best throughput and the window that reaches 95 % of it, for seven sizes in both
    /// directions; 1.88 µs for one 4 KiB push alone and 99.0 µs for one of 1 MiB; 6.25 M/s with coalesced
    /// reports. Source: `fardatalab/postgres-dbcomm`,
    /// `docs/kb/future-directions/citus/transport/doca_dma_ordering_visibility_validation_plan.md`, commit
    /// ebc75eb9: one machine, one pass, not peer reviewed, and the best there is. The longest task, 2 MiB,
    /// and that a longer one is accepted, fails in the engine and takes the context down, is from the same
    /// project. So are the 3072 tasks in flight, which ran clean and need not be the limit.
    ///
    /// **Assumed:** the latency of single pulls, of which only the windows are known; that several channels
    /// reach the coalesced task rate together; local copies cost as much as the slower direction of each
    /// kind; 16 channels, one for each Arm core; jitter.
    ///
    /// Lists of up to 64 segments are what `jukebox03/DPUmesh` states to have read off a device.
    #[must_use]
    pub fn bluefield3() -> Self {
        let coalesced =
            ChannelCosts { issue: flat(161_000), contention: curve(&[(1, 0), (1_001, 100_000_000)]) };
        // A task of up to 5 KiB takes the engine's time at the coalesced rate, a longer one that of the wire.
        let engine = |bytes_per_ns_x10: u64| {
            let bytes = 160 * bytes_per_ns_x10 / 10;
            curve(&[(0, 160_000), (bytes, 160_000), (1_000 * bytes, 160_000_000)])
        };
        let push = Costs {
            latency: Curve::linear(Time::from_ns(1_650), 9_700_000_000),
            engine: engine(317),
            reported: ChannelCosts {
                issue: flat(248_000),
                contention: curve(&[(1, 0), (8, 920_000), (16, 2_750_000), (32, 5_950_000)]),
            },
            coalesced: coalesced.clone(),
        };
        let pull = Costs {
            latency: Curve::linear(Time::from_ns(1_730), 5_050_000_000),
            engine: engine(373),
            reported: ChannelCosts {
                issue: flat(278_000),
                contention: curve(&[(1, 0), (1_001, 130_000_000)]),
            },
            coalesced,
        };
        let local = Costs { engine: push.engine.clone(), ..pull.clone() };
        Self {
            name: "bluefield3".into(),
            source: "fardatalab/postgres-dbcomm".into(),
            channels: 16,
            depth: 3_072,
            max_task: 2 * MIB,
            reporting: Reporting::Each { coalescing: true },
            push,
            pull,
            local,
            ..Self::bluefield2()
        }
    }

    /// One socket's Intel I/OAT (CBDMA), Skylake generation.
    ///
    /// **Measured:** 3.7 M copies of 512 bytes a second with a doorbell for each, 14.0 M/s with one for every
    /// 128, 256 in flight. Source: SPDK commit 6728c1b8cb; the number of channels is not said there, the
    /// tool's default is one. Read in SPDK's driver: 32,768 descriptors of which one stays free, one
    /// completion write for each doorbell, in order, a halt on error; copy and fill, one segment on each
    /// side. Eight channels for each socket is what PCI listings of such machines show.
    ///
    /// **Assumed:** 1.5 µs for a single small copy, of which no measurement was found; 7.17 GB/s for one
    /// channel, which is what 14.0 M/s come to; 12 GB/s for the socket; 1 MiB for the longest task, which
    /// real devices have in a register; jitter.
    #[must_use]
    pub fn ioat() -> Self {
        let engine = Curve::linear(Time::ZERO, 12_000_000_000);
        // Busy for 70 ns, or as long as the bytes take at 7.17 GB/s.
        let issue = curve(&[(0, 70_000), (502, 70_000), (50_200, 7_000_000)]);
        let latency = Curve::linear(Time::from_ns(1_500), 7_170_000_000);
        Self {
            name: "ioat".into(),
            source: "SPDK commit 6728c1b8cb; latency estimated".into(),
            channels: 8,
            depth: 32_767,
            max_task: MIB,
            max_segments: 1,
            results: false,
            wakes: false,
            in_order: true,
            reporting: Reporting::PerDoorbell,
            on_failure: OnFailure::Halt,
            doorbell: Time::from_ns(200),
            jitter: 50,
            ..Self::ideal()
        }
        .with_costs(Costs::of(latency, engine, issue, flat(0)))
    }

    /// An Intel DSA of a 4th generation Xeon, one shared work queue for each channel.
    ///
    /// **Measured:** single synchronous copies, 128 in flight, and batches of 32, for eleven sizes. Source:
    /// `izumihanako/LightDSA` (EuroSys'26), `expr/paper`, commit 3905ece. It is also the source for small
    /// copies that overtake earlier large ones. 128 entries, 8 queues, 2 GiB for the longest task:
    /// `accel-config` output in `intel/idxd-config` issue 40.
    ///
    /// **Assumed:** that the measured single-submission rate is one channel's and the batched one the
    /// device's; that a batch is one doorbell; that the other operations take as long as copies; jitter. Its
    /// fences hold within a batch only, so it counts as having none. Not modelled: page faults and unaligned
    /// buffers, which make real devices much slower.
    #[must_use]
    pub fn dsa() -> Self {
        let latency = curve(&[
            (64, 750_000),
            (256, 840_000),
            (512, 900_000),
            (KIB, 960_000),
            (4 * KIB, 1_140_000),
            (8 * KIB, 1_360_000),
            (16 * KIB, 1_830_000),
            (32 * KIB, 2_390_000),
            (64 * KIB, 3_510_000),
            (256 * KIB, 9_910_000),
            (MIB, 35_060_000),
        ]);
        // One over the rate of batches.
        let engine = curve(&[
            (64, 44_600),
            (256, 39_700),
            (512, 28_200),
            (KIB, 40_400),
            (4 * KIB, 136_800),
            (8 * KIB, 265_500),
            (16 * KIB, 524_400),
            (64 * KIB, 2_091_000),
            (MIB, 33_428_000),
        ]);
        // With the doorbell: one over the rate of single submissions.
        let issue = curve(&[
            (64, 40_000),
            (256, 35_000),
            (512, 23_500),
            (KIB, 35_700),
            (4 * KIB, 65_800),
            (8 * KIB, 121_000),
            (16 * KIB, 370_000),
            (MIB, 33_200_000),
        ]);
        Self {
            name: "dsa".into(),
            source: "izumihanako/LightDSA".into(),
            channels: 8,
            depth: 128,
            max_task: 2_048 * MIB,
            max_segments: 1,
            fence: false,
            wakes: false,
            reporting: Reporting::Each { coalescing: false },
            zero_length: ZeroLength::Mistake(Found::InEngine),
            oversize: Found::InEngine,
            protection: Found::InEngine,
            doorbell: Time::from_ns(149),
            jitter: 50,
            ..Self::ideal()
        }
        .with_costs(Costs::of(latency, engine, issue, flat(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_constructors_agree() {
        for name in Profile::NAMES {
            let profile = Profile::by_name(name).unwrap();
            assert_eq!(profile.name, name);
            profile.validate().unwrap();
            for direction in Direction::ALL {
                // A table that does not form a curve would have become free.
                let costs = profile.costs(direction);
                for curve in [&costs.latency, &costs.engine, &costs.reported.issue, &costs.coalesced.issue] {
                    assert!(name == "ideal" || curve.at(64 * KIB) > Time::ZERO, "{name} {direction:?}");
                }
            }
        }
        let error = Profile::by_name("bluefield9").unwrap_err().to_string();
        assert!(error.contains("bluefield9") && error.contains("bluefield3"), "{error}");
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let profile = Profile { depth: 0, ..Profile::ideal() };
        let error = profile.validate().unwrap_err().to_string();
        assert_eq!(error, "profile `ideal`: depth is 0; allowed are 1 to 65536");
    }
}
