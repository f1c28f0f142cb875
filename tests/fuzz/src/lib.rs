//! The functions of the fuzz targets. They are in this library, so that tests can also call them to
//! replay the corpus.

mod bench;
#[cfg(not(feature = "work-queues"))]
mod calls;
#[cfg(not(feature = "work-queues"))]
mod contexts;
#[cfg(target_arch = "x86_64")]
mod dsa;
mod handshake;
mod input;
#[cfg(not(feature = "work-queues"))]
mod programs;
mod rdma;
mod spdk;
#[cfg(feature = "work-queues")]
mod work_queues;

use std::time::Duration;

use dma::cpu::CpuOptions;
use dma::doca::DocaOptions;
use dma::dsa::DsaOptions;
use dma::ioat::IoatOptions;
use dma::ipc::{Import, RemoteError};
use dma::layers::record::{Trace, TraceEvent};
use dma::rdma::RdmaOptions;
use dma::sim::SimOptions;
use dma::sim::model::{FaultPlan, Time};
use dma::{EngineName, ErrorKind, ExportDescriptor};

#[expect(dead_code, reason = "the fuzzer uses only a part of this file of dma-copy")]
#[path = "../../../apps/dma-copy/src/protocol/mod.rs"]
mod dma_copy_protocol;

pub use bench::dma_bench_requests;
#[cfg(not(feature = "work-queues"))]
pub use calls::doca_calls;
#[cfg(not(feature = "work-queues"))]
pub use contexts::doca_contexts;
#[cfg(target_arch = "x86_64")]
pub use dsa::dsa_programs;
pub use handshake::handshake;
#[cfg(not(feature = "work-queues"))]
pub use programs::doca_programs;
pub use rdma::rdma_exchange;
pub use spdk::spdk_calls;
#[cfg(feature = "work-queues")]
pub use work_queues::doca_work_queues;

/// The name and the function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// The target for a stand-in that is built for DOCA 1.5 or 2.2. Such a stand-in lacks the calls of the
/// other targets.
#[cfg(feature = "work-queues")]
pub const TARGETS: &[Target] = &[("doca_work_queues", doca_work_queues)];

/// All targets. Each has a file in `fuzz_targets/` and a folder in `corpus/` of the same name.
#[cfg(not(feature = "work-queues"))]
pub const TARGETS: &[Target] = &[
    ("doca_calls", doca_calls),
    ("doca_contexts", doca_contexts),
    ("doca_programs", doca_programs),
    ("dma_bench_requests", dma_bench_requests),
    ("dma_copy_message", dma_copy_message),
    ("dsa_programs", dsa_programs),
    ("engine_name", engine_name),
    ("export_descriptor", export_descriptor),
    ("handshake", handshake),
    ("rdma_exchange", rdma_exchange),
    ("remote_import", remote_import),
    ("spdk_calls", spdk_calls),
    ("trace", trace),
];

/// Does nothing, because the stand-in for DSA exists only on x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub fn dsa_programs(_: &[u8]) {}

/// Parses an engine's name, and also each of its parts separately. Opens no engine.
///
/// # Panics
///
/// If a parsed value prints as a different value, or an error has no hint.
pub fn engine_name(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let refused = |error: dma::Error| {
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfRange), "{error}");
        assert!(!error.hint().is_empty(), "the error does not say which values are valid: {error}");
    };
    match text.parse::<EngineName>() {
        Ok(name) => {
            assert_eq!(name.to_string(), text);
            let read = match name.backend() {
                "cpu" => CpuOptions::from_name(&name).map(drop),
                "sim" => SimOptions::from_name(&name).map(drop),
                "doca" => DocaOptions::from_name(&name).map(drop),
                "dsa" => DsaOptions::from_name(&name).map(drop),
                "ioat" => IoatOptions::from_name(&name).map(drop),
                "rdma" => RdmaOptions::from_name(&name).map(drop),
                _ => Ok(()),
            };
            read.unwrap_or_else(refused);
        }
        Err(error) => refused(error),
    }
    if let Ok(address) = text.parse::<dma::PciAddress>() {
        assert_eq!(address.to_string().parse::<dma::PciAddress>().expect("what was printed"), address);
    }
    if let Ok(name) = dma::parse_untrusted(text) {
        // Unknown options are refused only when the engine is opened.
        let with_effects: &[&str] = match name.backend() {
            "doca" => &["lib", "export"],
            "dsa" => &["dev", "sysfs"],
            "ioat" => &["lib"],
            "rdma" => &["lib", "listen"],
            _ => &[],
        };
        for key in with_effects {
            assert!(
                name.option(key).is_none(),
                "an untrusted name was accepted with {key}, which has effects beyond the device"
            );
        }
    }
    // Parse the parts of names separately.
    if let Ok(plan) = text.parse::<FaultPlan>() {
        plan.validate().expect("a parsed plan is valid");
        assert_eq!(plan.to_string().parse::<FaultPlan>().expect("what was printed"), plan);
    }
    if let Ok(time) = text.parse::<Time>() {
        assert_eq!(time.to_string().parse::<Time>().expect("what was printed"), time);
    }
}

