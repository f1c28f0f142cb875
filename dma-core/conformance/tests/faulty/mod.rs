//! The faults of engines that the suite finds, each with the case that finds it.

pub(crate) mod engine;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dma_conformance::{ReferenceEngine, ReferenceOptions, doc_engine};
use dma_sim::model::Time;
use dma_sim::sim::{Clock, SimEngine, SimOptions};

use engine::{Fault, Faulty};

/// Opens an engine with a fault.
type Open = fn(Fault) -> Faulty;

pub(crate) fn plain(fault: Fault) -> Faulty {
    Faulty::new(doc_engine(), fault)
}

pub(crate) fn native(fault: Fault) -> Faulty {
    let mut options = ReferenceOptions::default();
    options.native = true;
    Faulty::new(ReferenceEngine::new(options), fault)
}

pub(crate) fn inline(fault: Fault) -> Faulty {
    let mut options = ReferenceOptions::default();
    options.inline_limit = 3000;
    Faulty::new(ReferenceEngine::new(options), fault)
}

pub(crate) fn sim(fault: Fault) -> Faulty {
    Faulty::new(SimEngine::open(&SimOptions::new().with_seed(1)).expect("it opens"), fault)
}

pub(crate) fn with_device_memory(fault: Fault) -> Faulty {
    let options = SimOptions::new().with_seed(2).with_device_memory(256 << 20);
    Faulty::new(SimEngine::open(&options).expect("it opens"), fault)
}

/// A device that completes copies by itself, after 0.2 s.
fn real_time(fault: Fault) -> Faulty {
    let mut options = SimOptions::new().with_clock(Clock::Real);
    options.latency = Some(Time::from_us(200_000));
    Faulty::new(SimEngine::open(&options).expect("it opens"), fault)
}

const ARRIVED: &str = "was reported as done, so all its bytes must be in place";
const COMPLETES: &str = "a device without faults reports every accepted descriptor as done, once";
const COUNTED: &str = "must be completed, each counted once";
const REPORTED_AGAIN: &str = "breaks the contract of `RawQueue`, to report every descriptor once";
const FAILED: &str = "copy on reference: device fault";
const NEVER_REPORTED: &str = "the missing operations were never reported";

/// A fault, the engine that has it, the case that finds it, and a part of the message.
type Row = (Fault, Open, &'static str, &'static str);

