//! The ways in which many copies are submitted, and the choice between them.

mod kernel;
mod learner;
mod table;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use dma_core::RegionKey;
use dma_process::ProcessLock;

use crate::device::Device;
use crate::driver::attribute;
use crate::options::{CudaOptions, Pieces};
pub(crate) use kernel::{Kernel, KernelError};
pub(crate) use learner::{Class, Decision, Learner, Trial};
pub(crate) use table::{Table, entries_of};

/// The kernel takes at most one in `KERNEL_SHARE` multiprocessors, unless an option says otherwise.
const KERNEL_SHARE: u32 = 8;

/// A way to submit many copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One call for up to 256 copies.
    Batch,
    /// A kernel that reads a table of copies.
    Kernel,
    /// One call for each copy.
    Loop,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Batch, Self::Kernel, Self::Loop];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Kernel => "kernel",
            Self::Loop => "loop",
        }
    }
}

/// The place of a region's memory, in the lowest bits of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    Host = 0,
    Device = 1,
    /// Memory that only copy engines reach for certain: that of another device, or of another context.
    Elsewhere = 2,
}

impl KeyPlace {
    /// Number of bits in a key.
    pub(crate) const BITS: u32 = 2;
}

/// The places of the operands of several copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(u16);

impl Places {
    #[inline]
    pub(crate) const fn add(&mut self, src: RegionKey, dst: RegionKey) {
        self.0 |= 1 << (src.0 & 3 | (dst.0 & 3) << 2);
    }

    /// Returns true if a kernel reaches all operands.
    pub(crate) const fn suit_kernel(self) -> bool {
        /// The bits of all pairs with an operand in [`KeyPlace::Elsewhere`].
        const ELSEWHERE: u16 = {
            let (mut pairs, mut other) = (0, 0);
            while other < 4 {
                pairs |= 1 << (KeyPlace::Elsewhere as u16 | other << 2);
                pairs |= 1 << (other | (KeyPlace::Elsewhere as u16) << 2);
                other += 1;
            }
            pairs
        };
        self.0 & ELSEWHERE == 0
    }

    /// Returns the index of the direction in [`DIRECTIONS`].
    pub(crate) fn direction(self) -> usize {
        if !self.0.is_power_of_two() {
            return DIRECTIONS.len() - 1;
        }
        let pair = self.0.trailing_zeros() as usize;
        let is_on_device = |place: usize| place != KeyPlace::Host as usize;
        2 * usize::from(is_on_device(pair & 3)) + usize::from(is_on_device(pair >> 2))
    }
}

/// The directions of copies. The last one stands for copies in several directions.
pub(crate) const DIRECTIONS: [&str; 5] =
    ["host to host", "host to device", "device to host", "device to device", "several directions"];

/// Copies that are submitted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) number: usize,
    pub(crate) bytes: usize,
    pub(crate) places: Places,
}

/// The ways that a device has, and what the copies have shown about them. An engine and its queues share
/// them.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) device: Arc<Device>,
    wanted: Pieces,
    /// Maximum number of blocks of the kernel.
    blocks: u32,
    kernel: OnceLock<Result<Kernel, KernelError>>,
    learner: ProcessLock<Learner>,
}

impl Ways {
    pub(crate) fn new(device: &Arc<Device>, options: &CudaOptions) -> Self {
        let multiprocessors = device.attribute(attribute::MULTIPROCESSOR_COUNT).unsigned_abs();
        let usual = (multiprocessors / KERNEL_SHARE).max(1);
        Self {
            device: Arc::clone(device),
            wanted: options.pieces,
            blocks: options.multiprocessors.unwrap_or(usual).min(multiprocessors.max(1)),
            kernel: OnceLock::new(),
            learner: ProcessLock::new(Learner::new()),
        }
    }

    pub(crate) const fn wanted(&self) -> Pieces {
        self.wanted
    }

    pub(crate) const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the kernel. Compiles it at the first call, which takes some 30 ms unless the driver has it in
    /// its cache.
    pub(crate) fn kernel(&self) -> Result<&Kernel, &KernelError> {
        self.kernel.get_or_init(|| Kernel::load(&self.device)).as_ref()
    }

    /// Returns the kernel if it is compiled.
    pub(crate) fn compiled(&self) -> Option<&Kernel> {
        self.kernel.get()?.as_ref().ok()
    }

    /// Chooses the way of a load.
    pub(crate) fn choose(&self, load: Load) -> Decision {
        let driver = &self.device.driver;
        let has_batch = driver.cuMemcpyBatchAsync_v2.is_some() || driver.cuMemcpyBatchAsync.is_some();
        let has_kernel = load.places.suit_kernel() && self.compiled().is_some();
        let plain = if has_batch { Way::Batch } else { Way::Loop };
        match self.wanted {
            Pieces::Kernel if has_kernel => Decision::of(Way::Kernel),
            // A call for a batch has no advantage for one copy.
            _ if load.number == 1 => Decision::of(Way::Loop),
            Pieces::Loop => Decision::of(Way::Loop),
            Pieces::Batch | Pieces::Kernel => Decision::of(plain),
            Pieces::Auto if driver.cuEventElapsedTime.is_none() => Decision::of(plain),
            Pieces::Auto => {
                let ways = [has_batch, has_kernel, true];
                let learner = self.learner.lock();
                learner.map_or(Decision::of(plain), |mut learner| {
                    learner.choose(Class::of(load), load.number, ways)
                })
            }
        }
    }

    pub(crate) fn learn(&self, trial: Trial, nanoseconds: u64) {
        // The learner's times are consistent after each of its statements.
        if let Some(mut learner) = self.learner.lock() {
            learner.learn(trial, nanoseconds);
        }
    }

    /// Describes the ways and the choices so far. Returns `None` in a forked child.
    pub(crate) fn explain(&self) -> Option<String> {
        let (learner, device) = (self.learner.lock()?, &self.device);
        let mut text = format!("copies of {}, pieces={}\n", device.name, self.wanted.name());
        let kernel = match (self.wanted, self.kernel.get()) {
            (Pieces::Batch | Pieces::Loop, _) => "kernel: not used, because of the option".to_owned(),
            (_, None) => "kernel: not compiled yet, because no queue was opened".to_owned(),
            (_, Some(Ok(_))) => format!("kernel: compiled, at most {} multiprocessors", self.blocks),
            (_, Some(Err(error))) => format!("kernel: off, because {error}"),
        };
        let _ = writeln!(text, "  {kernel}");
        match self.wanted {
            Pieces::Auto if device.driver.cuEventElapsedTime.is_none() => {
                text.push_str("  nothing is learned, because the driver has no cuEventElapsedTime\n");
            }
            Pieces::Auto => learner.explain(&mut text),
            _ => {}
        }
        Some(text)
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        if let Some(kernel) = self.compiled() {
            kernel.unload(&self.device);
        }
    }
}
