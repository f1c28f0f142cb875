//! The options of `run`, and the campaign that they describe.

use std::path::PathBuf;

use clap::Args;

use super::printed::Printed;
use crate::files::{input, refused};
use crate::output::Shown;
use crate::plan::{
    Address, Campaign, Direction, Footprint, MAX_SAMPLE_SECONDS, MIN_SAMPLE_SECONDS, OpSpec, Peer, Preset,
    RATE_SAMPLE_SECONDS, Values, Verify,
};
use crate::results::saved;
use crate::run::placement;
use crate::units;

const RUN_EXAMPLES: &str = "\
Examples:
  dma-bench run --preset quick --report out.html
  dma-bench run -e cpu -e sim:profile=bluefield3 -o 64..2M -q 1,32 -t 1
  dma-bench run -e cpu -o 4K -q 32 -b 1,4,16,32 -a hot --json out.json
  dma-bench run -e cpu -o 64K --rate 20k              latency under a fixed load
  dma-bench run -e cpu -o 64K -q 32 --series -t 60    throughput and latency over time
  dma-bench run -e cpu -o 64K -q 32 --steady 2%       until throughput is steady
  dma-bench run -e cpu -o 1M --duration 3600          soak test, every byte compared
  dma-bench run -e cpu -o 1M -d local+back --numa 0,1 --cpus node0   between two NUMA nodes, both ways
  dma-bench run -e cpu -d push,pull -o 64K --peer process   memory of another process
  dma-bench run -e cuda -d to-device,from-device,on-device -o 8K..64M*8   a GPU's memory
  dma-bench run -e rdma:mlx5_0 --peer 10.0.0.2:4712 --secret-file key   of another machine; see serve
  dma-bench run -e cpu -w fill,gather:64,scatter:64 -o 64K
  dma-bench run -e cpu -w compare,crc32c,copy-crc32c,copy-to-both -o 64K -a hot
  dma-bench run --campaign mine.toml --save main      results under a name, for compare

