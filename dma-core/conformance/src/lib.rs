//! The conformance suite: the tests that every engine must pass, as plain functions that any backend can
//! call.
//!
//! On an engine with [device memory](dma_core::Place::Device), every case runs three times: on host memory,
//! on device memory, and with operands in both. [`DeviceBacked`] copies the bytes between the cases' buffers
//! and device memory.
//!
//! Each case takes an engine and panics with an explanation if it breaks the contract. Cases depend on the
//! engine's [`Capabilities`](dma_core::Capabilities) and [`Limits`](dma_core::Limits), never on its name. If
//! a capability is missing, its case checks that the engine fails with `Unsupported`. Any release may add
//! cases.
//!
//! ```
//! # fn my_engine() -> impl dma_core::DmaEngine { dma_conformance::doc_engine() }
//! dma_conformance::run_all(&my_engine());
//! ```
//!
//! [`conformance_tests!`](crate::conformance_tests) makes one test of each case.

#![expect(clippy::missing_panics_doc, reason = "every case panics if the engine breaks the contract")]

mod answers;
mod basics;
mod device_backed;
mod expect;
mod lifetimes;
mod places;
mod pools;
mod programs;
mod queues;
mod raw;
mod rejects;
mod sharing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use answers::*;
pub use basics::*;
pub use device_backed::DeviceBacked;
pub use dma_core::reference::{ReferenceEngine, ReferenceOptions, doc_engine};
pub use lifetimes::*;
pub use places::*;
pub use pools::*;
pub use programs::*;
pub use queues::*;
pub use raw::*;
pub use rejects::*;
pub use sharing::*;

/// The trait that the tests of [`conformance_tests!`] name.
#[doc(hidden)]
pub use dma_core::DmaEngine;
use dma_core::{BufferMut, DmaEngineExt, Queue, QueueOptions};
use expect::{ACCEPTS, COMPLETES, expect_all_completed, expect_arrived, expect_kind};

/// A case: its name and its function.
pub type Case = (&'static str, fn(&dyn DmaEngine));

/// Every case.
pub const CASES: &[Case] = crate::conformance_tests!(@every @table);

/// Makes one `#[test]` of every case, in a module with the given name. Each test runs on the engine that the
/// expression opens. Without a name, the module is called `conformance`.
///
/// ```
/// dma_conformance::conformance_tests!(my_engine, dma_conformance::doc_engine());
/// dma_conformance::conformance_tests!(dma_conformance::doc_engine());
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $engine:expr) => {
        mod $name {
            #![allow(unused_imports, reason = "not every expression needs the imports")]
            use super::*;
            fn run(case: fn(&dyn $crate::DmaEngine)) {
                $crate::in_every_place(&$engine, case);
            }
            $crate::conformance_tests!(@every @tests);
        }
    };
    (@every $($then:tt)+) => {
        $crate::conformance_tests! { $($then)+;
            info_is_consistent
            allocation_is_zeroed_and_aligned
            copies_of_every_size_arrive
            copies_leave_their_neighbours_alone
            long_copies_are_split
            fills_keep_their_pattern
            lists_are_gathered_and_scattered
            rows_are_gathered_and_scattered
            copies_go_to_both_destinations
            the_first_difference_is_found
            crcs_are_of_all_bytes
            answers_keep_fences
            answers_are_in_flight_together
            imported_memory_is_answered_for
            empty_operations_complete
            memory_of_no_bytes_is_legal
            many_in_flight
            full_queues_hand_back
            short_operations_take_no_place
            batches_complete_as_a_whole
            fences_keep_order
            waits_have_deadlines
            futures_resolve_anywhere
            drivers_wake_from_a_file_descriptor
            tokens_are_reported_once
            lengths_must_match
            overlap_is_rejected
            foreign_memory_is_rejected
            missing_rights_are_rejected
            bad_requests_are_rejected
            dropped_transfers_finish
            forgotten_transfers_are_harmless
            closing_accounts_for_everything
            dropping_a_queue_completes_its_transfers
            engines_may_go_before_their_memory
            deregistration_refuses_while_in_use
            registered_memory_comes_back
            memory_of_others_becomes_a_window
            read_only_memory_is_read_in_place
            frozen_buffers_become_bytes
            idle_memory_is_used_again
            pools_get_their_buffers_back
            pools_of_device_memory_get_their_windows_back
            plain_bytes_are_copied
            memory_is_taken_from_a_node
            places_are_what_the_engine_says
            device_memory_is_zeroed_and_aligned
            bytes_pass_between_all_places
            answers_are_given_in_all_places
            device_memory_of_others_is_registered
            random_programs_keep_all_bytes
            shared_queues_serve_threads
            shared_queues_close_cleanly
            exports_are_imported_and_revoked
            exports_grant_only_what_they_say
            imports_of_own_memory_overlap_it
            regions_have_names_of_their_own
            regions_are_what_was_requested
            undeclared_calls_are_refused
            native_codes_are_explained
            events_announce_completions
            descriptors_are_reported_once
            stopped_queues_report_everything
        }
    };
    (@table; $($case:ident)+) => {
        &[$((stringify!($case), $case)),+]
    };
    (@tests; $($case:ident)+) => {$(
        #[test]
        fn $case() {
            run($crate::$case);
        }
    )+};
    ($engine:expr) => {
        $crate::conformance_tests!(conformance, $engine);
    };
}

