//! A socket: the modelled device that its channels share.
#![expect(unsafe_code, reason = "registers all of the program's memory with the device")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use dma_sim::model::{
    ChannelId, Device, DeviceConfig, Found, OnFailure, Profile, RegionKey, RegionSpec, Rights, ZeroLength,
};

use crate::c_abi::Addr;
use crate::config::{Clock, SocketConfig};
use crate::env::time;
use crate::env::translation::ADDRESSES;
use crate::lock;

/// The channels of a socket.
pub(crate) struct Socket {
    pub(crate) config: SocketConfig,
    pub(crate) clock: Clock,
    /// The device that all channels share. `None` if each channel has a device of its own.
    shared: Option<Arc<SocketDevice>>,
}

/// A device of the model, behind a lock.
#[derive(Debug)]
pub(crate) struct SocketDevice {
    device: Mutex<Device>,
    clock: Clock,
    /// Key of the region that spans the program's whole address space.
    pub(crate) region: RegionKey,
    /// The identifier of each channel, by the function's number.
    channels: Vec<ChannelId>,
}

impl Socket {
    pub(crate) fn new(config: SocketConfig) -> Self {
        let ideal = config.profile.name == "ideal";
        let clock = config.clock.unwrap_or(if ideal { Clock::Virtual } else { Clock::Real });
        // Channels of a device that takes no time do not affect one another, so they need not share a lock.
        let alone = ideal && config.faults.rules.is_empty();
        let shared = (!alone).then(|| Arc::new(SocketDevice::new(&config, clock, config.function.len())));
        Self { config, clock, shared }
    }

    /// Returns the device of a function's channel, and the channel's identifier on that device.
    pub(crate) fn engine(&self, number: u32) -> (Arc<SocketDevice>, ChannelId) {
        match &self.shared {
            Some(shared) => (Arc::clone(shared), shared.channels[number as usize]),
            None => {
                let engine = SocketDevice::new(&self.config, self.clock, 1);
                let channel = engine.channels[0];
                (Arc::new(engine), channel)
            }
        }
    }
}

impl SocketDevice {
    fn new(config: &SocketConfig, clock: Clock, channels: usize) -> Self {
        let ideal = config.profile.name == "ideal";
        let mut profile = if ideal { config.profile.clone().timeless() } else { config.profile.clone() };
        profile.max_task = config.xfercap;
        profile.max_segments = 1;
        profile.fill = true;
        profile.depth = config.ring - 1;
        profile.channels = channels.max(1) as u32;
        // With every profile, the following properties are those of I/OAT.
        profile.in_order = true;
        profile.on_failure = OnFailure::Halt;
        profile.zero_length = ZeroLength::Completes;
        profile.oversize = Found::AtSubmit;
        let depth = profile.depth;
        let mut model = DeviceConfig::new(profile).with_seed(config.seed).with_faults(config.faults.clone());
        // Copies that take no time are atomic.
        model.tearing = !ideal;
        let device = Device::new(model).or_else(|_| Device::new(DeviceConfig::new(Profile::ideal())));
        let Ok(mut device) = device else { unreachable!("the ideal profile is valid") };
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let first = NonNull::new(Addr::at(ADDRESSES.start).raw().cast()).unwrap_or(NonNull::dangling());
        let whole = RegionSpec::local(first, ADDRESSES.end - ADDRESSES.start, rights);
        // SAFETY: tasks name only translated memory, which is the environment's or registered by the program.
        // The program keeps registered memory mapped while it is in use, as SPDK requires, and tasks are the
        // only accesses.
        let region = unsafe { device.register(whole) };
        let Ok(region) = region else { unreachable!("the address space is not larger than itself") };
        let channels = (0..channels).map_while(|_| device.open_channel(depth).ok()).collect();
        Self { device: Mutex::new(device), clock, region, channels }
    }

    /// Locks the device, and advances it to the current time.
    #[inline]
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        let mut device = lock(&self.device);
        match self.clock {
            Clock::Real => device.advance(time::real_now()),
            Clock::Virtual => device.advance(time::virtual_now()),
        }
        device
    }

    pub(crate) fn is_virtual(&self) -> bool {
        self.clock == Clock::Virtual
    }
}