Figures are medians over the samples. The baseline is the C library's memcpy on one core; memset for
fills, memcmp for comparisons, the crate crc32c for CRC-32C, memcpy and then crc32c for a copy with CRC-32C,
and memcpy twice for a copy to two destinations. Operations that an engine lacks are not measured. Each
sample of an engine lies between two of the baseline, and its ratio is to these two. Verdicts follow from
confidence intervals of these ratios. Samples in which threads waited for a CPU are left out where enough
others remain. Percentiles with too few samples are not shown. Models are simulated devices, in tables of their own.";

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
#[command(allow_negative_numbers = true)]
pub(crate) struct RunArguments {
    /// A built-in campaign. Other options change it.
    #[arg(long, value_enum, conflicts_with = "campaign")]
    pub preset: Option<Preset>,
    /// A campaign file, - for standard input. `dma-bench campaign` prints examples. Other options change it.
    #[arg(long, value_name = "FILE")]
    pub campaign: Option<PathBuf>,
    /// An engine by name, such as cpu, cpu:threads=2, sim:profile=dsa or doca:03:00.0. `real` stands for all
    /// usable ones except models. May be repeated.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engines: Vec<String>,
    /// Bytes of each operation: 4K, or 64,4K, or 64..2M (factor 2), or 64..2M*4 (factor 4).
    #[arg(short = 'o', long = "size", value_name = "SIZES")]
    pub sizes: Option<Values>,
    /// Operations in flight on each queue, such as 1,32 or 1..256.
    #[arg(short = 'q', long = "depth", value_name = "DEPTHS")]
    pub depths: Option<Values>,
    /// Operations for each doorbell, at most the depth. Default: half the depth, or 1 with --rate.
    #[arg(short = 'b', long = "batch", value_name = "COUNTS")]
    pub batches: Option<Values>,
    /// Queues, each driven by a thread of its own.
    #[arg(short = 'T', long = "queues", visible_alias = "threads", value_name = "COUNTS")]
    pub queues: Option<Values>,
    /// Operations: copy, fill, compare, crc32c, copy-crc32c, copy-to-both, sg, gather (many segments into
    /// one) and scatter (one into many). A number sets the number of segments: gather:64.
    #[arg(short = 'w', long = "op", value_delimiter = ',', value_name = "OPS")]
    pub ops: Vec<OpSpec>,
    /// Segments of sg, gather and scatter, if these have no number.
    #[arg(short = 's', long = "segments", value_name = "COUNTS")]
    pub segments: Option<Values>,
    /// Memory that operations use.
    #[arg(short = 'a', long = "access", value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub footprints: Vec<Footprint>,
    /// Bytes of source that cold and random operations use. The destination has the same size.
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    pub footprint: Option<u64>,
    /// Direction of the bytes: within host memory, to and from a peer's memory, or to, from and within the
    /// device's own memory, such as a GPU's. memcpy does not run beside copies of the device's own memory,
    /// because the CPU cannot access it; their bytes are copied back to be compared. With a +, both
    /// directions run at once, each on its own --queues queues; throughputs are the sums.
    #[arg(short = 'd', long = "direction", value_enum, value_delimiter = ',', value_name = "WAYS")]
    pub directions: Vec<Direction>,
    /// Owner of the memory that push and pull reach: thread (another engine in this process), process
    /// (another process), or HOST:PORT of a `dma-bench serve`, which implies push and pull.
    #[arg(long, value_name = "WHOSE")]
    pub peer: Option<String>,
    /// A file with the secret of `dma-bench serve`.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// CPUs for the threads that drive queues, used in turn, such as 0,2-3 or node0. memcpy runs on the
    /// first.
    #[arg(long, value_name = "CPUS")]
    pub cpus: Option<String>,
    /// NUMA node of all memory, or two nodes, of sources and of destinations, such as 0,1. ioat always uses
    /// the node of its device. Without --cpus, threads run on any node.
    #[arg(long = "numa", alias = "node", value_name = "NODE[,NODE]", value_parser = units::nodes)]
    pub nodes: Option<(u32, Option<u32>)>,
    /// Soak test: run each cell for this time without a break, compare every byte, and keep a time series.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["time", "count"], value_parser = units::seconds)]
    pub duration: Option<f64>,
    /// Keep a time series of throughput and latency, with a point at this interval (default: 0.1 seconds).
    /// Each cell runs without a break for --time (default: 10 seconds).
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0.1", value_parser = units::seconds)]
    pub series: Option<f64>,
    /// End each cell as soon as its throughput is steady: the medians of the last four groups of five points
    /// of its time series are within this percentage of their mean. The cell's figures are computed from
    /// these points. --time is the limit (default: 60 seconds).
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, conflicts_with = "duration", value_parser = units::percent)]
    pub steady: Option<f64>,
    /// Seconds of measuring for each cell, over all samples. With memcpy and the warm-up, a run takes
    /// about four times as long; --limit bounds it.
    #[arg(short = 't', long = "time", value_name = "SECONDS", conflicts_with = "count", value_parser = units::seconds)]
    pub time: Option<f64>,
    /// Operations of each sample, instead of a time. A few untimed operations run before them. Samples of
    /// memcpy stay short.
    #[arg(short = 'n', long = "count", value_name = "OPS", value_parser = units::count)]
    pub count: Option<u64>,
    /// Samples of each cell.
    #[arg(long, value_name = "COUNT")]
    pub samples: Option<u32>,
    /// Passes over all cells, each with a share of the samples, and at most the number of samples. Default:
    /// 24.
    #[arg(long, value_name = "COUNT", conflicts_with = "rate")]
    pub passes: Option<u32>,
    /// Time limit in seconds, after which no pass begins. Cells may then have fewer samples.
    #[arg(long, value_name = "SECONDS", conflicts_with = "rate", value_parser = units::seconds)]
    pub limit: Option<f64>,
    /// Warm-up of each cell in seconds, over all passes. No figure includes it.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub warm_up: Option<f64>,
    /// Operations a second on each queue, such as 20k, each with its own doorbell. The latency of an
    /// operation counts from its scheduled time. All samples of a cell form one schedule, so a delay also
    /// delays later operations. --time sets the schedule's length.
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub rate: Option<f64>,
    /// Verify every operation, within the measured time. Otherwise some operations are verified, outside of
    /// the measured time.
    #[arg(short = 'y', long = "verify")]
    pub verify: bool,
    /// Time limit in seconds for an engine that completes nothing. Its cell then fails.
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub stall: Option<f64>,
    /// Compare the profiles of simulated engines with the published figures of their devices.
    #[arg(long)]
    pub published: bool,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub printed: Printed,
    /// Save the results under this name, for `show`, `report` and `compare`. Earlier results of this name are
    /// replaced.
    #[arg(long, value_name = "NAME", value_parser = saved::file)]
    pub save: Option<PathBuf>,
    /// Write CSV to this file, with one line for each cell.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write an SVG and a PNG of each plot to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Run with realtime priority (SCHED_FIFO): more accurate figures on a busy machine, whose other programs
    /// are slow during that time. Needs root, CAP_SYS_NICE, or `ulimit -r 10`.
    #[arg(long)]
    pub realtime: bool,
    /// Print no progress.
    #[arg(long)]
    pub quiet: bool,
}

