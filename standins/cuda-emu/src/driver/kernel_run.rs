//! The execution of a kernel in a stream.

use cuda_ptx::{GlobalMemory, Launch, Mapped, Progress, TrapKind};
use dma_sim::model::{ChannelId, Time};

use super::pieces::{Moves, Pieces, advance_moves};
use crate::codes::{Code, Outcome};
use crate::gpu::Gpu;
use crate::memory::DriverMemory;

/// A kernel in a stream.
///
/// After its instructions, it takes the time in which the device's copy engine would move its bytes. Then a
/// copy of one byte follows, so that the fault plan and the delay of the device also apply to kernels.
#[derive(Debug)]
pub(crate) struct KernelRun {
    launch: Launch,
    began: Option<Time>,
    /// The time at which the bytes have moved.
    ends: Option<Time>,
    last: Moves,
}

/// The memory that kernels of a context reach.
#[derive(Debug)]
pub(super) struct KernelMemory<'a> {
    pub(super) memory: &'a DriverMemory,
    pub(super) device: usize,
    pub(super) peers: &'a [usize],
}

impl GlobalMemory for KernelMemory<'_> {
    fn find(&self, addr: u64) -> Option<Mapped> {
        let (mapped, device) = self.memory.mapped(addr)?;
        let reached = device.is_none_or(|device| device == self.device || self.peers.contains(&device));
        reached.then_some(mapped)
    }
}

impl KernelRun {
    pub(super) fn new(launch: Launch) -> Self {
        let pieces = Pieces::One(Gpu::marker());
        Self { launch, began: None, ends: None, last: Moves { pieces, submitted: 0, ended: 0 } }
    }

    /// Returns the time at which the bytes have moved, if all instructions are executed.
    pub(super) const fn ends(&self) -> Option<Time> {
        self.ends
    }

    /// Returns true if the kernel has begun and instructions are left.
    pub(super) const fn is_running(&self) -> bool {
        self.began.is_some() && self.ends.is_none()
    }

    /// Executes a slice of the kernel. Returns true if the kernel has ended. Adds the time by which the
    /// interpreter is slower than the device of the profile to `lag`.
    pub(super) fn advance(
        &mut self,
        gpu: &mut Gpu,
        channel: ChannelId,
        memory: &KernelMemory<'_>,
        clock: impl Fn() -> Time,
        lag: &mut Time,
    ) -> Outcome<bool> {
        let now = clock();
        let began = *self.began.get_or_insert(now);
        let ends = match self.ends {
            Some(ends) => ends,
            None => match self.launch.run(memory) {
                Ok(Progress::Running) => return Ok(false),
                Ok(Progress::Ended) => {
                    let ends = *self.ends.insert(began + gpu.kernel_time(self.launch.traffic));
                    if !gpu.is_timeless() {
                        *lag += clock().saturating_sub(ends);
                    }
                    ends
                }
                Err(trap) => {
                    eprintln!("cuda-emu: {}", trap.message);
                    return Err(match trap.kind {
                        TrapKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
                        TrapKind::Misaligned => Code::MISALIGNED_ADDRESS,
                        TrapKind::StackOverflow => Code::HARDWARE_STACK_ERROR,
                        TrapKind::Assertion => Code::ASSERT,
                        TrapKind::Failed => Code::LAUNCH_FAILED,
                    });
                }
            },
        };
        if now < ends {
            return Ok(false);
        }
        advance_moves(gpu, channel, &mut self.last)
    }
}
