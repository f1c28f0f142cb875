//! Tests that the cases detect engines that break the contract, and that the message names the broken rule.
#![expect(unsafe_code, reason = "implements the raw traits")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    COMPLETES, ReferenceEngine, ReferenceOptions, closing_accounts_for_everything,
    copies_of_every_size_arrive, descriptors_are_reported_once, dropped_transfers_finish,
    futures_resolve_anywhere, many_in_flight, random_programs_keep_all_bytes, shared_queues_close_cleanly,
    shared_queues_serve_threads,
};
use crate::{
    Completion, Descriptor, DmaEngine, EngineId, EngineInfo, ErrorKind, ExportDescriptor, HostMemory,
    MemoryRequest, NativeError, Operation, Outcome, QueueEvents, QueueOptions, QueueStats, RawQueue,
    RawRegion, Result, Segment,
};

/// The fault of each queue's third copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The copy is never reported.
    Lost,
    /// The copy is reported as failed.
    Failed,
    /// The copy is reported twice.
    Twice,
    /// The first byte of the copy is wrong.
    Wrong,
}

#[derive(Debug)]
pub(crate) struct Broken {
    inner: ReferenceEngine,
    fault: Fault,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: ReferenceEngine::new(ReferenceOptions::default()), fault }
    }
}

// SAFETY: every call goes to the reference engine. Its queues report wrongly, or change one byte of a
// destination, and `BrokenQueue` explains why both are sound.
unsafe impl DmaEngine for Broken {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn id(&self) -> EngineId {
        self.inner.id()
    }
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.inner.allocate_raw(request)
    }
    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.register_raw(memory, request) }
    }
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.inner.import_raw(descriptor)
    }
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let inner = self.inner.open_queue_raw(options)?;
        Ok(Box::new(BrokenQueue { inner, fault: self.fault, taken: 0, third: None }))
    }
}

#[derive(Debug)]
struct BrokenQueue {
    inner: Box<dyn RawQueue>,
    fault: Fault,
    taken: u64,
    /// Token and destination of the third copy, while it is in flight.
    third: Option<(u64, Segment)>,
}

// SAFETY: every call goes to the inner queue. Faults report a descriptor only after the inner queue has
// completed it. The only additional write is to the third copy's destination, before that copy is reported.
unsafe impl RawQueue for BrokenQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let n = unsafe { self.inner.submit(batch) }?;
        for descriptor in &batch[..n] {
            self.taken += 1;
            if let (3, Operation::Copy { dst, .. }) = (self.taken, descriptor.operation()) {
                self.third = Some((descriptor.token(), dst));
            }
        }
        Ok(n)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.inner.poll(completions);
        let Some((token, dst)) = self.third else { return n };
        let Some(at) = completions[..n].iter().position(|c| c.token == token) else { return n };
        self.third = None;
        match self.fault {
            Fault::Lost => {
                completions.copy_within(at + 1..n, at);
                return n - 1;
            }
            Fault::Failed => completions[at].outcome = Outcome::Failed(ErrorKind::DeviceFault),
            Fault::Twice if n < completions.len() => {
                completions[n] = completions[at];
                return n + 1;
            }
            // If the array is full, this report replaces another one.
            Fault::Twice => completions[(at + 1) % n] = completions[at],
            // SAFETY: the inner queue has completed the copy, but this call has not reported it yet. So the
            // destination still belongs to this queue. Its segment has at least 1 byte.
            Fault::Wrong => unsafe { *dst.addr.as_ptr() ^= 0xff },
        }
        n
    }
    fn explain(&self, code: i32) -> NativeError {
        self.inner.explain(code)
    }
    fn stop(&mut self) {
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.inner.events()
    }
}

/// Returns the panic message of `case` on an engine with this fault.
fn complaint(fault: Fault, case: fn(&dyn DmaEngine)) -> String {
    let panicked = catch_unwind(AssertUnwindSafe(|| case(&Broken::new(fault))))
        .expect_err("a case panics on a broken engine");
    *panicked.downcast::<String>().expect("cases panic with a message")
}

/// A case, and the texts that its panic message must contain.
type Expected<'a> = (fn(&dyn DmaEngine), &'a [&'a str]);

/// Checks that each case reports the expected message for an engine with this fault. The cases run at the
/// same time, because some of them wait.
fn expect_complaints(fault: Fault, expected: &[Expected<'_>]) {
    std::thread::scope(|scope| {
        let complaints: Vec<_> =
            expected.iter().map(|(case, _)| scope.spawn(|| complaint(fault, *case))).collect();
        for (i, (complaint, (_, words))) in complaints.into_iter().zip(expected).enumerate() {
            let said = complaint.join().expect("the case panicked with a message");
            assert!(
                words.iter().all(|word| said.contains(word)),
                "the message of case {i} must contain {words:?}: {said}"
            );
        }
    });
}

const COUNTED: &str = "must be completed, each counted once";

#[test]
fn a_completion_that_is_lost_is_said_to_be_missing() {
    expect_complaints(
        Fault::Lost,
        &[
            (many_in_flight, &[COMPLETES, "timed out"]),
            (copies_of_every_size_arrive, &[COMPLETES, "timed out"]),
            (shared_queues_serve_threads, &[COMPLETES, "timed out"]),
            (dropped_transfers_finish, &[COMPLETES, "none of 1 copies was reported within 10s"]),
            (futures_resolve_anywhere, &[COMPLETES, "1 copies are not done after 10s of polling"]),
            (closing_accounts_for_everything, &[COUNTED, "the missing operations were never reported"]),
            (shared_queues_close_cleanly, &[COUNTED, "the missing operations were never reported"]),
        ],
    );
}

#[test]
fn a_copy_that_fails_is_said_to_have_failed() {
    let fault = "copy on reference: device fault";
    expect_complaints(
        Fault::Failed,
        &[
            (many_in_flight, &[COMPLETES, fault]),
            (futures_resolve_anywhere, &[COMPLETES, fault]),
            (dropped_transfers_finish, &[COUNTED, "1 failed"]),
            (closing_accounts_for_everything, &[COUNTED, "1 failed"]),
        ],
    );
}

#[test]
fn a_copy_that_is_reported_twice_is_a_breach_of_contract() {
    expect_complaints(
        Fault::Twice,
        &[
            (descriptors_are_reported_once, &["token 3 is reported twice"]),
            (
                futures_resolve_anywhere,
                &["breaks the contract of `RawQueue`, to report every descriptor once"],
            ),
            (
                copies_of_every_size_arrive,
                &["breaks the contract of `RawQueue`, to report every descriptor once"],
            ),
        ],
    );
}

#[test]
fn a_copy_that_did_not_arrive_is_told_by_its_first_wrong_byte() {
    let words: &[&str] =
        &["was reported as done, so all its bytes must be in place", "1 are wrong, the first at 0"];
    expect_complaints(
        Fault::Wrong,
        &[
            (many_in_flight, words),
            (futures_resolve_anywhere, words),
            (closing_accounts_for_everything, words),
            (random_programs_keep_all_bytes, words),
        ],
    );
}
