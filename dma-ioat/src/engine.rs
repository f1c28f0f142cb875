//! [`IoatEngine`]: a channel of I/OAT, or all of them, as an engine.

use std::sync::Arc;

use dma_core::{
    Capabilities, DmaEngine, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor, HostMemory, Limits,
    MemoryRequest, QueueOptions, RawQueue, RawRegion, Result,
};

use crate::env::Environment;
use crate::error::{BACKEND, error};
use crate::pool::{Channel, REATTACH_PAUSE};
use crate::queue::IoatQueue;
use crate::region::{IoatRegion, REGISTER_ALIGNMENT};
use crate::{IoatOptions, PciAddress};

/// The longest descriptor. SPDK cuts copies itself, as memory and engine demand; with this, one of them always finds room in a ring, even if every
/// page of 4 KiB is a piece.
const MAX_TRANSFER: u64 = 1 << 20;
/// The depth that a queue gets if nobody says.
const DEFAULT_DEPTH: usize = 256;

/// Intel I/OAT through the SPDK that is installed. See the [crate](crate) for how to set it up.
///
/// Without an [address](IoatOptions::address), each queue takes a free channel of this process; with one, that channel is the engine's only one.
///
/// ```
/// use dma_ioat::{IoatEngine, IoatOptions};
///
/// // Without SPDK or device, the error says what is missing and what to do.
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
    /// The node of its channels; -1 if they are of several.
    numa: i32,
}

impl IoatEngine {
    /// Opens a channel, or all: loads SPDK, sets up its environment and attaches the process's channels, if nobody did so before.
    ///
    /// May block for as long as DPDK takes to map its memory, which can be seconds. What is attached stays so until [`release_idle`](Self::release_idle) or the end
    /// of the process, and other processes cannot have it; [`IoatOptions::allow`] bounds what is.
    ///
    /// # Errors
    ///
    /// `MissingSdk` or `VersionMismatch`: no SPDK that can be used. `NotFound`: no I/OAT device found. `InUse`: the device is another process's or the
    /// kernel's, or the environment was set up with other options. `PermissionDenied`, `OutOfMemory`: the system lacks rights or huge pages.
    /// `InvalidArgument`: options that cannot be. Each says what to do.
    pub fn open(options: &IoatOptions) -> Result<Self> {
        Self::open_unnamed(options).map_err(|e| e.with_operation("open engine"))
    }

    fn open_unnamed(options: &IoatOptions) -> Result<Self> {
        let environment = Environment::of(options)?;
        let info = {
            let mut pool = environment.up(options)?;
            if pool.channels().all(|channel| options.address.is_some_and(|wanted| wanted != channel.address))
            {
                pool.probe(&environment.spdk)?;
            }
            let selected: Vec<&Channel> = pool
                .channels()
                .filter(|channel| options.address.is_none_or(|wanted| wanted == channel.address))
                .collect();
            if selected.is_empty() {
                return Err(options
                    .address
                    .map_or_else(|| pool.nothing(), |address| pool.not_there(address)));
            }
            let numa = selected[0].numa;
            let numa = if selected.iter().all(|channel| channel.numa == numa) { numa } else { -1 };
            (describe(&environment, &selected), numa)
        };
        let (info, numa) = info;
        Ok(Self { environment, id: EngineId::next(), info, address: options.address, numa })
    }

    /// Detaches the channels that no queue has, so that other processes can have them. Returns how many. A queue opened later attaches them again, which takes
    /// a moment.
    pub fn release_idle(&self) -> usize {
        self.environment.pool().release_free(&self.environment.spdk)
    }
}

