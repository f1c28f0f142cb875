//! The simulated device that executes the streams of one GPU.
#![expect(unsafe_code, reason = "grants the model access to all memory of the process")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use cuda_ptx::Traffic;
use dma_sim::model::{
    ChannelId, ChannelState, Curve, Descriptor, Device, DeviceAddr, DeviceConfig, Fault, FaultInjector,
    FaultPlan, FaultRule, Found, HaltCause, OnFailure, PeerAccess, PeerError, Refused, RegionKey, RegionSpec,
    Rights, Segment, Status, Time, ZeroLength,
};

use crate::codes::Code;
use crate::config::GpuConfig;

/// Host addresses of a program on x86-64 and AArch64 with 48 bits, without the first page.
const HOST: std::ops::Range<u64> = 0x1000..1 << 47;
/// Maximum number of tasks of a stream that the model accepts at a time.
const DEPTH: u32 = 4096;

/// Host memory. For the model it is memory of a peer, so that each direction has its own times.
#[derive(Debug)]
struct AlwaysAccessible;

impl PeerAccess for AlwaysAccessible {
    fn acquire(&self) -> Result<(), PeerError> {
        Ok(())
    }

    fn release(&self) {}
}

/// One GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: Device,
    vram: RegionKey,
    /// First address and length of the bytes of `vram`.
    mapping: (u64, u64),
    host: RegionKey,
    /// Rules of the fault plan that make a call refuse its copy.
    refusals: FaultInjector,
    /// Times of bytes from host memory, to it, and within the device.
    costs: [Curve; 3],
    is_timeless: bool,
}

/// The outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed(Code),
}

/// A copy or fill. The addresses are those of the bytes in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    Copy { dst: u64, src: u64, len: u64 },
    Fill { dst: u64, pattern: u64, len: u64 },
}

impl Gpu {
    pub(crate) fn new(config: &GpuConfig, mapping: (u64, u64)) -> Result<Self, String> {
        let mut faults = config.faults.clone();
        let refusals = faults.rules.extract_if(.., |rule| rule.fault == Fault::Refuse).collect();
        let refusals = FaultInjector::new(FaultPlan { rules: refusals }, config.seed);
        if let Some(delay) = config.delay {
            faults.rules.push(FaultRule::new(Fault::Slow(delay)));
        }
        let timeless = config.profile.name == "ideal" && faults.rules.is_empty();
        let mut profile = if timeless { config.profile.clone().timeless() } else { config.profile.clone() };
        // A channel has the limits of a CUDA stream, whatever the profile says.
        profile.channels = u32::MAX;
        profile.depth = DEPTH;
        profile.max_task = u64::MAX;
        profile.fill = true;
        profile.protection = Found::AtSubmit;
        profile.oversize = Found::AtSubmit;
        profile.zero_length = ZeroLength::Completes;
        profile.on_failure = OnFailure::Continue;
        let costs = [&profile.pull, &profile.push, &profile.local].map(|costs| costs.latency.clone());
        let mut model = DeviceConfig::new(profile).with_seed(config.seed).with_faults(faults);
        model.tearing = !timeless;
        let mut device = Device::new(model).map_err(|error| error.to_string())?;
        let local = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        let at = |addr: u64| NonNull::new(std::ptr::with_exposed_provenance_mut(addr as usize));
        let (vram, host) = (at(mapping.0), at(HOST.start));
        let (Some(vram), Some(host)) = (vram, host) else { return Err("a mapping at address 0".to_owned()) };
        let vram = RegionSpec::local(vram, mapping.1, local);
        let host = RegionSpec::remote(
            HOST.start,
            host,
            HOST.end - HOST.start,
            remote | local,
            Arc::new(AlwaysAccessible),
        );
        // SAFETY: the mapping lives as long as the process, and tasks name allocations in it only.
        let vram = unsafe { device.register(vram) }.map_err(|error| error.to_string())?;
        // SAFETY: tasks name memory that the program passed to calls that copy. The program keeps this memory
        // mapped and does not access it until the copy has ended, as CUDA requires.
        let host = unsafe { device.register(host) }.map_err(|error| error.to_string())?;
        Ok(Self { device, vram, mapping, host, refusals, costs, is_timeless: timeless })
    }

