//! Published measurements of real devices, and the model's figures beside them.
//!
//! [`compare`] runs a profile under the loads that were published for its device, and returns both figures
//! side by side. Each row names its source. The constructors of [`Profile`] name sources and assumptions.
//!
//! ```
//! let rows = dma_sim::model::published::compare("ioat")?;
//! for row in &rows {
//!     println!("{row}");
//! }
//! assert!(rows.iter().all(|row| row.holds()));
//! # Ok::<(), dma_sim::model::ProfileError>(())
//! ```

use std::fmt;

use dma_core::{Descriptor, DeviceAddr, Segment};

use super::channel::ChannelId;
use super::device::{Device, DeviceConfig};
use super::profile::{Direction, Profile, ProfileError};
use super::region::{PeerAccess, PeerError, Rights};
use super::task::Status;
use super::time::Time;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Windows that are tried, to find the best window and the knee.
const WINDOWS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The quantity that a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantity {
    /// Throughput in MiB/s.
    Throughput,
    /// Throughput in million tasks per second.
    TaskRate,
    /// Time of a single task in microseconds.
    Latency,
    /// The smallest window among the powers of two from 1 to 256 with 95 % of the best throughput.
    Knee,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Throughput => "MiB/s",
            Self::TaskRate => "M tasks/s",
            Self::Latency => "us",
            Self::Knee => "knee window",
        })
    }
}

/// A published figure, and the figure of the model.
///
/// Formatted as text, it is one line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The profile's name.
    pub profile: &'static str,
    /// The workload.
    pub load: String,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Bytes of each task.
    pub size: u64,
    /// The compared quantity.
    pub quantity: Quantity,
    /// The figure that was measured on the device.
    pub published: f64,
    /// The figure of the model.
    pub simulated: f64,
    /// Allowed deviation, as a fraction of the published figure. With 0, the figures must be equal.
    pub tolerance: f64,
    /// Source of the published figure.
    pub source: &'static str,
}

impl Row {
    /// Returns the deviation of the model, as a fraction of the published figure: positive if it is too high.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.simulated / self.published - 1.0
    }

    /// Returns true if the model is within the tolerance.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.deviation().abs() <= self.tolerance
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, load, direction, size, quantity, published, simulated, tolerance, .. } = self;
        write!(
            f,
            "{profile:<10} {load:<24} {:<5} {size:>8} B  {published:>10.2} -> {simulated:>10.2} {quantity:<11} {:>+6.1} %  (allowed {:.0} %){}",
            format!("{direction:?}").to_lowercase(),
            self.deviation() * 100.0,
            tolerance * 100.0,
            if self.holds() { "" } else { "  MISSED" },
        )
    }
}

/// A load that always keeps its windows full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedLoop {
    /// Direction of the bytes.
    pub direction: Direction,
    /// Bytes of each task, at least 1.
    pub size: u64,
    /// Tasks kept in flight on each channel, at least 1.
    pub window: u32,
    /// Channels, at least 1.
    pub channels: u32,
    /// Tasks for each doorbell, at least 1 and at most the window.
    pub batch: u32,
    /// True if all tasks of a batch except the last are coalesced.
    pub coalesce: bool,
}

impl ClosedLoop {
    /// Returns a load on one channel, with a doorbell for each task.
    #[must_use]
    pub const fn new(direction: Direction, size: u64, window: u32) -> Self {
        Self { direction, size, window, channels: 1, batch: 1, coalesce: false }
    }
}

/// Result of a [`ClosedLoop`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Tasks per second.
    pub tasks: f64,
    /// Bytes per second.
    pub bytes: f64,
    /// Mean time from a task's doorbell to its end.
    pub latency: Time,
}

/// A load that a device cannot run: it exceeds channels, depth or task length, or one of its numbers is 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile `{profile}` cannot run this load: {reason}")]
pub struct LoadError {
    /// The profile's name.
    pub profile: String,
    /// Reason.
    pub reason: String,
}

