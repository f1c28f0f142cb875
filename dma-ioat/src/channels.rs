//! [`Channels`]: the channels that this process has attached, and their use.
#![expect(unsafe_code, reason = "detaches channels that nothing uses")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{Error, ErrorKind, Result};
use spdk_sys::Library;
use spdk_sys::bindings::SPDK_IOAT_ENGINE_FILL_SUPPORTED;

use crate::error::error;
use crate::ffi::{self, RawChannel, RawFunction};
use crate::{PciAddress, device};

const LOST: &str = "opening a queue tries again once the device has recovered; else use another channel, or reset the device and start the process again";

/// An attached channel.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) address: PciAddress,
    pub(crate) raw: RawChannel,
    pub(crate) function: RawFunction,
    pub(crate) numa: i32,
    /// True if the channel supports fills.
    pub(crate) fill: bool,
    /// Number of descriptors of the channel's ring. One of them always stays free.
    pub(crate) ring: u32,
}

#[derive(Clone, Debug)]
enum Use {
    Free,
    Taken,
    /// The channel's queue was dropped with descriptors in flight, and a reset failed, so the device may
    /// still write to their memory.
    Lost(Unfinished),
}

/// Descriptors in flight on a channel that hangs.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    /// Number of ended descriptors of the queue, counted by the callbacks.
    pub(crate) done: Arc<AtomicU64>,
    /// Number of submitted descriptors of the queue.
    pub(crate) submitted: u64,
}

impl Unfinished {
    /// Returns true if all descriptors have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.done.load(Ordering::Relaxed) == self.submitted
    }
}

/// The channels that this process has attached.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: BTreeMap<PciAddress, (Channel, Use)>,
    /// Functions that other processes used at the last probe. Each text names the process.
    held: BTreeMap<PciAddress, String>,
    /// Functions that SPDK could not start.
    pub(crate) broken: BTreeSet<PciAddress>,
    /// Channels that are being attached again. Only the thread that attaches a channel may take it.
    pub(crate) restarting: BTreeSet<PciAddress>,
    /// Channels that are being attached again and have no queue. They become free when they are attached.
    returning: BTreeSet<PciAddress>,
}