/// Runs a case on `engine`. If the engine has device memory, runs the case again on device memory, and again
/// on memory in both places.
///
/// # Panics
///
/// If the case fails.
pub fn in_every_place(engine: &dyn DmaEngine, case: fn(&dyn DmaEngine)) {
    case(engine);
    for shadow_every in [1, 2] {
        if let Ok(on_device) = DeviceBacked::new(engine, shadow_every) {
            case(&on_device);
        }
    }
}

/// Runs every case on `engine`, in every place.
///
/// # Panics
///
/// If a case fails, with its name and the reason.
pub fn run_all(engine: &dyn DmaEngine) {
    for (name, case) in CASES {
        let run = || in_every_place(engine, *case);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        if let Err(payload) = result {
            let what = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("it panicked");
            panic!("conformance case {name} failed on {}: {what}", engine.info().backend);
        }
    }
}

/// Time limit for a completion in a case in milliseconds, and stall timeout of its queues.
static PATIENCE: AtomicU64 = AtomicU64::new(60_000);

/// Sets the time limit of all cases of this process. For tests of engines that report too little.
#[doc(hidden)]
pub fn set_patience(limit: Duration) {
    PATIENCE.store(limit.as_millis() as u64, Ordering::Relaxed);
}

fn patience() -> Duration {
    Duration::from_millis(PATIENCE.load(Ordering::Relaxed))
}

fn queue(engine: &dyn DmaEngine) -> Queue {
    queue_of(engine, 0)
}

fn queue_of(engine: &dyn DmaEngine, depth: usize) -> Queue {
    let depth = depth.min(engine.info().limits.max_queue_depth);
    engine.open_queue(&queue_options(depth)).expect("an engine opens a queue")
}

fn queue_options(depth: usize) -> QueueOptions {
    QueueOptions::new().with_depth(depth).with_stall_timeout(patience()).with_drop_timeout(patience())
}

fn allocate(engine: &dyn DmaEngine, len: usize) -> BufferMut {
    engine.allocate(len).expect("an engine allocates memory")
}

/// Allocates memory that holds [`sample`] bytes.
fn filled(engine: &dyn DmaEngine, seed: u64, len: usize) -> BufferMut {
    let mut buffer = allocate(engine, len);
    buffer.copy_from_slice(&sample(seed, len));
    buffer
}

/// Returns the length of the longest operation that the engine's [inline executor](dma_core::InlineExecutor)
/// executes; 0 without an executor.
fn inline_limit(engine: &dyn DmaEngine) -> usize {
    let raw = engine.open_queue_raw(&queue_options(0)).expect("an engine opens a queue");
    raw.inline_executor().map_or(0, |executor| executor.max_len())
}

/// Returns a length of at least `least` that is too long for the inline executor, so that operations of this
/// length are in flight after their submission.
fn queued_len(engine: &dyn DmaEngine, least: usize) -> usize {
    least.max(inline_limit(engine) + 1)
}

/// Returns bytes that depend on their position and on the seed.
fn sample(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}
