//! Device profiles: limits, behaviour and costs.

use std::borrow::Cow;

use super::curve::Curve;
use super::time::Time;

/// Direction of a task's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From this device's memory to a peer's: at least one destination is remote.
    Push,
    /// From a peer's memory to this device's: at least one source is remote, and no destination is.
    Pull,
    /// Within this device's memory.
    #[default]
    Local,
}

impl Direction {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Push, Self::Pull, Self::Local];
}

/// Time at which a device detects an error in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At submission: the task is refused.
    AtSubmit,
    /// In the engine: the task is accepted, and fails.
    InEngine,
}

/// Behaviour for a task of 0 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroLength {
    /// The task completes.
    Completes,
    /// The task is an error, which the device detects at this time.
    Mistake(Found),
}

/// Effect of a failed task on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// No effect.
    Continue,
    /// The channel halts, and all its other tasks in flight are aborted.
    Halt,
}

/// The completions that a device reports individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// Each completion, except coalesced ones if the device supports coalescing.
    Each {
        /// True if the device supports coalescing:
        /// [`Device::submit_coalesced`](super::Device::submit_coalesced) then leaves out completions.
        coalescing: bool,
    },
    /// The last task of each doorbell is reported, together with the tasks before it.
    PerDoorbell,
}

/// Cost of a task for its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelCosts {
    /// Time to start a task, by its bytes. The reciprocal is the channel's task rate.
    pub issue: Curve,
    /// Time that a task waits for earlier tasks, by the number of tasks in flight on the channel, including
    /// itself. It makes throughput approach its limit slowly as the window grows, as measurements show.
    pub contention: Curve,
}

/// Costs of tasks in one direction.
///
/// A task ends at the latest of three times: its latency plus contention after the doorbell; its latency
/// after the channel starts it; and the end of its time in the engine. All channels share the engine, which
/// serves one task per direction at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Latency on an idle device, by the number of bytes.
    pub latency: Curve,
    /// Time in the engine, by the number of bytes. It limits the throughput of all channels together.
    pub engine: Curve,
    /// Costs of tasks whose completions are reported individually.
    pub reported: ChannelCosts,
    /// Costs of tasks whose completions are coalesced.
    pub coalesced: ChannelCosts,
}

impl Costs {
    /// Returns costs that do not depend on the reporting of completions.
    fn of(latency: Curve, engine: Curve, issue: Curve, contention: Curve) -> Self {
        let channel = ChannelCosts { issue, contention };
        Self { latency, engine, reported: channel.clone(), coalesced: channel }
    }
}

/// A modelled device. To define your own, start from a constructor and change fields.
///
/// The figures in the constructors come from public measurements, if these exist. The constructors'
/// documentation names sources and assumptions. [`published`](super::published) contains the measurements,
/// and compares them with the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name of the profile.
    pub name: Cow<'static, str>,
    /// Source of the profile's figures, in a few words.
    pub source: Cow<'static, str>,
    /// Maximum number of open channels, at least 1.
    pub channels: u32,
    /// Maximum number of tasks of a channel, counted from their submission until their completion is polled:
    /// 1 to [`Profile::DEPTH_MAX`].
    pub depth: u32,
    /// Maximum length of a task in bytes, at least 1.
    pub max_task: u64,
    /// Maximum number of segments on either side of a task, at least 1.
    pub max_segments: u32,
    /// True if the device has a fill operation.
    pub fill: bool,
    /// True if the device compares, computes CRC-32C with or without a copy, and copies to two destinations.
    /// Each of these operations takes the time of a copy of the same length.
    pub results: bool,
    /// True if the device's interface has fences. The model honours fences on every device.
    pub fence: bool,
    /// True if the device can signal completions, so that polling is not needed.
    pub wakes: bool,
    /// True if tasks of one channel end, and are reported, in the order of submission.
    pub in_order: bool,
    /// Completions that are reported individually.
    pub reporting: Reporting,
    /// Behaviour for tasks of 0 bytes.
    pub zero_length: ZeroLength,
    /// Time at which the device detects a task longer than `max_task`.
    pub oversize: Found,
    /// Time at which the device detects a segment outside of its region, or in a region without the right.
    pub protection: Found,
    /// Effect of a failed task on its channel.
    pub on_failure: OnFailure,
    /// Time that a doorbell takes on a channel, in addition to its tasks.
    pub doorbell: Time,
    /// Additional latency and channel time for each segment beyond the first on either side.
    pub segment: Time,
    /// Jitter, up or down, of the part of the latency that does not depend on bytes, in thousandths: 0 to
    /// 1000.
    pub jitter: u32,
    /// Costs of tasks from this device's memory to a peer's.
    pub push: Costs,
    /// Costs of tasks from a peer's memory to this device's.
    pub pull: Costs,
    /// Costs of tasks within this device's memory.
    pub local: Costs,
}

