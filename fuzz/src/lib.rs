//! What the fuzz targets do with an input. Here and not in the targets, so that tests can replay the corpus.

mod contexts;
mod door;
mod input;
mod programs;
mod spdk;

use std::time::Duration;

use dma::sim::model::{FaultPlan, Time};
use dma::sim::remote::{Import, RemoteError};
use dma::sim::{CpuOptions, SimOptions};
use dma::{DeviceName, EngineName, ErrorKind, ExportDescriptor};

#[expect(dead_code, reason = "the example's own, of which a fuzzer uses a part")]
#[path = "../../examples/dma_copy/protocol.rs"]
mod dma_copy_protocol;

pub use contexts::doca_contexts;
pub use door::doca_calls;
pub use programs::doca_programs;
pub use spdk::spdk_calls;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. One with the same name is in `fuzz_targets/`, its corpus in `corpus/`.
pub const TARGETS: &[Target] = &[
    ("doca_calls", doca_calls),
    ("doca_contexts", doca_contexts),
    ("doca_programs", doca_programs),
    ("dma_copy_message", dma_copy_message),
    ("engine_name", engine_name),
    ("export_descriptor", export_descriptor),
    ("remote_import", remote_import),
    ("spdk_calls", spdk_calls),
];

/// What a user types to choose an engine is understood, or refused with the words that were wrong. Nothing is opened.
///
/// # Panics
///
/// If what was understood prints as something else.
pub fn engine_name(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match text.parse() {
        Ok(EngineName::Cpu(pairs)) => {
            let mut options = CpuOptions::default();
            for (key, value) in pairs {
                if let Err(error) = options.set(&key, &value) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        Ok(EngineName::Sim(pairs)) => {
            let mut options = SimOptions::default();
            for (key, value) in pairs {
                if let Err(error) = options.set(&key, &value) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        Ok(
            EngineName::Doca(DeviceName { address: Some(address), .. })
            | EngineName::Ioat(DeviceName { address: Some(address), .. }),
        ) => {
            assert_eq!(address.to_string().parse::<dma::PciAddress>().expect("what was printed"), address);
        }
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(!error.hint().is_empty(), "no word on what would have been right: {error}");
        }
    }
    // Parts of names, on their own.
    if let Ok(plan) = text.parse::<FaultPlan>() {
        plan.validate().expect("a plan from text is right already");
        assert_eq!(plan.to_string().parse::<FaultPlan>().expect("what was printed"), plan);
    }
    if let Ok(time) = text.parse::<Time>() {
        assert_eq!(time.to_string().parse::<Time>().expect("what was printed"), time);
    }
}

/// Bytes are no export descriptor, or one that encodes to the same bytes.
///
/// Each input is tried as it is, and with a valid checksum behind it: no fuzzer guesses one, and the checks of the fields lie behind it.
///
/// # Panics
///
/// If the parser breaks its promises.
pub fn export_descriptor(input: &[u8]) {
    parse(input);
    parse(&[input, &crc32fast::hash(input).to_le_bytes()].concat());
}

fn parse(bytes: &[u8]) {
    match ExportDescriptor::from_bytes(bytes) {
        Ok(descriptor) => {
            assert_eq!(descriptor.to_bytes(), bytes, "something was dropped on the way");
            assert!(!descriptor.rights().is_empty(), "a grant of nothing");
            assert!(!descriptor.is_empty(), "a grant of no byte");
            assert!(
                descriptor.address().checked_add(descriptor.len()).is_some(),
                "the end cannot be counted"
            );
            let again = ExportDescriptor::new(
                descriptor.backend(),
                descriptor.rights(),
                descriptor.address(),
                descriptor.len(),
                descriptor.native(),
            );
            assert_eq!(again.expect("what was parsed can be made"), descriptor);
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::VersionMismatch), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Nobody imports shared memory who was not given its descriptor.
///
/// # Panics
///
/// If bytes that no exporter made are accepted.
pub fn remote_import(input: &[u8]) {
    match Import::open_within(input, Duration::ZERO) {
        Ok(import) => panic!("imported {import:?}, which nobody exported"),
        Err(RemoteError::MalformedBlob { what }) => assert!(!what.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What comes over a channel of the example `dma_copy` is a message that encodes to the same bytes, or refused.
///
/// # Panics
///
/// If the decoder breaks its promises.
pub fn dma_copy_message(input: &[u8]) {
    use dma_copy_protocol::{MAX_DESCRIPTOR, MAX_MESSAGE, MAX_TEXT, Message};
    match Message::decode(input) {
        Ok(message) => {
            match &message {
                Message::Export(export) => assert!(export.descriptor.len() <= MAX_DESCRIPTOR),
                Message::Abort { text, .. } => assert!(text.len() <= MAX_TEXT),
                _ => {}
            }
            assert!(input.len() <= MAX_MESSAGE, "a message longer than any");
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(bytes, input, "something was dropped on the way");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
