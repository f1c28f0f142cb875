//! What the fuzz targets do with an input. Here and not in the targets, so that tests can replay the corpus.

use std::time::Duration;

use dma_core::{ErrorKind, ExportDescriptor};
use dma_sim::remote::{Import, RemoteError};

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. One with the same name is in `fuzz_targets/`, its corpus in `corpus/`.
pub const TARGETS: &[Target] = &[("export_descriptor", export_descriptor), ("remote_import", remote_import)];

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
