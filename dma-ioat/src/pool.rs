//! [`Pool`]: the channels that this process has from SPDK, and which of them are in use.
#![expect(unsafe_code, reason = "detaches channels that nobody uses")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, Result};
use spdk_sys::Library;
use spdk_sys::bindings::SPDK_IOAT_ENGINE_FILL_SUPPORTED;

use crate::env::Environment;
use crate::error::error;
use crate::ffi::{self, RawChannel, RawFunction};
use crate::{PciAddress, device};

/// How long a channel that halted may take to come back. DPDK offers a function that was given back again after two seconds.
const REATTACH_TIMEOUT: Duration = Duration::from_secs(6);
pub(crate) const REATTACH_PAUSE: Duration = Duration::from_millis(20);

/// A channel, attached.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) address: PciAddress,
    pub(crate) raw: RawChannel,
    function: RawFunction,
    pub(crate) numa: i32,
    /// Whether it fills.
    pub(crate) fill: bool,
    /// Descriptors of its ring, of which one is kept free.
    pub(crate) ring: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Taken,
    /// Its queue was given up with descriptors in flight: nobody may touch it any more.
    Lost,
}

/// The channels that this process has from SPDK.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    channels: BTreeMap<PciAddress, (Channel, Use)>,
    /// Functions that other processes have, and which process, as of the last probe.
    held: BTreeMap<PciAddress, String>,
    /// Functions that SPDK could not start.
    broken: BTreeSet<PciAddress>,
    /// Channels that halted and are being attached again: whoever does that takes them.
    restarting: BTreeSet<PciAddress>,
    /// Those of them that are free once they are attached again: their queues are gone.
    returning: BTreeSet<PciAddress>,
}

