//! Tests memory of another device that is registered by its dma-buf, on the stand-in. The other device is
//! simulated, and a file in memory represents its dma-buf.
#![expect(unsafe_code, reason = "names memory by a descriptor")]

use std::os::fd::OwnedFd;

use dma_core::{
    Access, Capabilities, DeviceAddr, DeviceMemory, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Place,
    QueueOptions, Window,
};
use dma_sim::sim::{SimEngine, SimOptions};

use super::remote::exported;
use crate::RdmaEngine;
use rdma_emu::Nic;

use crate::tests::open::Open as _;

const LEN: usize = 300_000;

fn gpu() -> SimEngine {
    SimEngine::open(&SimOptions::new().with_device_memory(16 << 20)).unwrap()
}

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7) >> 3) as u8).collect()
}

/// Writes device memory through its own engine.
fn put(gpu: &SimEngine, to: &Window, bytes: &[u8]) {
    let mut staging = gpu.allocate(bytes.len()).unwrap();
    staging.copy_from_slice(bytes);
    let queue = gpu.open_queue(&QueueOptions::new()).unwrap();
    queue.copy(staging, to.clone()).unwrap().wait().unwrap();
}

fn get(gpu: &SimEngine, from: &Window) -> Vec<u8> {
    let queue = gpu.open_queue(&QueueOptions::new()).unwrap();
    let to = gpu.allocate(from.len()).unwrap();
    queue.copy(from.clone(), to).unwrap().wait().unwrap().1.to_vec()
}

/// Device memory is the source and the destination of RDMA writes and reads, without a mapping for the CPU,
/// and lives until both engines no longer use it.
#[test]
fn memory_of_a_device_is_sent_to_a_peer_and_received() {
    let (nic, gpu) = (Nic::default(), gpu());
    let (here, there) = (nic.open(), nic.open());
    assert!(here.info().capabilities.contains(Capabilities::REGISTER_DMABUF));
    let vram = gpu.allocate_device(LEN).unwrap();
    put(&gpu, &vram, &sample(LEN));
    let registered = here.register_device(vram.dmabuf().unwrap()).unwrap();
    assert!(!registered.region().is_cpu_visible() && registered.len() == LEN);
    registered.read_at(0, &mut [0]).expect_err("the CPU cannot reach it");

    let (near, export) = exported(&there, LEN, Access::all());
    let remote = here.import(export.descriptor()).unwrap();
    let queue = here.open_queue(&QueueOptions::new()).unwrap();
    let (_, remote) = queue.copy(registered.clone(), remote).unwrap().wait().unwrap();
    let mut arrived = vec![0; LEN];
    near.read_at(0, &mut arrived).unwrap();
    assert!(arrived == sample(LEN), "written from device memory");

    // Copies from a peer's memory, and from host memory, to a part of other device memory.
    let other = gpu.allocate_device(LEN).unwrap();
    let part = here.register_device(other.slice(5000..5100).dmabuf().unwrap()).unwrap();
    queue.copy(remote.slice(100..200), part.clone()).unwrap().wait().unwrap();
    assert_eq!(get(&gpu, &other.slice(5000..5100)), sample(LEN)[100..200]);
    let mut host = here.allocate(100).unwrap();
    host.fill(9);
    let (_, part) = queue.copy(host, part).unwrap().wait().unwrap();
    let whole = get(&gpu, &other);
    assert_eq!(whole[5000..5100], [9; 100]);
    assert!(whole[..5000].iter().chain(&whole[5100..]).all(|byte| *byte == 0), "nothing beside it");

    // The other engine's region keeps the memory alive.
    let region = other.region().clone();
    drop(other);
    let (region, _) = region.deregister().expect_err("the user of the dma-buf keeps the memory");
    drop(part);
    assert!(region.deregister().expect("nothing uses it").is_none());
    drop((queue, registered, vram, near, export, remote, here, there));
    assert_eq!(nic.state().objects, 0, "objects of the library were not destroyed");
}

/// A peer writes and reads device memory, only within the granted range.
#[test]
fn memory_of_a_device_is_exported_to_a_peer() {
    let (nic, gpu) = (Nic::default(), gpu());
    let (here, there) = (nic.open(), nic.open());
    let vram = gpu.allocate_device(LEN).unwrap();
    let request = MemoryRequest::new(0).exportable(Access::all());
    let registered = here.register_device_with(vram.dmabuf().unwrap(), &request).unwrap();
    let export = registered.slice(1000..2000).export(Access::all()).unwrap();
    let remote = there.import(export.descriptor()).unwrap();
    let queue = there.open_queue(&QueueOptions::new()).unwrap();
    let mut sent = there.allocate(1000).unwrap();
    sent.copy_from_slice(&sample(1000));
    let (sent, remote) = queue.copy(sent, remote).unwrap().wait().unwrap();
    let whole = get(&gpu, &vram);
    assert_eq!(whole[1000..2000], sent[..]);
    assert!(whole[..1000].iter().chain(&whole[2000..]).all(|byte| *byte == 0), "nothing beside it");
    let (_, got) = queue.copy(remote, there.allocate(1000).unwrap()).unwrap().wait().unwrap();
    assert_eq!(got[..], sent[..]);
}

#[test]
fn files_of_other_kinds_are_refused_with_the_remedy() {
    let gpu = gpu();
    let refused = |engine: &RdmaEngine, memory: DeviceMemory| engine.register_device(memory).unwrap_err();
    let vram = gpu.allocate_window(&MemoryRequest::new(LEN).with_place(Place::Device)).unwrap();
    // SAFETY: the owner keeps the memory allocated, and no reference to it exists.
    let bare = || unsafe { DeviceMemory::from_raw(DeviceAddr(4096), 4096, vram.clone()) };
    let fd: OwnedFd = tempfile::tempfile().unwrap().into();

    let engine = Nic::default().open();
    let error = refused(&engine, bare());
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("dma-buf"), "{error}");
    // SAFETY: the file is empty, so nothing is accessed.
    let empty = unsafe { bare().with_dmabuf(fd, 0) };
    let error = refused(&engine, empty);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "the range exceeds the dma-buf: {error}");

    let old = Nic::with(|state| state.takes_dmabufs = false).open();
    assert!(!old.info().capabilities.contains(Capabilities::REGISTER_DMABUF));
    let error = refused(&old, vram.dmabuf().unwrap());
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

    let read_only = MemoryRequest::new(64).with_place(Place::Device).with_access(Access::READ);
    let error = gpu.allocate_window(&read_only).unwrap().dmabuf().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
    let error = gpu.allocate(64).unwrap().share().dmabuf().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
