//! Tests the model with memory that has no address in its process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dma_sim::model::*;
use proptest::prelude::*;

const LEN: u64 = 200_000;

/// A peer's memory that becomes inaccessible after some accesses.
#[derive(Debug)]
struct Peer {
    bytes: Mutex<Vec<u8>>,
    /// Number of remaining accesses.
    left: AtomicU64,
    error: PeerError,
}

impl Peer {
    fn new(left: u64, error: PeerError) -> Arc<Self> {
        let bytes = Mutex::new(vec![0; LEN as usize]);
        Arc::new(Self { bytes, left: AtomicU64::new(left), error })
    }

    fn access(&self) -> Result<(), PeerError> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 { Err(self.error) } else { Ok(()) }
    }
}

impl FarMemory for Peer {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError> {
        self.access()?;
        to.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..to.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), PeerError> {
        self.access()?;
        self.bytes.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// Returns the segment with these numbers.
fn segment(key: RegionKey, addr: u64, len: u64) -> Segment {
    Segment { key, addr: DeviceAddr(addr), len: len as usize }
}

/// A device with a local region and a peer's region, which contain different bytes, and a channel.
struct Rig {
    device: Device,
    channel: ChannelId,
    near: (RegionKey, u64),
    far: (RegionKey, u64),
    peer: Arc<Peer>,
}

const FAR_ADDRESS: u64 = 0x7000_0000_0123;

#[expect(
    unsafe_code,
    reason = "registers memory; registering memory without an address has no safety requirement"
)]
fn register(device: &mut Device, spec: RegionSpec) -> RegionKey {
    assert!(matches!(spec.memory, RegionMemory::Far(_)));
    // SAFETY: far memory has no address, so no address must be valid.
    unsafe { device.register(spec) }.unwrap()
}

impl Rig {
    fn new(profile: Profile, faults: &str, peer: Arc<Peer>, rights: Rights) -> Self {
        let config = DeviceConfig::new(profile).with_seed(3).with_faults(faults.parse().unwrap());
        let mut device = Device::new(config).unwrap();
        let own = device.allocate(LEN, Rights::all(), None).unwrap();
        let near = (own, device.range(own).unwrap().0);
        let spec = RegionSpec::far(FAR_ADDRESS, LEN, rights, Arc::clone(&peer) as _);
        let far = (register(&mut device, spec), FAR_ADDRESS);
        let first: Vec<_> = (0..LEN).map(|i| (i % 251) as u8).collect();
        device.write(near.0, near.1, &first).unwrap();
        *peer.bytes.lock().unwrap() = (0..LEN).map(|i| (i % 241) as u8 ^ 0x80).collect();
        let channel = device.open_channel(8).unwrap();
        Self { device, channel, near, far, peer }
    }

    fn segment(&self, (far, offset, len): (bool, u64, u64)) -> Segment {
        let (key, base) = if far { self.far } else { self.near };
        segment(key, base + offset, len)
    }

    fn own_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.device.read(self.near.0, self.near.1, &mut bytes).unwrap();
        bytes
    }

    fn far_bytes(&self) -> Vec<u8> {
        self.peer.bytes.lock().unwrap().clone()
    }

    fn run(&mut self, descriptor: &Descriptor<'_>) -> Result<TaskReport, Refused> {
        self.device.submit(self.channel, descriptor)?;
        self.device.doorbell(self.channel).unwrap();
        self.device.run();
        Ok(self.device.poll(self.channel).unwrap())
    }
}

/// Generates pieces of any lengths in both memories that do not overlap each other.
fn places(half: u64) -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
    // One half of each memory is read, and the other half is written.
    proptest::collection::vec((any::<bool>(), 0..LEN / 20, 0..LEN / 20), 1..5).prop_map(move |pieces| {
        let mut next = [half * LEN / 2; 2];
        let place = |(far, gap, len): (bool, u64, u64)| {
            let begin = next[usize::from(far)] + gap;
            next[usize::from(far)] = begin + len;
            (far, begin, len)
        };
        pieces.into_iter().map(place).collect()
    })
}

/// Returns the first `len` bytes of `places`.
fn first(places: &[(bool, u64, u64)], mut len: u64) -> Vec<(bool, u64, u64)> {
    let cut = |&(far, begin, all): &(bool, u64, u64)| {
        let part = all.min(len);
        len -= part;
        (part > 0).then_some((far, begin, part))
    };
    places.iter().filter_map(cut).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..Default::default() })]

    /// Every byte arrives and no other byte changes, for local and remote memory in any
    /// combination.
    #[test]
    fn bytes_are_those_of_plain_memory(
        src in places(0), dst in places(1), fill in any::<Option<u64>>(), real: bool,
    ) {
        let total = |places: &[(bool, u64, u64)]| places.iter().map(|place| place.2).sum::<u64>();
        let len = total(&src).min(total(&dst));
        prop_assume!(len > 0);
        let (src, dst) = (first(&src, len), first(&dst, len));
        let profile = if real { Profile::bluefield3() } else { Profile::ideal() };
        let profile = Profile { max_segments: 8, max_task: LEN, fill: true, ..profile };
        let mut rig = Rig::new(profile, "", Peer::new(u64::MAX, PeerError::Gone), Rights::all());

        let mut oracle = [rig.own_bytes(), rig.far_bytes()];
        let at = |&(far, begin, len): &(bool, u64, u64)| {
            (begin..begin + len).map(move |at| (usize::from(far), at as usize))
        };
        let moved: Vec<u8> = match fill {
            Some(pattern) => pattern.to_le_bytes().into_iter().cycle().take(len as usize).collect(),
            None => src.iter().flat_map(at).map(|(side, at)| oracle[side][at]).collect(),
        };
        for (byte, (side, at)) in moved.into_iter().zip(dst.iter().flat_map(at)) {
            oracle[side][at] = byte;
        }

        let segments = |places: &[(bool, u64, u64)]| places.iter().map(|p| rig.segment(*p)).collect::<Vec<_>>();
        let (src, dst) = (segments(&src), segments(&dst));
        let descriptor = match fill {
            Some(pattern) => Descriptor::fill(1, pattern.to_le_bytes(), &dst),
            None => Descriptor::copy_lists(1, &src, &dst),
        };
        let completion = rig.run(&descriptor).unwrap();
        prop_assert_eq!(completion.status, Status::Done);
        prop_assert!(rig.own_bytes() == oracle[0] && rig.far_bytes() == oracle[1]);
    }
}

