//! Packets of a connection's socket: one byte for the kind, and the payload.

use serde::{Deserialize, Serialize};

/// Kinds of packets.
/// Carries the fast path's socket.
pub(super) const HELLO: u8 = 1;
pub(super) const WELCOME: u8 = 2;
pub(super) const MESSAGE: u8 = 3;
pub(super) const BYE: u8 = 4;

/// Handshake of either side, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The longest message that this side takes.
    pub(super) max_msg_size: u32,
    /// Address that the client looks for; empty from a server.
    pub(super) address: String,
}

impl Greeting {
    pub(super) fn to_bytes(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![kind];
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    /// `None` for another kind.
    pub(super) fn parse(kind: u8, packet: &[u8]) -> Option<Self> {
        let greeting: Self = serde_json::from_slice(packet.strip_prefix(&[kind])?).ok()?;
        Some(greeting).filter(|greeting| greeting.max_msg_size > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_comes_back_as_it_was() {
        let greeting = Greeting { max_msg_size: 4080, address: "MT\n0000:3b:00.0\nname".to_owned() };
        let bytes = greeting.to_bytes(HELLO);
        assert_eq!(Greeting::parse(HELLO, &bytes), Some(greeting));
        assert_eq!(Greeting::parse(WELCOME, &bytes), None);
        for end in 0..bytes.len() {
            assert_eq!(Greeting::parse(HELLO, &bytes[..end]), None, "{end} bytes");
        }
    }
}
