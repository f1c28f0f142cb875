//! The other side's messages, sent and received by the test itself.
#![allow(dead_code, reason = "each test file uses only a part of this module")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

#[path = "../../src/protocol/mod.rs"]
pub(crate) mod protocol;

use crate::pair::LONG;
use protocol::{Checksum, Digest, Hello, Message, Role};

pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// A peer controlled by the test.
pub(crate) struct Impostor(pub(crate) UnixStream);

impl Impostor {
    /// Connects to the process that listens on `socket` in `dir`.
    pub(crate) fn connect(dir: &Path) -> Self {
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(dir.join("socket")) {
                Ok(stream) => break stream,
                Err(e) => assert!(start.elapsed() < LONG, "{e}"),
            }
        };
        stream.set_read_timeout(Some(LONG)).expect("set");
        Self(stream)
    }

    pub(crate) fn say(&mut self, message: &Message) {
        self.say_bytes(&encoded(message));
    }

    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        // An error is ignored, because the other side may have ended.
        let _ = self.0.write_all(&[&(bytes.len() as u32).to_le_bytes(), bytes].concat());
    }

    pub(crate) fn hear(&mut self) -> Message {
        loop {
            let mut len = [0; 4];
            self.0.read_exact(&mut len).expect("a message");
            let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
            self.0.read_exact(&mut bytes).expect("a message");
            match Message::decode(&bytes).expect("a message") {
                Message::Progress { .. } => {}
                message => return message,
            }
        }
    }
}

pub(crate) fn hello(role: Role, file: Option<u64>) -> Hello {
    Hello {
        role,
        file,
        checksum: Checksum::None,
        resume: false,
        stream: false,
        window: 16 << 10,
        chunk: 4096,
        mode: 0,
        following: 0,
    }
}

pub(crate) fn xxh3_of_nothing() -> Digest {
    twox_hash::XxHash3_128::oneshot(b"")
}

/// Returns the last message before the connection is closed.
pub(crate) fn last(impostor: &mut Impostor) -> Option<Message> {
    let (mut last, mut len) = (None, [0; 4]);
    while impostor.0.read_exact(&mut len).is_ok() {
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        impostor.0.read_exact(&mut bytes).expect("a message");
        // A process that ends slowly may send another heartbeat.
        match Message::decode(&bytes).expect("a message") {
            Message::Progress { .. } => {}
            message => last = Some(message),
        }
    }
    last
}

pub(crate) fn filled(seq: u64, slot: u32, len: u32) -> Message {
    Message::Filled { seq, slot, len, digest: 0 }
}