impl RunArguments {
    fn set_peer(&self, campaign: &mut Campaign) -> Result<(), String> {
        let is_address = |at: &str| {
            let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
            at.rsplit_once(':').is_some_and(|(host, number)| !host.is_empty() && port(number))
        };
        match (self.peer.as_deref(), &self.secret_file) {
            (None, None) => {}
            (Some("thread"), None) => campaign.peer = Peer::Thread,
            (Some("process"), None) => campaign.peer = Peer::Process,
            (Some(at), secret) if is_address(at) => {
                let secret_file = secret.clone().ok_or_else(|| {
                    format!(
                        "--peer {at} needs --secret-file, the same as `dma-bench serve` there has; make one with: \
                         head -c 32 /dev/urandom > key; chmod 600 key"
                    )
                })?;
                campaign.peer = Peer::Host;
                campaign.address = Some(Address { at: at.to_owned(), secret_file });
                if self.directions.is_empty() && self.campaign.is_none() {
                    let both = vec![Direction::Push, Direction::Pull];
                    campaign.sweeps.iter_mut().for_each(|sweep| sweep.directions.clone_from(&both));
                }
            }
            (None | Some("thread" | "process"), Some(_)) => {
                return Err("--secret-file is for --peer HOST:PORT; leave it out".to_owned());
            }
            (Some(other), _) => {
                return Err(format!("--peer {other}: choose one of thread, process and HOST:PORT"));
            }
        }
        Ok(())
    }