#[test]
fn an_end_in_mid_copy_is_a_failure_that_names_its_reason() {
    for (error, wanted) in [(PeerError::Revoked, TaskError::Revoked), (PeerError::Gone, TaskError::PeerGone)]
    {
        for push in [false, true] {
            // Enough accesses are granted for some bytes to move, but not for all.
            let profile = Profile { max_task: LEN, ..Profile::bluefield3() };
            let mut rig = Rig::new(profile, "", Peer::new(2, error), Rights::all());
            let before = (rig.own_bytes(), rig.far_bytes());
            let len = LEN;
            let (src, dst) = (rig.segment((!push, 0, len)), rig.segment((push, 0, len)));
            let completion = rig.run(&Descriptor::copy(9, src, dst)).unwrap();
            assert_eq!((completion.status, completion.touched), (Status::Failed(wanted), true));
            let after = (rig.own_bytes(), rig.far_bytes());
            assert_ne!(before, after, "some bytes must have moved");
            let (source, moved) = if push { (before.0, after.1) } else { (before.1, after.0) };
            assert_ne!(source, moved, "all bytes have moved");
        }
    }
}

#[test]
fn rights_are_those_of_a_peer() {
    let peer = || Peer::new(u64::MAX, PeerError::Gone);
    let mut rig = Rig::new(Profile::ideal(), "", peer(), Rights::REMOTE_READ);
    let (near, far) = (rig.segment((false, 0, 64)), rig.segment((true, 0, 64)));
    assert_eq!(rig.run(&Descriptor::copy(1, far, near)).unwrap().status, Status::Done);
    let denied = rig.run(&Descriptor::copy(1, near, far));
    assert!(matches!(denied, Err(Refused::Invalid(TaskError::Denied { needed: Rights::REMOTE_WRITE, .. }))));
    let outside = rig.segment((true, LEN - 63, 64));
    let refused = rig.run(&Descriptor::copy(1, outside, near));
    assert!(matches!(refused, Err(Refused::Invalid(TaskError::OutOfRange { .. }))));
}

#[test]
fn a_corrupted_byte_is_corrupted_there() {
    let mut rig =
        Rig::new(Profile::ideal(), "corrupt@1", Peer::new(u64::MAX, PeerError::Gone), Rights::all());
    let (near, far) = (rig.segment((false, 0, 64)), rig.segment((true, 100, 64)));
    assert_eq!(rig.run(&Descriptor::copy(1, near, far)).unwrap().status, Status::Done);
    let (sent, received) = (rig.own_bytes(), rig.far_bytes());
    let flipped: u32 = (0..64).map(|i| (sent[i] ^ received[100 + i]).count_ones()).sum();
    assert_eq!(flipped, 1);
}

#[cfg(target_os = "linux")]
#[test]
fn an_import_of_process_memory_serves_as_far_memory() {
    use std::ptr::NonNull;
    use std::time::Duration;

    use dma_core::Access;
    use dma_ipc::{Export, Import};

    let mut device = Device::new(DeviceConfig::new(Profile::ideal())).unwrap();
    let bytes = NonNull::from(Box::leak(vec![7_u8; 300_000].into_boxed_slice())).cast::<u8>();
    #[expect(unsafe_code, reason = "exports the memory")]
    // SAFETY: the memory is leaked, so it stays valid, and no references to it exist from here on.
    let export = unsafe { Export::of_process_memory(bytes, 300_000, Access::all()) }.unwrap();
    let import = Arc::new(Import::open(export.blob()).unwrap());
    let (addr, len) = (import.grant().address, import.grant().len);
    let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
    let far = register(&mut device, RegionSpec::far(addr, len, rights, import));
    let near = device.allocate(len, Rights::all(), None).unwrap();
    let base = device.range(near).unwrap().0;
    let channel = device.open_channel(4).unwrap();
    let copy = |device: &mut Device, src, dst| {
        device.submit(channel, &Descriptor::copy(0, src, dst)).unwrap();
        device.doorbell(channel).unwrap();
        device.run();
        device.poll(channel).unwrap().status
    };
    let there = segment(far, addr + 1, len - 1);
    let here = segment(near, base, len - 1);
    assert_eq!(copy(&mut device, there, here), Status::Done);
    let mut seen = vec![0; len as usize];
    device.read(near, base, &mut seen).unwrap();
    assert!(seen[..seen.len() - 1].iter().all(|&byte| byte == 7) && seen[seen.len() - 1] == 0);
    export.revoke(Duration::from_secs(60)).unwrap();
    assert_eq!(copy(&mut device, here, there), Status::Failed(TaskError::Revoked));
}