/// A peer that always grants access.
#[derive(Debug)]
struct Always;

impl PeerAccess for Always {
    fn acquire(&self) -> Result<(), PeerError> {
        Ok(())
    }

    fn release(&self) {}
}

/// Runs a load on a new device, and measures after it has become steady. Real bytes are copied.
///
/// # Errors
///
/// Returns an error if the device cannot run the load.
pub fn run(profile: &Profile, load: ClosedLoop, seed: u64) -> Result<Measured, LoadError> {
    Runner::new(profile, load, seed)
        .and_then(|mut runner| runner.run())
        .map_err(|reason| LoadError { profile: profile.name.to_string(), reason })
}

struct Runner {
    load: ClosedLoop,
    device: Device,
    channels: Vec<ChannelId>,
    /// Number of tasks submitted to each channel since its last doorbell.
    unrung: Vec<u32>,
    src: Segment,
    dst: Segment,
}

impl Runner {
    fn new(profile: &Profile, load: ClosedLoop, seed: u64) -> Result<Self, String> {
        if load.size == 0 || load.window == 0 || load.channels == 0 || load.batch == 0 {
            return Err("size, window, channels and batch must not be 0".to_owned());
        }
        let text = |error: &dyn fmt::Display| error.to_string();
        let config = DeviceConfig::new(profile.clone()).with_seed(seed);
        let mut device = Device::new(config).map_err(|e| text(&e))?;
        let mut memory = |remote: bool| -> Result<Segment, String> {
            let peer = remote.then(|| std::sync::Arc::new(Always) as _);
            let key = device.allocate(load.size, Rights::all(), peer).map_err(|e| text(&e))?;
            let (addr, len) = device.range(key).unwrap_or_default();
            Ok(Segment { key, addr: DeviceAddr(addr), len: len as usize })
        };
        let src = memory(load.direction == Direction::Pull)?;
        let dst = memory(load.direction == Direction::Push)?;
        let channels = (0..load.channels)
            .map(|_| device.open_channel(load.window).map_err(|e| text(&e)))
            .collect::<Result<Vec<_>, _>>()?;
        let unrung = vec![0; channels.len()];
        Ok(Self { load, device, channels, unrung, src, dst })
    }