    /// Returns the campaign that the options describe.
    pub(crate) fn plan(&self) -> Result<Campaign, String> {
        let mut campaign = match (&self.campaign, self.preset) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(input(path)).map_err(|e| refused(path, &e))?;
                Campaign::from_toml(&text).map_err(|e| format!("{}: {e}", path.display()))?
            }
            (None, Some(preset)) => preset.campaign()?,
            (None, None) => Campaign::default(),
        };
        if !self.engines.is_empty() {
            campaign.engines.clone_from(&self.engines);
            // The engines of the command line apply to all sweeps.
            campaign.sweeps.iter_mut().for_each(|s| s.engines.clear());
        }
        for sweep in &mut campaign.sweeps {
            set(&mut sweep.sizes, self.sizes.as_ref());
            set(&mut sweep.depths, self.depths.as_ref());
            set(&mut sweep.queues, self.queues.as_ref());
            set(&mut sweep.segments, self.segments.as_ref());
            if self.batches.is_some() {
                sweep.batches.clone_from(&self.batches);
            }
            if !self.ops.is_empty() {
                sweep.ops.clone_from(&self.ops);
            }
            if !self.footprints.is_empty() {
                sweep.footprints.clone_from(&self.footprints);
            }
            if !self.directions.is_empty() {
                sweep.directions.clone_from(&self.directions);
            }
        }
        set(&mut campaign.samples, self.samples.as_ref());
        set(&mut campaign.passes, self.passes.as_ref());
        campaign.limit = self.limit.or(campaign.limit);
        self.set_peer(&mut campaign)?;
        campaign.duration = self.duration.or(campaign.duration);
        campaign.steady = self.steady.or(campaign.steady);
        let default_series = campaign.steady.map(|_| DEFAULT_INTERVAL);
        campaign.series = self.series.or(campaign.series).or(default_series);
        if let Some((node, dst)) = self.nodes {
            (campaign.node, campaign.dst_node) = (Some(node), dst);
        }
        if let Some(cpus) = &self.cpus {
            campaign.cpus = placement::cpus(&dma::NumaNodes::of_system(), cpus)?;
        }
        set(&mut campaign.warm_up, self.warm_up.as_ref());
        set(&mut campaign.stall, self.stall.as_ref());
        // Numbers are checked first, so that errors name the user's numbers and not values computed from
        // them.
        campaign.check_numbers()?;
        if let Some(time) = self.time {
            if time <= 0.0 {
                return Err(format!("--time {}: give seconds, more than 0", units::plain(time)));
            }
            // If the number of samples is not given, the time is divided into short samples. Short samples
            // between samples of memcpy are more accurate than long ones.
            if campaign.is_continuous() {
                campaign.samples = 1;
            } else if self.samples.is_none() && campaign.rate.or(self.rate).is_none() {
                campaign.samples = (time / campaign.seconds).clamp(3.0, 500.0) as u32;
            }
            campaign.seconds = share(time, campaign.samples)?;
        }
        if campaign.is_continuous() && self.time.is_none() {
            let seconds = match campaign.steady {
                Some(_) => DEFAULT_STEADY_SECONDS,
                None => DEFAULT_CONTINUOUS_SECONDS,
            };
            (campaign.seconds, campaign.samples) = (campaign.duration.unwrap_or(seconds), 1);
        }
        // A time on the command line replaces the count of the campaign file.
        campaign.count = self.count.or(campaign.count.filter(|_| self.time.is_none()));
        campaign.rate = self.rate.or(campaign.rate);
        if campaign.rate.is_some()
            && self.time.is_none()
            && self.campaign.is_none()
            && !campaign.is_continuous()
        {
            campaign.seconds = campaign.seconds.max(RATE_SAMPLE_SECONDS);
        }
        campaign.footprint = self.footprint.or(campaign.footprint);
        campaign.published |= self.published;
        if self.verify || campaign.duration.is_some() {
            campaign.verify = Verify::All;
        }
        campaign.check()?;
        Ok(campaign)
    }
}

/// Default interval of a time series, in seconds.
const DEFAULT_INTERVAL: f64 = 0.1;
/// Default time limit of a cell that ends when it is steady, in seconds.
const DEFAULT_STEADY_SECONDS: f64 = 60.0;
/// Default duration of a cell that runs without a break, in seconds.
const DEFAULT_CONTINUOUS_SECONDS: f64 = 10.0;

/// Returns the duration of one sample in seconds, so that all samples together take `time` seconds.
fn share(time: f64, samples: u32) -> Result<f64, String> {
    let (given, times) = (units::plain(time), f64::from(samples.max(1)));
    let each = time / times;
    // Rounding may make the quotient slightly less than the exact limit.
    if each < MIN_SAMPLE_SECONDS * (1.0 - 1e-9) {
        return Err(format!(
            "--time {given} is too short for {samples} samples of at least {MIN_SAMPLE_SECONDS} seconds each; give --time {} or \
             more, or fewer --samples",
            units::plain(times / MIN_SAMPLE_SECONDS.recip().round())
        ));
    }
    if each > MAX_SAMPLE_SECONDS {
        return Err(format!(
            "--time {given} is too long for {samples} samples of at most {MAX_SAMPLE_SECONDS} seconds each; give --time {} or less",
            units::plain(times * MAX_SAMPLE_SECONDS)
        ));
    }
    Ok(each.max(MIN_SAMPLE_SECONDS))
}

fn set<T: Clone>(value: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        value.clone_from(given);
    }
}
