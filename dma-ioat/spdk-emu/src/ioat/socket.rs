//! A socket: what its channels share, which is a device of the model.
#![expect(unsafe_code, reason = "gives the device all of the program's memory")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dma_sim::model::{
    ChannelId, Device, DeviceConfig, Found, OnFailure, Profile, RegionKey, RegionSpec, Rights, ZeroLength,
};

use crate::config::{Clock, SocketConfig};
use crate::door::Ptr;
use crate::env::time;
use crate::env::translation_limits::{FIRST, MEMORY};

/// The channels of a socket.
pub(crate) struct Socket {
    pub(crate) config: SocketConfig,
    pub(crate) clock: Clock,
    /// Of all channels, or of none where each has its own.
    shared: Option<Arc<Engine>>,
}

/// A device of the model.
#[derive(Debug)]
pub(crate) struct Engine {
    device: Mutex<Device>,
    clock: Clock,
    /// The program's whole address space.
    pub(crate) region: RegionKey,
    /// By the function's number.
    channels: Vec<ChannelId>,
}

impl Socket {
    pub(crate) fn new(config: SocketConfig) -> Self {
        let ideal = config.profile.name == "ideal";
        let clock = config.clock.unwrap_or(if ideal { Clock::Virtual } else { Clock::Real });
        // Channels of a device that takes no time do not see one another, and need not wait for one another.
        let alone = ideal && config.faults.rules.is_empty();
        let shared = (!alone).then(|| Arc::new(Engine::new(&config, clock, config.function.len())));
        Self { config, clock, shared }
    }

    /// The device that a function's channel is of, and its name there.
    pub(crate) fn engine(&self, number: u32) -> (Arc<Engine>, ChannelId) {
        match &self.shared {
            Some(shared) => (Arc::clone(shared), shared.channels[number as usize]),
            None => {
                let engine = Engine::new(&self.config, self.clock, 1);
                let channel = engine.channels[0];
                (Arc::new(engine), channel)
            }
        }
    }
}

impl Engine {
    fn new(config: &SocketConfig, clock: Clock, channels: usize) -> Self {
        let ideal = config.profile.name == "ideal";
        let mut profile = if ideal { config.profile.clone().timeless() } else { config.profile.clone() };
        profile.max_task = config.xfercap;
        profile.max_segments = 1;
        profile.fill = true;
        profile.depth = config.ring - 1;
        profile.channels = channels.max(1) as u32;
        // Manners of I/OAT, whatever its times.
        profile.in_order = true;
        profile.on_failure = OnFailure::Halt;
        profile.zero_length = ZeroLength::Completes;
        profile.oversize = Found::AtSubmit;
        let depth = profile.depth;
        let mut model = DeviceConfig::new(profile).with_seed(config.seed).with_faults(config.faults.clone());
        // What happens at once does not happen in parts.
        model.tearing = !ideal;
        let device = Device::new(model).or_else(|_| Device::new(DeviceConfig::new(Profile::ideal())));
        let Ok(mut device) = device else { unreachable!("the ideal profile is valid") };
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let whole = RegionSpec::local(Ptr::<u8>::at(FIRST).non_null(), MEMORY - FIRST, rights);
        // SAFETY: tasks name only memory that was translated, which is the environment's or what the program registered:
        // that it is there for as long as it is used is the program's promise, as to SPDK.
        let region = unsafe { device.register(whole) };
        let Ok(region) = region else { unreachable!("the address space is not larger than itself") };
        let channels = (0..channels).map_while(|_| device.open_channel(depth).ok()).collect();
        Self { device: Mutex::new(device), clock, region, channels }
    }

    /// The device, with its time being what it is now.
    #[inline]
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
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
