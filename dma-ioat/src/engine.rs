//! [`IoatEngine`]: an I/OAT channel, or all of them, as an engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use dma_core::{
    Capabilities, Discovered, DmaEngine, EngineId, EngineInfo, EngineName, Error, ErrorKind,
    ExportDescriptor, HostMemory, IdleMemory, Limits, MemoryRequest, QueueOptions, RawQueue, RawRegion,
    Result, with_deferred_log,
};

use crate::channels::Channel;
use crate::env::Environment;
use crate::error::{NAME, error};
use crate::queue::IoatQueue;
use crate::recovery::{self, REATTACH_PAUSE};
use crate::region::{IoatRegion, REGISTER_ALIGNMENT};
use crate::{IoatOptions, PciAddress};

/// Maximum length of a descriptor, in bytes. It is less on a small ring. SPDK splits descriptors into pieces
/// where the memory or the engine requires that.
const MAX_TRANSFER: u64 = 1 << 20;
/// The smallest pages that SPDK splits at.
const PAGE: usize = 4096;
/// The default depth of a queue.
const DEFAULT_DEPTH: usize = 256;

/// Intel I/OAT through the installed SPDK. The README describes the set-up.
///
/// Without an [address](IoatOptions::address), each queue takes a free channel of this process. With an
/// address, the engine has only the channel at that address.
///
/// ```
/// use dma_ioat::{IoatEngine, IoatOptions};
///
/// // Without SPDK or device, the error names the remedy.
/// match IoatEngine::open(&IoatOptions::new()) {
///     Ok(engine) => println!("{engine:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug)]
pub struct IoatEngine {
    environment: Arc<Environment>,
    id: EngineId,
    info: EngineInfo,
    address: Option<PciAddress>,
    /// The NUMA node of the engine's channels. -1 if they are on several nodes.
    numa: i32,
    idle_memory: IdleMemory,
}

impl IoatEngine {
    /// Opens one channel, or all channels. Loads SPDK, sets up its environment and attaches the process's
    /// channels, unless an earlier call has done that.
    ///
    /// May block for seconds, while DPDK maps its memory. Channels stay attached, and are unavailable to
    /// other processes, until [`release_idle`](Self::release_idle) or the end of the process.
    /// [`IoatOptions::allow`] limits them.
    ///
    /// # Errors
    ///
    /// `MissingSdk`: no usable SPDK. `VersionMismatch`: an SPDK that is too old, or that does not accept its
    /// DPDK. `NotFound`: no I/OAT device found. `InUse`: another process or the kernel uses the device, or
    /// the environment was set up with other options. `PermissionDenied`, `OutOfMemory`: the system lacks
    /// rights or huge pages. `InvalidArgument`: invalid options. `Unsupported`: the parent of this forked
    /// process has set up the environment. Each error names the remedy.
    pub fn open(options: &IoatOptions) -> Result<Self> {
        // A log subscriber may use engines, so it runs after the environment's locks are released.
        with_deferred_log(|| Self::open_unnamed(options)).map_err(|e| e.with_operation("open engine"))
    }

    fn open_unnamed(options: &IoatOptions) -> Result<Self> {
        let environment = Environment::of(options)?;
        let (info, numa) = loop {
            let mut pool = environment.up(options)?;
            if pool.channels().all(|channel| options.address.is_some_and(|wanted| wanted != channel.address))
            {
                if pool.is_restarting(options.address) {
                    // The channel is being attached again. This wait ends within the time limit of a restart.
                    drop(pool);
                    std::thread::sleep(REATTACH_PAUSE);
                    continue;
                }
                pool.probe_again(&environment.spdk)?;
            }
            let selected: Vec<&Channel> = pool
                .channels()
                .filter(|channel| options.address.is_none_or(|wanted| wanted == channel.address))
                .collect();
            if selected.is_empty() {
                return Err(options
                    .address
                    .map_or_else(|| pool.no_channel_error(), |address| pool.absence_error(address)));
            }
            let info = describe(&environment, &selected);
            let numa = info.numa_node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1);
            break (info, numa);
        };
        let idle_memory = environment.memory().map_or_else(IdleMemory::new, |bytes| {
            // Without huge pages, the environment's memory does not grow.
            IdleMemory::with_limit((bytes / 8).min(IdleMemory::DEFAULT_LIMIT))
        });
        Ok(Self { environment, id: EngineId::unique(), info, address: options.address, numa, idle_memory })
    }

    /// Detaches the channels without a queue, so that other processes can attach them. Returns their number.
    /// Opening a queue attaches them again, which takes milliseconds.
    pub fn release_idle(&self) -> usize {
        with_deferred_log(|| self.environment.pool().release_free(&self.environment.spdk))
    }
}