impl Pool {
    /// All channels, in the order of their addresses.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.channels.values().map(|(channel, _)| channel)
    }

    /// Functions that other processes have, and which process.
    pub(crate) fn held(&self) -> impl Iterator<Item = (PciAddress, &str)> {
        self.held.iter().map(|(address, holder)| (*address, holder.as_str()))
    }

    /// Attaches every function that SPDK offers and no other process has.
    ///
    /// All of them, since SPDK offers no function twice: one that is left now could not be had later.
    pub(crate) fn probe(&mut self, spdk: &Library) -> Result<()> {
        self.held.clear();
        loop {
            let mut probe = Attach { spdk, pool: self, pending: None, refused: Vec::new() };
            let code = ffi::probe(spdk, &mut probe);
            let Attach { pending, refused, .. } = probe;
            for function in refused {
                // SAFETY: SPDK offered it, it was not attached, and nobody else knows of it. Given back, it is offered again
                // once the other process is done with it.
                unsafe { ffi::release(spdk, function) };
            }
            if code == 0 {
                return Ok(());
            }
            // SPDK stops at a function that it cannot start. Leave that one out, and go on behind it.
            match pending {
                Some(address) if self.broken.insert(address) => {
                    tracing::warn!(%address, "SPDK cannot start this I/OAT channel: see its messages");
                }
                _ if self.channels.is_empty() => {
                    let functions = device::functions();
                    let why = if functions.is_empty() {
                        error(ErrorKind::InUse, "SPDK cannot have the I/OAT functions of this machine").with_hint(
                            "see SPDK's messages, in the log or on stderr: another process may have them, or they need root, or permission for /dev/vfio",
                        )
                    } else {
                        device::none(&functions)
                    };
                    return Err(why.with_native(crate::error::native(code)));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Takes a channel that is free: the one at `address`, or any.
    pub(crate) fn take(&mut self, spdk: &Library, address: Option<PciAddress>) -> Result<Channel> {
        if let Some(channel) = self.take_free(address) {
            return Ok(channel);
        }
        // Another process may have given one back meanwhile.
        self.probe(spdk)?;
        self.take_free(address).ok_or_else(|| self.none_free(address))
    }

    fn take_free(&mut self, address: Option<PciAddress>) -> Option<Channel> {
        let (_, (channel, used)) = self.channels.iter_mut().find(|(at, (_, used))| {
            *used == Use::Free
                && address.is_none_or(|address| address == **at)
                && !self.restarting.contains(at)
        })?;
        *used = Use::Taken;
        Some(channel.clone())
    }

    /// Takes back a channel that was restarting, if it is attached.
    fn take_back(&mut self, address: PciAddress) -> Option<Channel> {
        let (channel, used) = self.channels.get_mut(&address)?;
        *used = Use::Taken;
        self.restarting.remove(&address);
        Some(channel.clone())
    }

    /// Why there is no channel to take.
    fn none_free(&self, address: Option<PciAddress>) -> Error {
        let held = |address: &PciAddress| {
            self.held.get(address).map(|holder| format!("{address} is taken by {holder}"))
        };
        match address {
            Some(address) => match (self.channels.get(&address), held(&address)) {
                (Some((_, Use::Lost)), _) => {
                    error(ErrorKind::OutOfResources, format!("channel {address} does not answer, and was given up"))
                        .with_hint("use another channel, or start the process again")
                }
                (Some(_), _) => {
                    error(ErrorKind::OutOfResources, format!("channel {address} is taken by another queue of this process"))
                        .with_hint("close that queue, let threads share it (`open_shared_queue`), or open an engine without an address")
                }
                (None, Some(held)) => error(ErrorKind::OutOfResources, held).with_hint("end that process, or use another channel"),
                (None, None) => error(ErrorKind::DeviceLost, format!("channel {address} is gone")),
            },
            None => {
                let lost = self.channels.values().filter(|(_, used)| *used == Use::Lost).count();
                let mut message =
                    format!("all {} channels are taken by queues of this process", self.channels.len());
                if lost > 0 {
                    message += &format!(" ({lost} of them do not answer)");
                }
                let others = device::functions();
                let others = others.iter().filter(|other| {
                    !self.channels.contains_key(&other.address) && !self.held.contains_key(&other.address)
                });
                let others = others.map(|other| other.obstacle().message().to_owned());
                for other in self.held.keys().filter_map(held).chain(others) {
                    message += "; ";
                    message += &other;
                }
                let channels = self.channels.len() as u64;
                error(ErrorKind::OutOfResources, message).with_numbers(channels + 1, channels).with_hint(
                    "close one of the queues (one whose channel did not answer keeps it), or let threads share one (`open_shared_queue`)",
                )
            }
        }
    }

    /// Why an engine cannot have `address`, which is no channel of this process.
    pub(crate) fn not_there(&self, address: PciAddress) -> Error {
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
            return function.obstacle();
        }
        let known: Vec<_> = self.channels.keys().map(ToString::to_string).collect();
        if known.is_empty() {
            return device::none(&functions);
        }
        error(ErrorKind::NotFound, format!("no I/OAT device found at {address}"))
            .with_hint(format!("there are {}", known.join(", ")))
    }

    /// Why there is no channel at all.
    pub(crate) fn nothing(&self) -> Error {
        if let Some(address) = self.broken.first().filter(|_| self.held.is_empty()) {
            return self.not_there(*address);
        }
        match self.held.first_key_value() {
            Some((address, _)) => self.not_there(*address),
            None => device::none(&device::functions()),
        }
    }

    /// Gives a channel back, with nothing in flight.
    pub(crate) fn give_back(&mut self, channel: &Channel) {
        self.mark(channel, Use::Free);
    }

    /// A channel that is being attached again will be free then.
    pub(crate) fn comes_back(&mut self, channel: &Channel) {
        self.returning.insert(channel.address);
    }

    /// So it is, or did not come back.
    pub(crate) fn came_back(&mut self, channel: &Channel, back: Option<&Channel>) {
        self.returning.remove(&channel.address);
        if let Some(back) = back {
            self.give_back(back);
        }
    }

    /// Whether a channel that could be taken is on its way back.
    pub(crate) fn is_awaited(&self, address: Option<PciAddress>) -> bool {
        address.map_or(!self.returning.is_empty(), |address| self.returning.contains(&address))
    }

    /// Gives a channel up, with descriptors in flight: it may write to their memory at any time.
    pub(crate) fn lose(&mut self, channel: &Channel) {
        self.mark(channel, Use::Lost);
    }

    fn mark(&mut self, channel: &Channel, as_: Use) {
        if let Some((_, used)) = self.channels.get_mut(&channel.address) {
            *used = as_;
        }
    }

    /// Detaches a channel, and gives its function back to the system.
    ///
    /// # Safety
    ///
    /// The device has nothing in flight on it, or has halted, and nobody uses it any more.
    unsafe fn detach(&mut self, spdk: &Library, channel: &Channel) {
        self.channels.remove(&channel.address);
        // SAFETY: it was attached; the rest is the caller's promise.
        unsafe { ffi::detach(spdk, channel.raw) };
        // SAFETY: detached just now. SPDK offers it again only once it was given back.
        unsafe { ffi::release(spdk, channel.function) };
    }

    /// Detaches all channels that no queue has. Returns how many.
    pub(crate) fn release_free(&mut self, spdk: &Library) -> usize {
        let free: Vec<_> = self
            .channels
            .values()
            .filter(|(_, used)| *used == Use::Free)
            .map(|(channel, _)| channel.clone())
            .collect();
        for channel in &free {
            // SAFETY: nobody has it; who gave it back had nothing in flight.
            unsafe { self.detach(spdk, channel) };
        }
        free.len()
    }
}

/// Detaches a channel that halted, and attaches it again. Blocks, for milliseconds or, where DPDK has to find the function again, seconds.
///
/// # Safety
///
/// The channel has halted, and nobody uses it any more.
pub(crate) unsafe fn reattach(environment: &Arc<Environment>, channel: &Channel) -> Result<Channel> {
    let spdk = &environment.spdk;
    let until = Instant::now() + REATTACH_TIMEOUT;
    {
        let mut pool = environment.pool();
        pool.restarting.insert(channel.address);
        // SAFETY: the caller's promise.
        unsafe { pool.detach(spdk, channel) };
    }
    loop {
        {
            let mut pool = environment.pool();
            let probed = pool.probe(spdk);
            if let Some(channel) = pool.take_back(channel.address) {
                return Ok(channel);
            }
            if Instant::now() >= until || pool.broken.contains(&channel.address) {
                pool.restarting.remove(&channel.address);
                return Err(probed.err().unwrap_or_else(|| pool.not_there(channel.address)));
            }
        }
        std::thread::sleep(REATTACH_PAUSE);
    }
}

/// What a probe does: attaches whatever no other process has.
struct Attach<'a> {
    spdk: &'a Library,
    pool: &'a mut Pool,
    /// What is being attached.
    pending: Option<PciAddress>,
    /// What other processes have.
    refused: Vec<RawFunction>,
}

impl ffi::Probe for Attach<'_> {
    fn wants(&mut self, function: RawFunction, address: PciAddress) -> bool {
        self.pending = None;
        if self.pool.broken.contains(&address) {
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