    pub(crate) fn open_channel(&mut self) -> Result<ChannelId, Code> {
        self.device.open_channel(DEPTH).map_err(|_| Code::OUT_OF_MEMORY)
    }

    pub(crate) fn close_channel(&mut self, channel: ChannelId) {
        // Closing a channel that hangs fails, and the channel stays open.
        let _ = self.device.close_channel(channel);
    }

    /// Returns true if the driver refuses the `number`th copy of a stream, counted from 1.
    pub(crate) fn refuses(&self, number: u64) -> bool {
        !self.refusals.strike(0, number).is_empty()
    }

    pub(crate) fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    fn segment(&self, addr: u64, len: u64) -> Segment {
        let (start, size) = self.mapping;
        let key = if addr.wrapping_sub(start) < size { self.vram } else { self.host };
        Segment { key, addr: DeviceAddr(addr), len: len as usize }
    }

    /// Submits a piece to the model. Returns `Ok(false)` if the channel is full. A coalesced piece is
    /// reported with a later one.
    pub(crate) fn submit(&mut self, channel: ChannelId, piece: Piece, coalesced: bool) -> Result<bool, Code> {
        let taken = match piece {
            Piece::Copy { dst, src, len } => {
                let copy = Descriptor::copy(0, self.segment(src, len), self.segment(dst, len));
                if coalesced {
                    self.device.submit_coalesced(channel, &copy)
                } else {
                    self.device.submit(channel, &copy)
                }
            }
            Piece::Fill { dst, pattern, len } => {
                let dst = [self.segment(dst, len)];
                self.device.submit(channel, &Descriptor::fill(0, pattern.to_le_bytes(), &dst))
            }
        };
        match taken {
            Ok(()) => Ok(true),
            Err(Refused::Full { .. } | Refused::Rejected) => Ok(false),
            Err(_) => Err(Code::UNKNOWN),
        }
    }

    /// Returns the task that ends a kernel: a copy of one byte of memory that nothing else uses.
    pub(crate) fn marker() -> Piece {
        static UNUSED: [AtomicU8; 2] = [const { AtomicU8::new(0) }; 2];
        let [dst, src] = UNUSED.each_ref().map(|byte| byte.as_ptr().expose_provenance() as u64);
        Piece::Copy { dst, src, len: 1 }
    }

    /// Returns true if copies take no time.
    pub(crate) const fn is_timeless(&self) -> bool {
        self.is_timeless
    }

    /// Returns the time in which the device moves the bytes of a kernel. The link moves bytes in both
    /// directions at once, and the device's memory works meanwhile.
    pub(crate) fn kernel_time(&self, traffic: Traffic) -> Time {
        let bytes = [traffic.from_host, traffic.to_host, traffic.on_device];
        let times =
            self.costs.iter().zip(bytes).map(|(cost, bytes)| cost.at(bytes).saturating_sub(cost.at(0)));
        times.max().unwrap_or(Time::ZERO)
    }

    pub(crate) fn doorbell(&mut self, channel: ChannelId) {
        // This cannot fail, because the channel is open.
        let _ = self.device.doorbell(channel);
    }

    pub(crate) fn poll(&mut self, channel: ChannelId) -> Option<End> {
        let completion = self.device.poll(channel)?;
        Some(match completion.status {
            Status::Done => End::Done,
            Status::Aborted(HaltCause::DeviceGone) => End::Failed(Code::UNKNOWN),
            // A reset stops the channel, so a channel that still runs has failed one task only.
            Status::Failed(_) if self.device.state(channel) == Some(ChannelState::Running) => {
                End::Failed(Code::ILLEGAL_ADDRESS)
            }
            _ => End::Failed(Code::LAUNCH_FAILED),
        })
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.device.advance(now);
    }

    pub(crate) fn next_event(&mut self) -> Option<Time> {
        self.device.next_event()
    }
}