/// Describes an engine on `channels`, which are not empty.
fn describe(environment: &Environment, channels: &[&Channel]) -> EngineInfo {
    let mut capabilities = Capabilities::ALLOCATE | Capabilities::REGISTER | Capabilities::IN_ORDER;
    capabilities.set(Capabilities::FILL, channels.iter().all(|channel| channel.fill));
    // One descriptor of a ring is kept free.
    let ring = channels.iter().map(|channel| channel.ring as usize).min().unwrap_or(0);
    let depth = ring.saturating_sub(1).max(1);
    // All pieces of a copy must fit into the ring. A piece ends at the end of the copy, or at a page boundary
    // of the source or the destination.
    let longest = ((depth - 1) / 2).max(1) * PAGE;
    let limits = Limits::default()
        .with_max_transfer(MAX_TRANSFER.min(longest as u64))
        .with_max_segments(1)
        .with_queue_depth(depth, depth.min(DEFAULT_DEPTH))
        .with_max_queues(Some(channels.len()))
        .with_alignment(REGISTER_ALIGNMENT, 64);
    let device = match channels {
        [one] => one.address.to_string(),
        [first, .., last] => format!("{} channels, {} to {}", channels.len(), first.address, last.address),
        [] => String::new(),
    };
    // The node is -1 on a machine that has only one node.
    let node = channels.first().and_then(|channel| u32::try_from(channel.numa).ok());
    let node = node.filter(|_| channels.iter().all(|channel| channel.numa == channels[0].numa));
    let info = EngineInfo::new(NAME, device, format!("SPDK {}", environment.spdk.release))
        .with_numa_node(node)
        .with_capabilities(capabilities)
        .with_limits(limits);
    match crate::ffi::model(&environment.spdk) {
        Some(model) => info.with_model(model),
        None => info,
    }
}

#[expect(unsafe_code, reason = "the safe API relies on the description of an engine")]
// SAFETY: `info` holds the limits that SPDK reports. If channels differ, it holds the minimum. Queues and
// regions of this engine use the same environment.
unsafe impl DmaEngine for IoatEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn idle_memory(&self) -> Option<&IdleMemory> {
        Some(&self.idle_memory)
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(error(ErrorKind::Unsupported, "I/OAT copies within one machine: it exports nothing"));
        }
        request.validate_for_host()?;
        Ok(Box::new(IoatRegion::allocate(&self.environment, self.id, self.numa, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller keeps `memory` mapped until the region is dropped.
        let region = unsafe { IoatRegion::register(&self.environment, self.id, memory, request.access) }?;
        Ok(Box::new(region))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(error(ErrorKind::Unsupported, "I/OAT copies within one machine: it imports nothing"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let options = options.clone().with_depth(options.depth_on(&self.info.limits)?);
        let mut tried = false;
        let channel = loop {
            let (taken, returns) = with_deferred_log(|| {
                let mut pool = self.environment.pool();
                let taken = pool.take(&self.environment.spdk, self.address);
                (taken, pool.will_become_free(self.address))
            });
            match taken {
                Ok(channel) => break channel,
                // The channel is being attached again. This wait ends within the time limit of a restart.
                Err(_) if returns => {}
                Err(none) => {
                    if tried || !recovery::revive(&self.environment, self.address) {
                        return Err(none);
                    }
                    tried = true;
                    continue;
                }
            }
            std::thread::sleep(REATTACH_PAUSE);
        };
        let most = channel.ring.saturating_sub(1) as usize;
        if options.depth > most {
            self.environment.pool().give_back(&channel);
            return Err(error(ErrorKind::OutOfRange, format!("a depth of {}", options.depth))
                .with_numbers(options.depth as u64, most as u64)
                .with_hint("the limit is the size of a channel's ring: open several queues"));
        }
        Ok(Box::new(IoatQueue::open(&self.environment, self.id, channel, &options)))
    }
}

/// Lists the channels of this machine. Unusable ones, a missing SPDK and a missing device are listed with
/// their error and its remedy.
///
/// Sets up SPDK's environment for the process, as [`IoatEngine::open`] does, unless the system has no I/OAT
/// function.
#[must_use]
pub fn discover(options: &IoatOptions) -> Vec<Discovered> {
    with_deferred_log(|| channels_of(options))
}

fn channels_of(options: &IoatOptions) -> Vec<Discovered> {
    let only = |error: Error| {
        let name = EngineName::of(IoatOptions::NAME_FORMAT);
        vec![Discovered::new(name, Err(error.with_operation("open engine")))]
    };
    let environment = match Environment::of(options) {
        Ok(environment) => environment,
        Err(error) => return only(error),
    };
    let mut pool = match environment.up(options) {
        Ok(pool) => pool,
        Err(error) => return only(error),
    };
    if let Err(error) = pool.probe_again(&environment.spdk) {
        return only(error);
    }
    let mut found: BTreeMap<PciAddress, Result<EngineInfo>> =
        pool.held().map(|(address, _)| (address, Err(pool.absence_error(address)))).collect();
    found.extend(pool.channels().map(|channel| (channel.address, Ok(describe(&environment, &[channel])))));
    for function in crate::device::functions() {
        found.entry(function.address).or_insert_with(|| Err(pool.absence_error(function.address)));
    }
    if found.is_empty() {
        return only(pool.no_channel_error());
    }
    let discovered = found.into_iter().map(|(address, info)| {
        let plain = EngineName::of(IoatOptions::NAME_FORMAT);
        // This succeeds, because an address contains no commas or equals signs.
        Discovered::new(plain.clone().with_device(address.to_string()).unwrap_or(plain), info)
    });
    discovered.collect()
}