impl Channels {
    /// Returns all channels, in the order of their addresses.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.channels.values().map(|(channel, _)| channel)
    }

    /// Returns the functions that other processes have, each with the name of the process.
    pub(crate) fn held(&self) -> impl Iterator<Item = (PciAddress, &str)> {
        self.held.iter().map(|(address, holder)| (*address, holder.as_str()))
    }

    /// Attaches every function that SPDK offers and no other process has. All are attached together,
    /// because SPDK offers each function only once.
    pub(crate) fn probe(&mut self, spdk: &Library) -> Result<()> {
        self.held.clear();
        loop {
            let mut probe = Attach { spdk, pool: self, pending: None, refused: Vec::new() };
            let code = ffi::probe(spdk, &mut probe);
            let Attach { pending, refused, .. } = probe;
            for function in refused {
                // SAFETY: SPDK offered the function, which was not attached and is not used.
                unsafe { ffi::release(spdk, function) };
            }
            if code == 0 {
                return Ok(());
            }
            // SPDK stops at a function that it cannot start. Skip this function, and continue.
            match pending {
                Some(address) if self.broken.insert(address) => {
                    dma_core::deferred_log!(warn, %address, "SPDK cannot start this I/OAT channel: see its messages");
                }
                _ if self.channels.is_empty() => {
                    let functions = device::functions();
                    let why = if functions.is_empty() {
                        error(ErrorKind::InUse, "SPDK cannot attach the I/OAT functions of this machine").with_hint(
                            "see SPDK's messages, in the log or on stderr: another process may have them, or they need root, or permission for /dev/vfio",
                        )
                    } else {
                        device::no_device_error(&functions)
                    };
                    return Err(why.with_native(crate::error::native(code)));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Probes like [`probe`](Self::probe), and also tries the functions again that could not be started
    /// before.
    pub(crate) fn probe_again(&mut self, spdk: &Library) -> Result<()> {
        let before = std::mem::take(&mut self.broken);
        let probed = self.probe(spdk);
        // SPDK may not have offered all of these functions again.
        self.broken.extend(before.into_iter().filter(|address| !self.channels.contains_key(address)));
        probed
    }

    /// Takes a free channel: the channel at `address`, or without an address any channel.
    pub(crate) fn take(&mut self, spdk: &Library, address: Option<PciAddress>) -> Result<Channel> {
        if let Some(channel) = self.take_free(address) {
            return Ok(channel);
        }
        // Another process may have released a function since the last probe.
        self.probe_again(spdk)?;
        self.take_free(address).ok_or_else(|| self.no_free_channel_error(address))
    }

    fn take_free(&mut self, address: Option<PciAddress>) -> Option<Channel> {
        let (_, (channel, used)) = self.channels.iter_mut().find(|(at, (_, used))| {
            matches!(used, Use::Free)
                && address.is_none_or(|address| address == **at)
                && !self.restarting.contains(at)
        })?;
        *used = Use::Taken;
        Some(channel.clone())
    }

    /// Takes the channel that was restarting at `address`, if it is attached again.
    pub(crate) fn take_back(&mut self, address: PciAddress) -> Option<Channel> {
        let (channel, used) = self.channels.get_mut(&address)?;
        *used = Use::Taken;
        self.restarting.remove(&address);
        Some(channel.clone())
    }

    /// Returns the error for a request while no channel is free.
    fn no_free_channel_error(&self, address: Option<PciAddress>) -> Error {
        let held = |address: &PciAddress| {
            self.held.get(address).map(|holder| format!("{address} is taken by {holder}"))
        };
        match address {
            Some(address) => match (self.channels.get(&address), held(&address)) {
                (Some((_, Use::Lost(_))), _) => {
                    error(ErrorKind::DeviceLost, format!("channel {address} does not answer, and a reset does not stop it"))
                        .with_hint(LOST)
                }
                (Some(_), _) => {
                    error(ErrorKind::OutOfResources, format!("channel {address} is taken by another queue of this process"))
                        .with_hint("close that queue, let threads share it (`open_shared_queue`), or open an engine without an address")
                }
                (None, Some(held)) => error(ErrorKind::OutOfResources, held).with_hint("end that process, or use another channel"),
                (None, None) => error(ErrorKind::DeviceLost, format!("channel {address} is gone: SPDK does not attach it again"))
                    .with_hint("see SPDK's messages, in the log or on stderr; opening a queue tries again"),
            },
            None => {
                let lost = self.channels.values().filter(|(_, used)| matches!(used, Use::Lost(_))).count();
                let mut message =
                    format!("all {} channels are taken by queues of this process", self.channels.len());
                if lost > 0 {
                    message += &format!(" ({lost} of them do not answer)");
                }
                if lost == self.channels.len() && lost > 0 {
                    return error(ErrorKind::DeviceLost, message).with_hint(LOST);
                }
                let others = device::functions();
                let others = others.iter().filter(|other| {
                    !self.channels.contains_key(&other.address) && !self.held.contains_key(&other.address)
                });
                let others = others.map(|other| device::obstacle(other).message().to_owned());
                for other in self.held.keys().filter_map(held).chain(others) {
                    message += "; ";
                    message += &other;
                }
                let channels = self.channels.len() as u64;
                error(ErrorKind::OutOfResources, message).with_numbers(channels + 1, channels).with_hint(
                    "close one of the queues, or let threads share one (`open_shared_queue`)",
                )
            }
        }
    }

    /// Returns the error for `address`, where this process has no channel.
    pub(crate) fn absence_error(&self, address: PciAddress) -> Error {
        if let Some(holder) = self.held.get(&address) {
            return error(ErrorKind::InUse, format!("channel {address} is taken by {holder}"))
                .with_hint("end that process, or use another channel");
        }
        if self.broken.contains(&address) {
            return error(ErrorKind::DeviceFault, format!("SPDK cannot start the channel {address}"))
                .with_hint(
                    "see SPDK's messages, in the log or on stderr; without huge pages, it needs an IOMMU",
                );
        }
        let functions = device::functions();
        if let Some(function) = functions.iter().find(|function| function.address == address) {
            return device::obstacle(function);
        }
        let known: Vec<_> = self.channels.keys().map(ToString::to_string).collect();
        if known.is_empty() {
            return device::no_device_error(&functions);
        }
        error(ErrorKind::NotFound, format!("no I/OAT device found at {address}"))
            .with_hint(format!("there are {}", known.join(", ")))
    }

    /// Returns the error for a process without any channel.
    pub(crate) fn no_channel_error(&self) -> Error {
        if let Some(address) = self.broken.first().filter(|_| self.held.is_empty()) {
            return self.absence_error(*address);
        }
        match self.held.first_key_value() {
            Some((address, _)) => self.absence_error(*address),
            None => device::no_device_error(&device::functions()),
        }
    }

    /// Returns a channel with nothing in flight to the pool.
    pub(crate) fn give_back(&mut self, channel: &Channel) {
        self.mark(channel, Use::Free);
    }

    /// Marks a channel that is being attached again and has no queue. It becomes free when it is attached.
    pub(crate) fn mark_restarting(&mut self, channel: &Channel) {
        self.returning.insert(channel.address);
    }

    /// Ends the mark of [`mark_restarting`](Self::mark_restarting), and frees the channel. `back` is the
    /// attached channel, or `None` if attaching failed.
    pub(crate) fn end_restart(&mut self, channel: &Channel, back: Option<&Channel>) {
        self.returning.remove(&channel.address);
        if let Some(back) = back {
            self.give_back(back);
        }
    }

    /// Returns true if a channel, or the channel at `address`, will become free when it is attached again.
    pub(crate) fn will_become_free(&self, address: Option<PciAddress>) -> bool {
        address.map_or(!self.returning.is_empty(), |address| self.returning.contains(&address))
    }

    /// Returns true if a channel, or the channel at `address`, is being attached again.
    pub(crate) fn is_restarting(&self, address: Option<PciAddress>) -> bool {
        address.map_or(!self.restarting.is_empty(), |address| self.restarting.contains(&address))
    }

    /// Marks a channel as lost. The device may write to the memory of its descriptors at any time.
    pub(crate) fn lose(&mut self, channel: &Channel, left: Unfinished) {
        let (address, descriptors) = (channel.address, left.submitted - left.done.load(Ordering::Relaxed));
        dma_core::deferred_log!(error, %address, descriptors,
            "an I/OAT channel does not answer, and a reset does not stop it; it is abandoned"
        );
        self.mark(channel, Use::Lost(left));
    }

    /// Takes a lost channel: the channel at `address`, or without an address any lost channel.
    pub(crate) fn take_lost(&mut self, address: Option<PciAddress>) -> Option<(Channel, Unfinished)> {
        let mut channels = self.channels.values_mut();
        channels.find_map(|(channel, used)| {
            let Use::Lost(left) = used else { return None };
            if address.is_some_and(|address| address != channel.address) {
                return None;
            }
            let left = left.clone();
            *used = Use::Taken;
            Some((channel.clone(), left))
        })
    }

    fn mark(&mut self, channel: &Channel, as_: Use) {
        if let Some((_, used)) = self.channels.get_mut(&channel.address) {
            *used = as_;
        }
    }

    /// Detaches a channel, and releases its function.
    ///
    /// # Safety
    ///
    /// The channel has no descriptors in flight or has halted, and is not used any more.
    pub(crate) unsafe fn detach(&mut self, spdk: &Library, channel: &Channel) {
        self.channels.remove(&channel.address);
        // SAFETY: the channel was attached. The caller guarantees that it has no descriptors in flight or has
        // halted, and that it is not used.
        unsafe { ffi::detach(spdk, channel.raw) };
        // SAFETY: the function's channel was detached above. SPDK offers only released functions again.
        unsafe { ffi::release(spdk, channel.function) };
    }

    /// Detaches all channels without a queue. Returns their number.
    pub(crate) fn release_free(&mut self, spdk: &Library) -> usize {
        let free: Vec<_> = self
            .channels
            .values()
            .filter(|(_, used)| matches!(used, Use::Free))
            .map(|(channel, _)| channel.clone())
            .collect();
        for channel in &free {
            // SAFETY: a free channel has no queue. So it has no descriptors in flight, and no other code uses
            // it.
            unsafe { self.detach(spdk, channel) };
        }
        free.len()
    }
}

/// The callbacks of a probe: attaches the functions that no other process has.
struct Attach<'a> {
    spdk: &'a Library,
    pool: &'a mut Channels,
    /// The function that is being attached.
    pending: Option<PciAddress>,
    /// Functions of other processes, and functions that cannot be started.
    refused: Vec<RawFunction>,
}

impl ffi::Probe for Attach<'_> {
    fn wants(&mut self, function: RawFunction, address: PciAddress) -> bool {
        self.pending = None;
        if self.pool.broken.contains(&address) {
            // SPDK offers the function again after its release.
            self.refused.push(function);
            return false;
        }
        if ffi::claim(self.spdk, function) < 0 {
            self.pool.held.insert(address, device::holder(address));
            self.refused.push(function);
            return false;
        }
        self.pending = Some(address);
        true
    }

    fn attached(&mut self, function: RawFunction, address: PciAddress, raw: RawChannel) {
        self.pending = None;
        let channel = Channel {
            address,
            raw,
            function,
            numa: ffi::numa_of(self.spdk, function),
            fill: ffi::capabilities_of(self.spdk, raw) & SPDK_IOAT_ENGINE_FILL_SUPPORTED != 0,
            ring: ffi::ring_of(self.spdk, raw),
        };
        self.pool.channels.insert(address, (channel, Use::Free));
    }
}
