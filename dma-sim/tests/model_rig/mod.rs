//! [`Rig`]: a model with one channel and memory.
#![allow(dead_code, reason = "each test uses only a part")]

use std::sync::Arc;

use dma_sim::model::*;

/// Length of each test's memory. Miri takes milliseconds for each byte.
pub(crate) const LEN: u64 = if cfg!(miri) { 160 } else { 4_096 };

/// Returns the segment with these numbers.
pub(crate) fn segment(key: RegionKey, addr: u64, len: u64) -> Segment {
    Segment { key, addr: DeviceAddr(addr), len: len as usize }
}

/// A device with one source, one destination and one channel.
pub(crate) struct Rig {
    pub(crate) device: Device,
    pub(crate) src: Segment,
    pub(crate) dst: Segment,
    pub(crate) channel: ChannelId,
}

impl Rig {
    pub(crate) fn new(profile: Profile, faults: &str) -> Self {
        Self::with_peer(profile, faults, None)
    }

    /// Creates a rig in which the destination is the peer's memory.
    pub(crate) fn with_peer(profile: Profile, faults: &str, peer: Option<Arc<dyn PeerAccess>>) -> Self {
        let config = DeviceConfig::new(profile).with_seed(3).with_faults(faults.parse().unwrap());
        let mut device = Device::new(config.with_trace(TraceMode::Record)).unwrap();
        let mut region = |rights, peer| {
            let key = device.allocate(LEN, rights, peer).unwrap();
            segment(key, device.range(key).unwrap().0, LEN)
        };
        let src = region(Rights::LOCAL_READ, None);
        let dst = region(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, peer);
        device.write(src.key, src.addr.0, &[7; LEN as usize]).unwrap();
        let channel = device.open_channel(16).unwrap();
        Self { device, src, dst, channel }
    }

    pub(crate) fn submit(&mut self, token: u64) -> Result<(), Refused> {
        self.device.submit(self.channel, &Descriptor::copy(token, self.src, self.dst))
    }

    /// Submits this number of tasks and rings the doorbell.
    pub(crate) fn send(&mut self, tokens: std::ops::Range<u64>) {
        for token in tokens {
            self.submit(token).unwrap();
        }
        self.device.doorbell(self.channel).unwrap();
    }

    /// Polls all reports. Returns them sorted by token.
    pub(crate) fn poll(&mut self) -> Vec<(u64, Status)> {
        let mut all: Vec<_> = std::iter::from_fn(|| self.device.poll(self.channel)).collect();
        all.sort_by_key(|completion| completion.token);
        all.iter().map(|completion| (completion.token, completion.status)).collect()
    }

    pub(crate) fn run(&mut self) -> Vec<(u64, Status)> {
        self.device.run();
        self.poll()
    }

    /// Returns the number of destination bytes that equal the source.
    pub(crate) fn moved(&self) -> usize {
        let mut bytes = vec![0; LEN as usize];
        self.device.read(self.dst.key, self.dst.addr.0, &mut bytes).unwrap();
        bytes.iter().filter(|byte| **byte == 7).count()
    }

    pub(crate) fn state(&self) -> ChannelState {
        self.device.state(self.channel).unwrap()
    }
}

pub(crate) fn all(tokens: std::ops::Range<u64>, status: Status) -> Vec<(u64, Status)> {
    tokens.map(|token| (token, status)).collect()
}

pub(crate) const ENGINE: Status = Status::Failed(TaskError::Engine);

pub(crate) const RESET: Status = Status::Aborted(HaltCause::Reset);
