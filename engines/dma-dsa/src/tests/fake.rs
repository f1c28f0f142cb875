//! A fake device for tests. The device runs descriptors during the submission, and injects page faults and
//! failures.
#![expect(unsafe_code, reason = "runs descriptors on memory, as the device does")]

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::device::WorkQueue;
use crate::device::tests::tree;
use crate::portal::Portal;
use crate::{DsaEngine, DsaOptions};
use dsa_sys::{HwDescriptor, Record, flag, op, status};

/// Settings of a fake device.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) shared: bool,
    /// False if the portal accepts no batches, like `write()`.
    pub(crate) batches: bool,
    pub(crate) size: u32,
    pub(crate) max_batch: u32,
    pub(crate) max_transfer: u64,
    /// With N, each operation meets a page fault, each list is unreadable, and each submission finds the work
    /// queue full with probability 1/N. 0 means never.
    pub(crate) fault_every: u64,
}

impl Default for Fake {
    fn default() -> Self {
        Self { shared: false, batches: true, size: 16, max_batch: 32, max_transfer: 1 << 31, fault_every: 0 }
    }
}

/// The state of a fake device.
#[derive(Debug, Default)]
pub(crate) struct State {
    random: u64,
    /// Statuses with which the next operations end without being run.
    pub(crate) statuses: VecDeque<u8>,
    /// The error that every submission returns.
    pub(crate) errno: Option<Errno>,
    /// True if operations are accepted but never run.
    pub(crate) hangs: bool,
    /// Addresses of the completion records of operations whose last run met a page fault at the first byte.
    /// The next run of such an operation gets further, as if the page had been mapped.
    stuck: Vec<u64>,
    /// Number of operations after a fence that were not run, because an operation before it failed.
    pub(crate) abandoned: usize,
    /// Opcodes of the submitted descriptors, and of the operations that were run.
    pub(crate) submitted: Vec<u8>,
    pub(crate) run: Vec<u8>,
}

#[derive(Debug)]
struct FakePortal {
    fake: Fake,
    state: Arc<Mutex<State>>,
}

/// An engine on a fake device, the state of the device, and the folder that describes it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) engine: DsaEngine,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) folder: tempfile::TempDir,
}

impl Fake {
    pub(crate) fn open(&self) -> Rig {
        let (folder, options) = tree(&[
            ("wq0.0/mode", if self.shared { "shared" } else { "dedicated" }),
            ("wq0.0/size", &self.size.to_string()),
            ("wq0.0/max_batch_size", &self.max_batch.to_string()),
            ("wq0.0/max_transfer_size", &self.max_transfer.to_string()),
        ]);
        let wq = WorkQueue::read(&options, "wq0.0").unwrap();
        let state = Arc::new(Mutex::new(State { random: 0x9e37_79b9_7f4a_7c15, ..State::default() }));
        let portal = FakePortal { fake: self.clone(), state: Arc::clone(&state) };
        let engine = DsaEngine::on(wq, Box::new(portal), &DsaOptions::new()).unwrap();
        Rig { engine, state, folder }
    }
}

impl State {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn one_of(&mut self, every: u64) -> bool {
        every > 0 && self.random().is_multiple_of(every)
    }
}

impl Portal for FakePortal {
    unsafe fn submit(&self, descriptors: &[HwDescriptor]) -> Result<usize, Errno> {
        let mut state = self.state.lock().unwrap();
        if let Some(errno) = state.errno {
            return Err(errno);
        }
        for (n, descriptor) in descriptors.iter().enumerate() {
            if (self.fake.shared || !self.fake.batches) && state.one_of(self.fake.fault_every) {
                return Ok(n);
            }
            state.submitted.push(descriptor.opcode());
            if state.hangs {
                continue;
            }
            if descriptor.opcode() == op::BATCH {
                assert!(self.fake.batches, "the kernel refuses batches by write()");
                self.run_batch(&mut state, descriptor);
            } else {
                assert_ne!(descriptor.command & flag::REPORT, 0, "a success would not be reported");
                assert_eq!(descriptor.command & flag::FENCE, 0, "a fence outside of a batch");
                self.run(&mut state, descriptor);
            }
        }
        Ok(descriptors.len())
    }

    fn takes_batches(&self) -> bool {
        self.fake.batches
    }

    fn name(&self) -> &'static str {
        "a fake"
    }
}

fn bytes(addr: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(addr as usize)
}

fn record(descriptor: &HwDescriptor) -> &Record {
    assert!(descriptor.record.is_multiple_of(32) && descriptor.record != 0);
    // SAFETY: the queue's record lives as long as the device runs the descriptor.
    unsafe { &*ptr::with_exposed_provenance::<Record>(descriptor.record as usize) }
}