/// Parses an export descriptor, which must encode to the same bytes.
///
/// Each input is tried unchanged and with a valid checksum appended, because a fuzzer cannot guess checksums.
///
/// # Panics
///
/// If the parser violates its documentation.
pub fn export_descriptor(input: &[u8]) {
    parse(input);
    parse(&[input, &crc32fast::hash(input).to_le_bytes()].concat());
}

fn parse(bytes: &[u8]) {
    match ExportDescriptor::from_bytes(bytes) {
        Ok(descriptor) => {
            assert_eq!(descriptor.to_bytes(), bytes, "decoding and encoding changed the bytes");
            assert!(!descriptor.rights().is_empty(), "a grant of nothing");
            let again = ExportDescriptor::new(
                descriptor.backend(),
                descriptor.rights(),
                descriptor.len(),
                descriptor.native(),
            );
            assert_eq!(again.expect("the parsed values make a valid descriptor"), descriptor);
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::VersionMismatch), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Imports shared memory with a descriptor that no exporter made. The import must be refused.
///
/// # Panics
///
/// If the import is accepted.
pub fn remote_import(input: &[u8]) {
    match Import::open_within(input, Duration::ZERO) {
        Ok(import) => panic!("imported {import:?}, which was never exported"),
        Err(RemoteError::MalformedBlob { what }) => assert!(!what.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses a trace of operations, and iterates over its events.
///
/// Each input is tried unchanged, and as the events of a queue within a trace with valid regions and
/// checksums.
///
/// # Panics
///
/// If an event is not within the regions, or lacks a segment that it needs.
pub fn trace(input: &[u8]) {
    read_trace(input);
    let block = |queue: u32, bytes: &[u8]| {
        let head = [queue, bytes.len() as u32, crc32fast::hash(bytes)];
        [&head.map(u32::to_le_bytes).concat(), bytes].concat()
    };
    // The trace has a queue of depth 100, and two regions of 127 and 1 bytes. From version 4 on, the second
    // region is in device memory.
    for (version, regions) in [(2, &[127, 1][..]), (4, &[254, 1, 3])] {
        for operations in 0..4 {
            let queue = [1, 100, 0, operations, operations * 8, 0, 0, 0];
            let summary = [&[0, 0, 0, 0, 2][..], regions, &queue].concat();
            let head = [&b"DMATRACE"[..], &[version, 0]].concat();
            read_trace(&[&head[..], &block(0, input), &block(u32::MAX, &summary)].concat());
        }
    }
}

fn read_trace(bytes: &[u8]) {
    let trace = match Trace::parse(bytes) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let regions = &trace.recorded().regions;
    for (queue, of) in trace.queues().iter().enumerate() {
        let (mut events, mut operations) = (trace.events(queue), 0);
        while let Some(event) = events.next() {
            if let TraceEvent::Operation { .. } = event {
                operations += 1;
                for span in events.src().iter().chain(events.dst()) {
                    assert!((span.offset + span.len) as u64 <= regions[span.region], "{span:?}");
                }
            }
        }
        assert_eq!(operations, of.operations);
    }
}

/// Decodes a message of `dma-copy`, which must encode to the same bytes.
///
/// # Panics
///
/// If the decoder violates its documentation.
pub fn dma_copy_message(input: &[u8]) {
    use dma_copy_protocol::{MAX_DATA, MAX_DESCRIPTOR, MAX_MESSAGE, MAX_TEXT, Message};
    match Message::decode(input) {
        Ok(message) => {
            match &message {
                Message::Export(export) => assert!(export.descriptor.len() <= MAX_DESCRIPTOR),
                Message::Abort { text, .. } => assert!(text.len() <= MAX_TEXT),
                Message::Data(data) => assert!((1..=MAX_DATA).contains(&data.0.len())),
                _ => {}
            }
            assert!(input.len() <= MAX_MESSAGE, "a message longer than the maximum");
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(bytes, input, "decoding and encoding changed the bytes");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