/// What channels say of themselves; there is at least one.
fn describe(environment: &Environment, channels: &[&Channel]) -> EngineInfo {
    let mut capabilities =
        Capabilities::ALLOCATE | Capabilities::REGISTER | Capabilities::CPU_VISIBLE | Capabilities::IN_ORDER;
    capabilities.set(Capabilities::FILL, channels.iter().all(|channel| channel.fill));
    // One descriptor of a ring is kept free.
    let ring = channels.iter().map(|channel| channel.ring as usize).min().unwrap_or(0);
    let depth = ring.saturating_sub(1).max(1);
    let limits = Limits::default()
        .with_max_transfer(MAX_TRANSFER)
        .with_max_segments(1)
        .with_queue_depth(depth, depth.min(DEFAULT_DEPTH))
        .with_max_queues(Some(channels.len()))
        .with_alignment(REGISTER_ALIGNMENT, 64);
    let device = match channels {
        [one] => one.address.to_string(),
        [first, .., last] => format!("{} channels, {} to {}", channels.len(), first.address, last.address),
        [] => String::new(),
    };
    let info = EngineInfo::new(BACKEND, device, format!("SPDK {}", environment.spdk.release))
        .with_capabilities(capabilities)
        .with_limits(limits);
    match crate::ffi::model(&environment.spdk) {
        Some(model) => info.with_model(model),
        None => info,
    }
}

#[expect(unsafe_code, reason = "the safe API relies on what an engine says of itself")]
// SAFETY: `info` holds what the channels answered, the least where they differ.
unsafe impl DmaEngine for IoatEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(error(ErrorKind::Unsupported, "I/OAT copies within one machine: it exports nothing"));
        }
        request.check()?;
        Ok(Box::new(IoatRegion::allocate(&self.environment, self.id, self.numa, request)?))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: the caller's promise.
        let region = unsafe { IoatRegion::register(&self.environment, self.id, memory, request.access) }?;
        Ok(Box::new(region))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(error(ErrorKind::Unsupported, "I/OAT copies within one machine: it imports nothing"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let options = options.clone().with_depth(options.depth_on(&self.info.limits));
        let channel = loop {
            let mut pool = self.environment.pool();
            match pool.take(&self.environment.spdk, self.address) {
                Ok(channel) => break channel,
                // For a bounded time: it comes, or is given up.
                Err(_) if pool.is_awaited(self.address) => drop(pool),
                Err(none) => return Err(none),
            }
            std::thread::sleep(REATTACH_PAUSE);
        };
        let most = channel.ring.saturating_sub(1) as usize;
        if options.depth > most {
            self.environment.pool().give_back(&channel);
            return Err(error(ErrorKind::OutOfRange, format!("a depth of {}", options.depth))
                .with_numbers(options.depth as u64, most as u64)
                .with_hint("a channel's ring holds that many descriptors: open several queues"));
        }
        Ok(Box::new(IoatQueue::open(&self.environment, self.id, channel, &options)))
    }
}

/// A channel that could be opened, or the reason why not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Discovered {
    /// The engine's name: `ioat:` and the PCI address, or `ioat` if it is about none.
    pub name: String,
    /// What the engine says of itself, or why it cannot be used and what to do about it.
    pub info: Result<EngineInfo, Error>,
}

/// Lists the channels of this machine, and for each that cannot be used, why and what to do about it. A missing SPDK or device is an answer, too.
///
/// Does what [`IoatEngine::open`] does with these options, and so sets SPDK's environment up for the process.
#[must_use]
pub fn discover(options: &IoatOptions) -> Vec<Discovered> {
    let named = |address: PciAddress, info| Discovered { name: format!("{BACKEND}:{address}"), info };
    let only = |error: Error| {
        let info = Err(error.with_operation("open engine"));
        vec![Discovered { name: BACKEND.to_owned(), info }]
    };
    let environment = match Environment::of(options) {
        Ok(environment) => environment,
        Err(error) => return only(error),
    };
    let mut pool = match environment.up(options) {
        Ok(pool) => pool,
        Err(error) => return only(error),
    };
    if let Err(error) = pool.probe(&environment.spdk) {
        return only(error);
    }
    let mut found: Vec<_> = pool
        .channels()
        .map(|channel| named(channel.address, Ok(describe(&environment, &[channel]))))
        .collect();
    found.extend(pool.held().map(|(address, _)| named(address, Err(pool.not_there(address)))));
    for function in crate::device::functions() {
        let name = format!("{BACKEND}:{}", function.address);
        if !found.iter().any(|known| known.name == name) {
            found.push(Discovered { name, info: Err(pool.not_there(function.address)) });
        }
    }
    if found.is_empty() {
        return only(pool.nothing());
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}