const FAULTS: &[Row] = &[
    (Fault::DeviceWithoutName, plain, "info_is_consistent", "an engine has a name and a device"),
    (Fault::TinyTransfers, plain, "info_is_consistent", "`max_transfer` is at least 64 bytes"),
    (Fault::NoSegments, plain, "info_is_consistent", "`max_segments` is 0"),
    (Fault::NoDefaultDepth, plain, "info_is_consistent", "`default_queue_depth` must be from 1"),
    (Fault::OddAlignment, plain, "info_is_consistent", "alignments must be powers of two"),
    (Fault::NotZeroed, plain, "allocation_is_zeroed_and_aligned", "allocated memory is zeroed"),
    (Fault::Misaligned, plain, "allocation_is_zeroed_and_aligned", "aligned to 64"),
    (Fault::MoreRightsThanRequested, plain, "regions_are_what_was_requested", "an allocated region with"),
    (Fault::OtherEnginesId, plain, "regions_have_names_of_their_own", "has the id of its engine"),
    (Fault::OneKeyForAll, plain, "regions_have_names_of_their_own", "two regions have the same key"),
    (Fault::ZeroBytesAllocated, plain, "bad_requests_are_rejected", "the memory request is invalid"),
    (Fault::NoRightsAllocated, plain, "bad_requests_are_rejected", "the memory request is invalid"),
    (Fault::DevicePlaceIgnored, plain, "places_are_what_the_engine_says", "has no device memory"),
    (Fault::ExportableUndeclared, plain, "undeclared_calls_are_refused", "memory to export"),
    (Fault::AllocatesUndeclared, plain, "undeclared_calls_are_refused", "without `ALLOCATE`"),
    (Fault::ExportsUndeclared, plain, "undeclared_calls_are_refused", "without `EXPORT`"),
    (Fault::ImportsUndeclared, plain, "undeclared_calls_are_refused", "without `IMPORT`"),
    (Fault::RegistersUndeclared, plain, "undeclared_calls_are_refused", "without `REGISTER`"),
    (Fault::RegistersNothing, plain, "registered_memory_comes_back", "a vector can be registered"),
    (Fault::RegistersReadOnlyForWriting, plain, "regions_are_what_was_requested", "a registered region with"),
    (Fault::RegistersACopy, plain, "regions_are_what_was_requested", "begins where its memory begins"),
    (Fault::RegistersACopy, plain, "memory_of_others_becomes_a_window", "is the address of the memory"),
    (Fault::RegistersOneByteLess, plain, "regions_are_what_was_requested", "has the length of its memory"),
    (
        Fault::RegistersAnyDeviceAddress,
        plain,
        "device_memory_of_others_is_registered",
        "host memory is not device memory",
    ),
    (Fault::IdleMemoryChanges, plain, "idle_memory_is_used_again", "when its operation has ended"),
    (Fault::ExportsWholeRegion, sim, "exports_grant_only_what_they_say", "an export can be imported"),
    (Fault::ExportsForWriting, sim, "exports_grant_only_what_they_say", "the range and the rights"),
    (Fault::ExportsBeyondRequest, sim, "exports_grant_only_what_they_say", "not exportable for writing"),
    (Fault::RevokesNothing, sim, "exports_are_imported_and_revoked", "the export was revoked"),
    (Fault::ImportsForTheCpu, sim, "exports_are_imported_and_revoked", ""),
    (Fault::ImportsOneByteLess, sim, "exports_are_imported_and_revoked", "has the length of the export"),
    (Fault::ImportsGarbage, sim, "exports_grant_only_what_they_say", "not a native descriptor"),
    (Fault::ImportsOfOthers, sim, "exports_grant_only_what_they_say", "another backend's"),
    (Fault::ImportsNothing, sim, "exports_are_imported_and_revoked", "an export can be imported"),
    (Fault::QueueOfOtherEngine, plain, "regions_have_names_of_their_own", "a queue has the id of its engine"),
    (Fault::ShallowQueue, plain, "info_is_consistent", "has the default depth"),
    (Fault::DeeperThanTheLimit, plain, "undeclared_calls_are_refused", "beyond `max_queue_depth`"),
    (Fault::AcceptsBeyondDepth, plain, "descriptors_are_reported_once", "a queue of 4 accepts 5"),
    (Fault::AcceptsLessThanDepth, plain, "descriptors_are_reported_once", "accepts only 15 descriptors"),
    (Fault::FullIsAnError, plain, "descriptors_are_reported_once", "a full queue is not an error"),
    (Fault::ClaimsOrder, plain, "descriptors_are_reported_once", "claims `IN_ORDER`"),
    (Fault::FencesIgnored, native, "fences_keep_order", "a copy behind a fence saw old bytes"),
    (Fault::FencesIgnored, native, "answers_keep_fences", ""),
    (Fault::CodeDropped, plain, "native_codes_are_explained", "returns the code that it was given"),
    (Fault::EventStaysReadable, real_time, "events_announce_completions", "but nothing is in flight"),
    (Fault::EventsComeAndGo, sim, "drivers_wake_from_a_file_descriptor", "a queue with events has a driver"),
    (Fault::ThirdFails, plain, "many_in_flight", FAILED),
    (Fault::ThirdFails, plain, "futures_resolve_anywhere", FAILED),
    (Fault::ThirdFails, plain, "dropped_transfers_finish", COUNTED),
    (Fault::ThirdFails, plain, "closing_accounts_for_everything", COUNTED),
    (Fault::ThirdIsReportedTwice, plain, "descriptors_are_reported_once", "token 3 is reported twice"),
    (Fault::ThirdIsReportedTwice, plain, "futures_resolve_anywhere", REPORTED_AGAIN),
    (Fault::ThirdIsReportedTwice, plain, "copies_of_every_size_arrive", REPORTED_AGAIN),
    (Fault::TokensAreCutOff, plain, "descriptors_are_reported_once", "is reported, but is not in flight"),
    (Fault::ReportsWithoutDescriptor, plain, "descriptors_are_reported_once", "but nothing is in flight"),
    (Fault::ReportsBeyondTheArray, plain, "descriptors_are_reported_once", "but the array has room for 3"),
    (Fault::NothingIsCopied, plain, "copies_of_every_size_arrive", ARRIVED),
    (Fault::ThirdIsWrong, plain, "many_in_flight", "1 are wrong, the first at 0"),
    (Fault::ThirdIsWrong, plain, "futures_resolve_anywhere", ARRIVED),
    (Fault::ThirdIsWrong, plain, "closing_accounts_for_everything", ARRIVED),
    (Fault::ThirdIsWrong, plain, "random_programs_keep_all_bytes", ARRIVED),
    (Fault::LongCopiesAreShort, plain, "copies_of_every_size_arrive", ARRIVED),
    (Fault::ByteAfterIsWritten, plain, "copies_leave_their_neighbours_alone", "does not change the bytes"),
    (Fault::LastPartOfListIsWrong, plain, "lists_are_gathered_and_scattered", "to [40, 60]"),
    (Fault::PatternIsReversed, native, "fills_keep_their_pattern", "bytes of its pattern"),
    (Fault::PatternRestartsInLists, native, "fills_keep_their_pattern", "from one segment to the next"),
    (
        Fault::SecondDestinationIsWrong,
        native,
        "copies_go_to_both_destinations",
        "both destinations of a copy",
    ),
    (Fault::AllCompareEqual, native, "the_first_difference_is_found", "the position of the first difference"),
    (Fault::DifferenceIsOff, native, "the_first_difference_is_found", "the position of the first difference"),
    (Fault::CrcWithoutSeed, native, "crcs_are_of_all_bytes", ""),
    (Fault::CrcOfCopyIsWrong, native, "crcs_are_of_all_bytes", ""),
    (Fault::CopyWithCrcIsWrong, native, "crcs_are_of_all_bytes", ""),
    (Fault::StoppedAccepts, plain, "stopped_queues_report_everything", "a stopped queue accepts"),
    (Fault::StoppedRefusesWrongly, plain, "stopped_queues_report_everything", "instead of `Closed`"),
    (Fault::StoppedTwiceStarts, plain, "stopped_queues_report_everything", "a stopped queue accepts"),
    (Fault::StopFails, plain, "stopped_queues_report_everything", "`stop` ends token"),
    (Fault::StopIsDone, plain, "stopped_queues_report_everything", ARRIVED),
    (Fault::StopWritesLater, plain, "stopped_queues_report_everything", "after it has reported the copy"),
    (Fault::ExecutorCopiesLess, inline, "short_operations_take_no_place", ARRIVED),
    (Fault::ExecutorChangesResults, inline, "crcs_are_of_all_bytes", ""),
    // These cases wait.
    (Fault::ThirdIsLost, plain, "many_in_flight", COMPLETES),
    (Fault::ThirdIsLost, plain, "copies_of_every_size_arrive", COMPLETES),
    (Fault::ThirdIsLost, plain, "shared_queues_serve_threads", COMPLETES),
    (Fault::ThirdIsLost, plain, "dropped_transfers_finish", "none of 1 copies was reported in time"),
    (Fault::ThirdIsLost, plain, "futures_resolve_anywhere", COMPLETES),
    (Fault::ThirdIsLost, plain, "closing_accounts_for_everything", NEVER_REPORTED),
    (Fault::ThirdIsLost, plain, "shared_queues_close_cleanly", NEVER_REPORTED),
    (Fault::StopReportsNothing, plain, "stopped_queues_report_everything", "in time after `stop`"),
    (Fault::ArmDoesNothing, real_time, "events_announce_completions", "armed event readable"),
];