impl FakePortal {
    fn run_batch(&self, state: &mut State, batch: &HwDescriptor) {
        let count = batch.len as usize;
        assert!((2..=self.fake.max_batch as usize).contains(&count), "a batch of {count}");
        assert!(batch.src.is_multiple_of(64));
        let list = ptr::with_exposed_provenance::<HwDescriptor>(batch.src as usize);
        // SAFETY: the queue's list lives as long as the device runs the batch.
        let list = unsafe { std::slice::from_raw_parts(list, count) };
        let fault = state.one_of(self.fake.fault_every).then(|| state.random() as usize % count);
        let read = &list[..fault.unwrap_or(count)];
        let mut end = status::SUCCESS;
        let mut done = 0;
        for part in read.chunk_by(|_, next| next.command & flag::FENCE == 0) {
            // The device runs the operations of a batch in any order.
            for descriptor in part.iter().rev() {
                if self.run(state, descriptor) != status::SUCCESS {
                    end = status::BATCH_FAILED;
                }
            }
            done += part.len();
            if end != status::SUCCESS && done < read.len() {
                break;
            }
        }
        state.abandoned += read.len() - done;
        if fault == Some(done) {
            end = status::LIST_FAULT;
        }
        let record = record(batch);
        record.done.store(done as u32, Relaxed);
        record.status.store(end, Release);
    }

    fn run(&self, state: &mut State, d: &HwDescriptor) -> u8 {
        state.run.push(d.opcode());
        let (len, record) = (u64::from(d.len), record(d));
        assert!(len > 0 && len <= self.fake.max_transfer, "{len} bytes");
        assert!(!matches!(d.opcode(), op::MEMMOVE | op::FILL) || d.extra == 0, "a reserved field");
        if let Some(status) = state.statuses.pop_front() {
            record.done.store(0, Relaxed);
            record.fault.store(d.src, Relaxed);
            record.status.store(status, Release);
            return status;
        }
        let was_stuck = state.stuck.iter().position(|stuck| *stuck == d.record);
        let was_stuck = was_stuck.map(|at| state.stuck.swap_remove(at)).is_some();
        let fault = state.one_of(self.fake.fault_every).then(|| state.random() % len);
        let fault = fault.filter(|n| *n > 0 || !was_stuck);
        if fault == Some(0) {
            state.stuck.push(d.record);
        }
        let n = fault.unwrap_or(len) as usize;
        let (mut end, mut done, mut result) = (status::SUCCESS, n as u64, 0);
        // The address of the fault, and the bit for a write access. Fills have no source address, because the
        // field holds the pattern.
        let mut at = (d.src.wrapping_add(n as u64), 0);
        match d.opcode() {
            op::FILL => {
                at = (d.dst + n as u64, status::WRITE);
                // SAFETY: the submitter keeps the destination valid, and only this device accesses it now.
                let dst = unsafe { std::slice::from_raw_parts_mut(bytes(d.dst), n) };
                dst.iter_mut().zip(d.src.to_le_bytes().iter().cycle()).for_each(|(to, byte)| *to = *byte);
            }
            op::COMPARE => {
                // SAFETY: the submitter keeps the first source valid, and nothing writes to it now.
                let a = unsafe { std::slice::from_raw_parts(bytes(d.src), n) };
                // SAFETY: the submitter keeps the second source valid, and nothing writes to it now.
                let b = unsafe { std::slice::from_raw_parts(bytes(d.dst), n) };
                if let Some(differs) = a.iter().zip(b).position(|(a, b)| a != b) {
                    (done, result) = (differs as u64, 1);
                }
            }
            op::MEMMOVE | op::COPY_CRC | op::DUALCAST | op::CRC => {
                // SAFETY: the submitter keeps the source valid, and nothing writes to it now.
                let src = unsafe { std::slice::from_raw_parts(bytes(d.src), n) };
                if d.opcode() != op::CRC {
                    // SAFETY: the submitter keeps the destination valid, and it does not overlap the source.
                    unsafe { ptr::copy_nonoverlapping(src.as_ptr(), bytes(d.dst), n) };
                }
                if d.opcode() == op::DUALCAST {
                    assert_eq!((d.dst ^ d.extra) & 0xfff, 0);
                    at = (d.extra + n as u64, status::WRITE);
                    // SAFETY: the submitter keeps the second destination valid, and it does not overlap the
                    // source.
                    unsafe { ptr::copy_nonoverlapping(src.as_ptr(), bytes(d.extra), n) };
                }
                if matches!(d.opcode(), op::CRC | op::COPY_CRC) {
                    assert!(d.extra <= u64::from(u32::MAX));
                    let crc = crc32c::crc32c_append(d.extra as u32, src);
                    // The bits above the CRC are undefined.
                    record.value.store(u64::from(crc) | 0xdead << 32, Relaxed);
                }
            }
            other => panic!("opcode {other}"),
        }
        if fault.is_some() && result == 0 {
            end = status::PAGE_FAULT | at.1;
            record.fault.store(at.0 & !0xfff, Relaxed);
        }
        record.done.store(done as u32, Relaxed);
        record.result.store(result, Relaxed);
        if end != status::SUCCESS || d.command & flag::REPORT != 0 {
            record.status.store(end, Release);
        }
        end
    }
}