/// An invalid profile or device configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No profile has this name.
    #[error("no profile `{name}`; there are: {}", Profile::NAMES.join(", "))]
    Unknown {
        /// The given name.
        name: String,
    },
    /// A number is out of its range.
    #[error("profile `{profile}`: {field} is {value}; allowed are {min} to {max}")]
    OutOfRange {
        /// The profile's name.
        profile: String,
        /// The field.
        field: &'static str,
        /// The given value.
        value: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns a curve through sizes and picoseconds, for the tables below. A test builds all of these curves.
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
    /// Maximum depth of a channel.
    pub const DEPTH_MAX: u32 = 65_536;

    /// Returns the profile with this name, which is one of [`Profile::NAMES`].
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

    /// Removes all costs and all reordering. Every task ends within its doorbell. On a device with faults or
    /// a trace, it ends when time advances to the time of the doorbell.
    ///
    /// Without faults and trace, the device only checks and copies, and simulates several times as fast.
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

    /// Returns true if no operation takes time, and all completions are in order.
    pub(super) fn is_timeless(&self) -> bool {
        let free = |costs: &Costs| {
            let channels = [&costs.reported, &costs.coalesced];
            let channels = channels.map(|costs| costs.issue.is_zero() && costs.contention.is_zero());
            costs.latency.is_zero() && costs.engine.is_zero() && channels == [true; 2]
        };
        let direct = self.doorbell == Time::ZERO && self.segment == Time::ZERO;
        // Jitter need not be checked, because it is a fraction of the latency.
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

    /// Returns a mutable reference to the costs of one direction.
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
    /// Returns the first number that is out of its range.
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
    /// Completions come in any order. This profile is for tests of correctness.
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

    /// The DMA engine of an NVIDIA BlueField-2, driven from its Arm cores with DOCA 1.5.
    ///
    /// **Measured:** task rate and bandwidth by size, at most 10.5 M/s and 25.6 GB/s for reads, and 10.2 M/s
    /// and 15.4 GB/s for writes; 4.16 M/s from one thread with 64 in flight. Source:
    /// `smartnickit-project/smartnic-bench`, `benchs/docs/doca_dma.md`, commit 86d1377, the artefact of the
    /// OSDI'23 study of off-path SmartNICs. The source does not state the number of threads for the peaks; in
    /// the model, four or more channels reach them.
    ///
    /// **Assumed:** the latency of a single task (1.5 µs and its bytes at 10 GB/s) and how it grows with the
    /// window; a local copy costs the same as one in the slower direction; the longest task, 128 MiB, is the
    /// largest size that `digiou/dpu-coprocessing-artifacts` measured; 8 channels, one for each Arm core;
    /// lists of up to 64 segments, as on [BlueField-3](Self::bluefield3), because NVIDIA's DMA samples for
    /// both cards require at least 2; jitter. DOCA has no fences. Errors are detected in the engine and take
    /// the channel down, as on [BlueField-3](Self::bluefield3).
    #[must_use]
    pub fn bluefield2() -> Self {
        let latency = Curve::linear(Time::from_ns(1_400), 10_000_000_000);
        let contention = curve(&[(0, 0), (1_000, 100_000_000)]);
        let costs = |engine| Costs::of(latency.clone(), engine, flat(240_400), contention.clone());
        // These are the reciprocals of the published rates.
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

    /// The DMA engine of an NVIDIA BlueField-3, driven by one of its Arm cores with DOCA 3.2.
    ///
    /// **Measured:** best throughput and the window that reaches 95 % of it, for seven sizes in both
    /// directions; 1.88 µs for one 4 KiB push alone and 99.0 µs for one of 1 MiB; 6.25 M/s with coalesced
    /// reports. Source: `fardatalab/postgres-dbcomm`,
    /// `docs/kb/future-directions/citus/transport/doca_dma_ordering_visibility_validation_plan.md`, commit
    /// ebc75eb9: one machine, one pass, not peer reviewed, and the best source that was found. The same
    /// project reports the longest task, 2 MiB, and that a longer task is accepted, fails in the engine and
    /// takes the context down. It also reports 3072 tasks in flight, which ran without errors and need not be
    /// the limit.
    ///
    /// **Assumed:** the latency of single pulls, for which only the windows are known; several channels reach
    /// the coalesced task rate together; a local copy of each kind costs the same as one in the slower
    /// direction; 16 channels, one for each Arm core; jitter.
    ///
    /// `jukebox03/DPUmesh` states that a device reported lists of up to 64 segments.
    #[must_use]
    pub fn bluefield3() -> Self {
        let coalesced =
            ChannelCosts { issue: flat(161_000), contention: curve(&[(1, 0), (1_001, 100_000_000)]) };
        // Up to 5 KiB, a task's time in the engine follows from the coalesced rate; above, it follows from
        // the bandwidth of the wire.
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

    /// The Intel I/OAT (CBDMA) of one socket, Skylake generation.
    ///
    /// **Measured:** 3.7 M copies of 512 bytes a second with a doorbell for each, and 14.0 M/s with a
    /// doorbell for every 128, with 256 in flight. Source: SPDK commit 6728c1b8cb. It does not state the
    /// number of channels; the tool's default is one. From SPDK's driver: 32,768 descriptors, of which one
    /// stays free; one completion write for each doorbell, in order; a halt on error; copy and fill; one
    /// segment on each side. PCI listings of such machines show eight channels for each socket.
    ///
    /// **Assumed:** 1.5 µs for a single small copy, for which no measurement was found; 7.17 GB/s for one
    /// channel, which follows from 14.0 M/s; 12 GB/s for the socket; 1 MiB for the longest task, which real
    /// devices report in a register; jitter.
    #[must_use]
    pub fn ioat() -> Self {
        let engine = Curve::linear(Time::ZERO, 12_000_000_000);
        // The channel is busy for 70 ns, or for the time of the bytes at 7.17 GB/s if that is longer.
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
    /// `izumihanako/LightDSA` (EuroSys'26), `expr/paper`, commit 3905ece. It also reports small copies that
    /// overtake earlier large ones. 128 entries, 8 queues and 2 GiB for the longest task come from the
    /// `accel-config` output in `intel/idxd-config` issue 40.
    ///
    /// **Assumed:** the measured rate of single submissions is that of one channel, and the batched rate is
    /// that of the device; a batch is one doorbell; the other operations take as long as copies; jitter.
    /// DSA's fences apply only within a batch, so the profile has none. Page faults and unaligned buffers,
    /// which make real devices much slower, are not modelled.
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
        // This is the reciprocal of the rate of batches.
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
        // Together with the doorbell, this is the reciprocal of the rate of single submissions.
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
                // A table that does not form a curve would have become a curve without costs.
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
