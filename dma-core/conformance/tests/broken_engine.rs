//! Tests that the cases detect engines that break the contract, and that the message names the broken rule.

mod broken;

use std::panic::{AssertUnwindSafe, catch_unwind};

use broken::{Broken, Fault};
use dma_conformance::{
    closing_accounts_for_everything, copies_of_every_size_arrive, descriptors_are_reported_once,
    dropped_transfers_finish, futures_resolve_anywhere, many_in_flight, random_programs_keep_all_bytes,
    shared_queues_close_cleanly, shared_queues_serve_threads,
};
use dma_core::DmaEngine;

/// The requirement on an operation that was accepted.
const COMPLETES: &str = "a device without faults reports every accepted descriptor as done, once";

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
