//! Tests that the device enforces rights: on the stand-in's device, and on a device of this machine. On the
//! latter, also tests requests that no host answers.
#![expect(unsafe_code, reason = "posts requests that the device must refuse")]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::Access;

use crate::RdmaOptions;
use crate::device::{self, Device};
use crate::handle::Handle;
use rdma_emu::{Nic, wc};

use crate::queue_pairs::QueuePairs;
use crate::registration::{Bytes, rights};
use crate::verbs::*;

const LEN: usize = 4096;
/// Number of registered bytes of the target. The other bytes must never change.
const TARGET: usize = 2048;
/// Time limit for a device that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn register(device: &Device, memory: &mut [u8], access: Access) -> Handle<ibv_mr> {
    let len = memory.len();
    // SAFETY: the memory outlives its registration, which `check` ends.
    unsafe {
        let bytes = Bytes::Mapped(NonNull::from(memory).cast());
        device.register(device.pd, &bytes, len, rights(access, access::LOCAL_WRITE))
    }
    .unwrap()
}

pub(super) fn keys(region: Handle<ibv_mr>) -> (u32, u32) {
    // SAFETY: the region is registered.
    let region = unsafe { &*region.as_ptr() };
    (region.lkey, region.rkey)
}

/// Reads through the queue pair, and returns the status.
pub(super) fn read(pair: &QueuePairs, from: (*const u8, u32), to: (*mut u8, u32), length: usize) -> i32 {
    request(pair, WR_RDMA_READ, from, to, length)
}

/// Posts a request to the queue pair, and returns the status.
pub(super) fn request(
    pair: &QueuePairs,
    opcode: i32,
    remote: (*const u8, u32),
    local: (*mut u8, u32),
    length: usize,
) -> i32 {
    let mut sge = ibv_sge { addr: local.0 as u64, length: length as u32, lkey: local.1 };
    let mut wr = ibv_send_wr {
        wr_id: 1,
        next: ptr::null_mut(),
        sg_list: &raw mut sge,
        num_sge: 1,
        opcode,
        send_flags: SEND_SIGNALED,
        imm_data: 0,
        remote_addr: remote.0 as u64,
        rkey: remote.1,
        others: [0; 9],
    };
    // SAFETY: the request lives until its completion. All memory that it names, also memory that it must not
    // reach, belongs to this test.
    unsafe { pair.post(&raw mut wr) }.unwrap();
    let start = Instant::now();
    let mut completion = [ibv_wc::default()];
    while pair.poll(&mut completion) == 0 {
        assert!(start.elapsed() < PATIENCE, "no completion");
        std::thread::yield_now();
    }
    completion[0].status
}

fn check(device: &Arc<Device>) {
    let mut pair = QueuePairs::open(device, 4).unwrap();
    let (mut source, mut hidden, mut target) = (vec![1; LEN], vec![2; LEN], vec![3; LEN]);
    let readable = register(device, &mut source, Access::READ);
    let unreadable = register(device, &mut hidden, Access::WRITE);
    let writable = register(device, &mut target[..TARGET], Access::WRITE);
    let gone = register(device, &mut hidden, Access::READ);
    let (of_source, of_hidden, of_gone) = (keys(readable).1, keys(unreadable).1, keys(gone).1);
    let (into_source, into_target) = (keys(readable).0, keys(writable).0);
    assert!(device.deregister(gone));
    let (from, secret, to) = (source.as_ptr(), hidden.as_ptr(), target.as_mut_ptr());
    let good = ((from, of_source), (to, into_target), TARGET);
    let beyond = from.wrapping_add(LEN - 64);
    for (name, (read_from, read_to, length), status) in [
        ("the whole grant", good, 0),
        ("beyond the source's end", ((beyond, of_source), (to, into_target), 65), wc::REMOTE_ACCESS),
        ("before its start", ((from.wrapping_sub(1), of_source), (to, into_target), 64), wc::REMOTE_ACCESS),
        ("other memory with its own key", ((secret, of_source), (to, into_target), 64), wc::REMOTE_ACCESS),
        ("memory without the right", ((secret, of_hidden), (to, into_target), 64), wc::REMOTE_ACCESS),
        ("a forged key", ((from, of_source ^ 0x80), (to, into_target), 64), wc::REMOTE_ACCESS),
        ("after deregistration", ((secret, of_gone), (to, into_target), 64), wc::REMOTE_ACCESS),
        (
            "into memory that may only be read",
            ((from, of_source), (from.cast_mut(), into_source), 64),
            wc::PROTECTION,
        ),
        ("beyond the target's end", ((from, of_source), (to, into_target), TARGET + 1), wc::PROTECTION),
    ] {
        // SAFETY: the device writes the memory only during a request, and no request is in flight.
        unsafe { ptr::write_bytes(to, 3, TARGET) };
        assert_eq!(read(&pair, read_from, read_to, length), status, "{name}");
        if status != 0 {
            // SAFETY: the request has ended, so the device does not write the memory.
            let reached = unsafe { std::slice::from_raw_parts(to, TARGET) };
            assert!(
                status != wc::REMOTE_ACCESS || reached.iter().all(|byte| *byte == 3),
                "{name}: bytes came"
            );
            pair.reconnect().unwrap();
        }
        assert_eq!(read(&pair, good.0, good.1, good.2), 0, "after {name}");
    }
    drop(pair);
    for region in [readable, unreadable, writable] {
        assert!(device.deregister(region));
    }
    assert_eq!(target[..TARGET], source[..TARGET]);
    assert!(target[TARGET..].iter().all(|byte| *byte == 3), "bytes after the region changed");
    assert!(source.iter().all(|byte| *byte == 1), "the source changed");
}

#[test]
fn the_device_of_the_tests_enforces_rights() {
    let nic = Nic::default();
    check(&Device::open(&nic.verbs(), &RdmaOptions::new()).unwrap());
    assert_eq!(nic.state().objects, 0, "objects of the library were not destroyed");
}

fn hardware() -> Arc<Device> {
    let opened = device::load(None).and_then(|verbs| Device::open(&verbs, &RdmaOptions::new()));
    opened.unwrap_or_else(|error| panic!("no RDMA device to test: {error}"))
}

#[test]
#[ignore = "needs an RDMA device with an active port: cargo test -p dma-rdma -- --ignored hardware"]
fn the_hardware_enforces_rights() {
    check(&hardware());
}

#[test]
#[ignore = "needs an RDMA device with an active port: cargo test -p dma-rdma -- --ignored hardware"]
fn the_hardware_gives_up_what_nobody_answers() {
    let device = hardware();
    let mut pair = QueuePairs::open(&device, 4).unwrap();
    let mut memory = vec![1; LEN];
    let place = memory.as_mut_ptr();
    let region = register(&device, &mut memory, Access::READ | Access::WRITE);
    let (lkey, rkey) = keys(region);
    pair.connect_to_nobody().unwrap();
    assert_eq!(read(&pair, (place, rkey), (place.wrapping_add(LEN / 2), lkey), 64), wc::NO_ANSWER);
    pair.reconnect().unwrap();
    assert_eq!(read(&pair, (place, rkey), (place.wrapping_add(LEN / 2), lkey), 64), 0);
    drop(pair);
    assert!(device.deregister(region));
}
