//! Fuzzes the requests that `dma-bench serve` reads from a peer.

#[path = "../../../dma-bench/src/peer/exporter.rs"]
mod exporter;
#[path = "../../../dma-bench/src/peer/request.rs"]
mod request;

use std::io;
use std::sync::LazyLock;

use dma::cpu::{CpuEngine, CpuOptions};
use dma::{ErrorKind, ExportDescriptor};

use exporter::{MemoryLimit, export_memory};
use request::{ERROR_KINDS, MAX_MESSAGE, MAX_PIECE, Request, VERSION};

/// Maximum number of bytes that may be exported.
const MEMORY: u64 = 200_000;

static ENGINE: LazyLock<CpuEngine> =
    LazyLock::new(|| CpuEngine::open(&CpuOptions::new()).expect("the CPU always opens"));

/// Decodes a request, which must encode to the same bytes, and serves the input as the stream of an
/// authenticated peer. The replies must equal those of a model, which opens memory within the
/// limit, and reads and writes within its bounds. All memory must be freed at the end.
///
/// # Panics
///
/// If a reply differs from the model's.
pub fn dma_bench_requests(input: &[u8]) {
    if let Some(request) = Request::decode(input) {
        assert_eq!(request.encode(), input, "decoding and encoding changed the bytes");
    }
    let (limit, mut answers) = (MemoryLimit::new(MEMORY), Vec::new());
    let ended = export_memory(&*ENGINE, &limit, &mut answers, input, None, None, || {});
    let (mut input, mut answers, mut memory) = (input, &answers[..], None);
    loop {
        match frame(&mut input) {
            Frame::Message(message) => {
                let Frame::Message(answer) = frame(&mut answers) else { panic!("no answer to {message:?}") };
                check(message, answer, &mut memory);
            }
            Frame::None => break ended.expect("the end of the stream is not an error"),
            Frame::InvalidLength => {
                break assert_eq!(ended.expect_err("no message").kind(), io::ErrorKind::InvalidData);
            }
        }
    }
    assert!(answers.is_empty(), "an answer without a request");
    let all = Request::Open { version: VERSION, len: MEMORY }.encode();
    let (all, mut answer) = ([&(all.len() as u32).to_le_bytes()[..], &all].concat(), Vec::new());
    export_memory(&*ENGINE, &limit, &mut answer, &all[..], None, None, || {}).expect("it is answered");
    assert_eq!(answer[4], b'+', "memory was not freed");
}

enum Frame<'a> {
    Message(&'a [u8]),
    /// The remaining bytes are shorter than a message.
    None,
    /// The length is not valid for any message.
    InvalidLength,
}

/// Removes the next message from `stream`, and returns it.
fn frame<'a>(stream: &mut &'a [u8]) -> Frame<'a> {
    let Some((len, rest)) = stream.split_first_chunk() else { return Frame::None };
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > MAX_MESSAGE {
        return Frame::InvalidLength;
    }
    let Some((message, rest)) = rest.split_at_checked(len) else { return Frame::None };
    *stream = rest;
    Frame::Message(message)
}

/// Compares an answer with the answer of a model, whose memory is `memory`.
fn check(message: &[u8], answer: &[u8], memory: &mut Option<Vec<u8>>) {
    let is_error = |kinds: &[ErrorKind]| {
        let kind = ERROR_KINDS[usize::from(answer[1])];
        assert!(answer[0] == b'-' && kinds.contains(&kind), "{message:?}: {answer:?}");
        assert!(!std::str::from_utf8(&answer[2..]).expect("text").is_empty());
    };
    // The range of a request in the opened memory; `None` if it is out of bounds.
    let range = |memory: &Option<Vec<u8>>, at: u64, len: usize| {
        let end = at.checked_add(len as u64)?;
        let is_within = len <= MAX_PIECE && end <= memory.as_ref()?.len() as u64;
        is_within.then_some(at as usize..end as usize)
    };
    match Request::decode(message) {
        Some(Request::Open { version, .. }) if version != VERSION => is_error(&[ErrorKind::VersionMismatch]),
        Some(Request::Open { len: 0, .. }) => assert_eq!(answer, b"+"),
        Some(Request::Open { len, .. }) => {
            *memory = None;
            if len > MEMORY {
                return is_error(&[ErrorKind::OutOfResources]);
            }
            assert_eq!(answer[0], b'+', "{len} bytes: {answer:?}");
            assert_eq!(ExportDescriptor::from_bytes(&answer[1..]).expect("a descriptor").len(), len);
            *memory = Some(vec![0; len as usize]);
        }
        Some(Request::Read { at, len }) => match (range(memory, at, len as usize), memory) {
            (Some(range), Some(memory)) => assert_eq!(answer, [b"+", &memory[range]].concat()),
            _ => is_error(&[ErrorKind::Os, ErrorKind::OutOfRange]),
        },
        Some(Request::Write { at, bytes }) => match (range(memory, at, bytes.len()), memory) {
            (Some(range), Some(memory)) => {
                assert_eq!(answer, b"+");
                memory[range].copy_from_slice(bytes);
            }
            _ => is_error(&[ErrorKind::Os, ErrorKind::OutOfRange]),
        },
        None => is_error(&[ErrorKind::Os]),
    }
}