    fn submit(&mut self, channel: usize) -> Result<(), String> {
        self.unrung[channel] += 1;
        let last = self.unrung[channel] >= self.load.batch.min(self.load.window);
        let task = Descriptor::copy(channel as u64, self.src, self.dst);
        let id = self.channels[channel];
        let submitted = if self.load.coalesce && !last {
            self.device.submit_coalesced(id, &task)
        } else {
            self.device.submit(id, &task)
        };
        submitted.map_err(|e| e.to_string())?;
        if last {
            self.unrung[channel] = 0;
            self.device.doorbell(id).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Measured, String> {
        let flight = u64::from(self.load.window) * u64::from(self.load.channels);
        let warm = 2 * flight;
        let end = warm + (2 * flight).max(128);
        let (mut ended, mut from, mut latency) = (0, Time::ZERO, 0.0);
        for channel in 0..self.channels.len() {
            for _ in 0..self.load.window {
                self.submit(channel)?;
            }
        }
        while ended < end {
            let next = self.device.next_event().ok_or("the device stopped")?;
            self.device.advance(next);
            for channel in 0..self.channels.len() {
                while let Some(completion) = self.device.poll(self.channels[channel]) {
                    if completion.status != Status::Done {
                        return Err(format!("a task ended as {:?}", completion.status));
                    }
                    ended += 1;
                    if ended == warm {
                        from = self.device.now();
                    } else if ended > warm {
                        latency += (completion.ended - completion.rung).as_secs_f64();
                    }
                    self.submit(channel)?;
                }
            }
        }
        let counted = (ended - warm) as f64;
        let tasks = counted / (self.device.now() - from).as_secs_f64();
        let latency = Time::from_ps((latency / counted * 1e12) as u64);
        Ok(Measured { tasks, bytes: tasks * self.load.size as f64, latency })
    }
}

/// Compares a profile with all figures that were published for its device. For `ideal`, the result is empty.
///
/// # Errors
///
/// Returns an error if no profile has this name.
pub fn compare(profile: &str) -> Result<Vec<Row>, ProfileError> {
    let model = Profile::by_name(profile)?;
    let table = Table { model, rows: Vec::new() };
    Ok(match profile {
        "bluefield2" => bluefield2(table),
        "bluefield3" => bluefield3(table),
        "ioat" => ioat(table),
        "dsa" => dsa(table),
        _ => Vec::new(),
    })
}

/// Collects the rows of one profile.
struct Table {
    model: Profile,
    rows: Vec<Row>,
}

impl Table {
    fn measure(&self, load: ClosedLoop) -> Measured {
        // A load that the profile cannot run becomes a row outside of its tolerance.
        let none = Measured { tasks: 0.0, bytes: 0.0, latency: Time::ZERO };
        run(&self.model, load, 1).unwrap_or(none)
    }

    /// Adds a row for one figure under one load.
    fn add(&mut self, name: &str, load: ClosedLoop, quantity: Quantity, published: f64, source: Source) {
        let measured = self.measure(load);
        let simulated = match quantity {
            Quantity::Throughput => measured.bytes / MIB as f64,
            Quantity::TaskRate => measured.tasks / 1e6,
            Quantity::Latency => measured.latency.as_secs_f64() * 1e6,
            Quantity::Knee => f64::from(load.window),
        };
        self.push(name, load, quantity, published, simulated, source);
    }

    /// Adds a row for the best throughput over all windows, and a row for the smallest window with 95 % of
    /// this throughput.
    fn add_sweep(&mut self, load: ClosedLoop, best_mib: f64, knee: u32, source: Source) {
        let sweep = WINDOWS.map(|window| self.measure(ClosedLoop { window, ..load }).bytes / MIB as f64);
        let best = sweep.iter().copied().fold(0.0, f64::max);
        let at = WINDOWS.iter().zip(sweep).find(|(_, mib)| *mib >= 0.95 * best);
        let simulated = f64::from(at.map_or(0, |(window, _)| *window));
        self.push("best window", load, Quantity::Throughput, best_mib, best, source);
        let exact = Source { tolerance: 0.0, ..source };
        self.push("window for 95 %", load, Quantity::Knee, f64::from(knee), simulated, exact);
    }

    fn push(
        &mut self,
        name: &str,
        load: ClosedLoop,
        quantity: Quantity,
        published: f64,
        simulated: f64,
        source: Source,
    ) {
        let profile = Profile::NAMES.iter().find(|name| **name == self.model.name);
        self.rows.push(Row {
            profile: profile.copied().unwrap_or_default(),
            load: name.to_owned(),
            direction: load.direction,
            size: load.size,
            quantity,
            published,
            simulated,
            tolerance: source.tolerance,
            source: source.text,
        });
    }
}

/// The source of published figures, and the tolerance of the model's figures.
#[derive(Clone, Copy)]
struct Source {
    text: &'static str,
    tolerance: f64,
}

fn bluefield3(mut table: Table) -> Vec<Row> {
    let source = Source {
        text: "fardatalab/postgres-dbcomm, doca_dma_ordering_visibility_validation_plan.md, commit ebc75eb9",
        tolerance: 0.15,
    };
    let push = [
        (64, 246.13, 32),
        (KIB, 3_976.53, 32),
        (4 * KIB, 15_652.47, 32),
        (16 * KIB, 29_706.55, 8),
        (64 * KIB, 30_276.25, 8),
        (256 * KIB, 30_236.39, 4),
        (MIB, 30_233.45, 4),
    ];
    let pull = [
        (64, 222.42, 16),
        (KIB, 3_489.22, 16),
        (4 * KIB, 13_525.05, 16),
        (16 * KIB, 34_648.36, 16),
        (64 * KIB, 35_427.52, 16),
        (256 * KIB, 35_590.75, 8),
        (MIB, 35_632.68, 8),
    ];
    for (direction, cells) in [(Direction::Push, push), (Direction::Pull, pull)] {
        for (size, best, knee) in cells {
            table.add_sweep(ClosedLoop::new(direction, size, 1), best, knee, source);
        }
    }
    for (size, us) in [(4 * KIB, 1.88), (MIB, 99.0)] {
        table.add("alone", ClosedLoop::new(Direction::Push, size, 1), Quantity::Latency, us, source);
    }
    let coalesced = ClosedLoop { batch: 32, coalesce: true, ..ClosedLoop::new(Direction::Push, 64, 256) };
    table.add("coalesced reports", coalesced, Quantity::Throughput, 383.16, source);
    table.rows
}

fn bluefield2(mut table: Table) -> Vec<Row> {
    let source = Source {
        text: "smartnickit-project/smartnic-bench, benchs/docs/doca_dma.md, commit 86d1377",
        tolerance: 0.15,
    };
    let sizes = [16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB];
    let read = [10.5, 10.5, 10.5, 6.82, 3.87, 1.50, 0.39];
    let write = [10.19, 10.19, 10.19, 9.02, 3.71, 0.94, 0.23];
    for (direction, rates) in [(Direction::Pull, read), (Direction::Push, write)] {
        for (size, rate) in sizes.into_iter().zip(rates) {
            let load = ClosedLoop { channels: 4, ..ClosedLoop::new(direction, size, 64) };
            table.add("4 channels, window 64", load, Quantity::TaskRate, rate, source);
        }
    }
    let one = ClosedLoop::new(Direction::Pull, 32, 64);
    table.add("1 channel, window 64", one, Quantity::TaskRate, 4.16, source);
    table.rows
}

fn ioat(mut table: Table) -> Vec<Row> {
    let source = Source { text: "spdk/spdk, commit 6728c1b8cb", tolerance: 0.05 };
    for (name, batch, rate) in [("doorbell for each", 1, 3.7), ("doorbell for 128", 128, 14.0)] {
        let load = ClosedLoop { batch, ..ClosedLoop::new(Direction::Local, 512, 256) };
        table.add(name, load, Quantity::TaskRate, rate, source);
    }
    table.rows
}

fn dsa(mut table: Table) -> Vec<Row> {
    let source = Source { text: "izumihanako/LightDSA, expr/paper, commit 3905ece", tolerance: 0.10 };
    let cells = [
        (64, 0.75, 323.0, 1_368.0),
        (256, 0.84, 1_293.0, 6_155.0),
        (512, 0.90, 2_580.0, 17_290.0),
        (KIB, 0.96, 5_116.0, 24_159.0),
        (4 * KIB, 1.14, 18_187.0, 28_546.0),
        (8 * KIB, 1.36, 28_911.0, 29_425.0),
        (16 * KIB, 1.83, 29_652.0, 29_795.0),
        (32 * KIB, 2.39, 29_855.0, 29_853.0),
        (64 * KIB, 3.51, 29_899.0, 29_884.0),
        (256 * KIB, 9.91, 29_932.0, 29_914.0),
        (MIB, 35.06, 29_941.0, 29_915.0),
    ];
    for (size, alone, many, batched) in cells {
        let one = ClosedLoop::new(Direction::Local, size, 1);
        table.add("alone", one, Quantity::Latency, alone, source);
        let full = ClosedLoop { window: 128, ..one };
        table.add("window 128", full, Quantity::Throughput, many, source);
        table.add("batches of 32", ClosedLoop { batch: 32, ..full }, Quantity::Throughput, batched, source);
    }
    table.rows
}