/// Returns descriptions of the faults that their cases do not find. With `waits`, it runs only the cases that
/// wait for a report that the engine never makes, and otherwise the others.
pub(crate) fn missed(waits: bool) -> Vec<String> {
    let waiting = [Fault::ThirdIsLost, Fault::StopReportsNothing, Fault::ArmDoesNothing];
    let rows: Vec<_> = FAULTS.iter().filter(|row| waiting.contains(&row.0) == waits).collect();
    let threads =
        if waits { rows.len() } else { std::thread::available_parallelism().map_or(1, usize::from) };
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((fault, open, name, words)) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let said = complaint(*open, *fault, name);
            if !said.as_ref().is_some_and(|said| said.contains(words)) {
                let text = format!("{fault:?}: {name} says {said:?}, without {words:?}");
                missed.lock().expect("no thread panics while it holds the lock").push(text);
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    missed.into_inner().expect("no thread panicked")
}

/// Returns the message of the case's panic.
fn complaint(open: Open, fault: Fault, name: &str) -> Option<String> {
    let case = dma_conformance::CASES.iter().find(|case| case.0 == name);
    let case = case.unwrap_or_else(|| panic!("the suite has no case {name}")).1;
    let payload = catch_unwind(AssertUnwindSafe(|| case(&open(fault)))).err()?;
    let text = payload.downcast::<String>().map(|text| *text);
    Some(text.unwrap_or_else(|payload| payload.downcast_ref::<&str>().unwrap_or(&"").to_string()))
}
