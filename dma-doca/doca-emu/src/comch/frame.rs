//! Packets of a connection's socket: one byte for the kind, and the payload.

/// The version of the handshake.
const VERSION: u32 = 1;

/// Kinds of packets.
pub(super) const HELLO: u8 = 1;
pub(super) const WELCOME: u8 = 2;
pub(super) const MESSAGE: u8 = 3;
pub(super) const BYE: u8 = 4;
/// Carries the fast path's socket, which the client makes; asks the client for it.
pub(super) const FAST: u8 = 5;
pub(super) const FAST_WANTED: u8 = 6;

/// Handshake of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The longest message that this side takes.
    pub(super) max_msg_size: u32,
    /// Address that the client looks for; empty from a server.
    pub(super) address: String,
}

impl Greeting {
    pub(super) fn to_bytes(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.max_msg_size.to_le_bytes());
        bytes.extend_from_slice(self.address.as_bytes());
        bytes
    }

    /// `None` for another kind or version.
    pub(super) fn parse(kind: u8, packet: &[u8]) -> Option<Self> {
        let rest = packet.strip_prefix(&[kind])?;
        let (version, rest) = rest.split_first_chunk()?;
        let (max_msg_size, address) = rest.split_first_chunk()?;
        let address = str::from_utf8(address).ok()?.to_owned();
        let max_msg_size = u32::from_le_bytes(*max_msg_size);
        (u32::from_le_bytes(*version) == VERSION && max_msg_size > 0)
            .then_some(Self { max_msg_size, address })
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
        for end in 0..9 {
            assert_eq!(Greeting::parse(HELLO, &bytes[..end]), None, "{end} bytes");
        }
        let mut other_version = bytes;
        other_version[1] = 2;
        assert_eq!(Greeting::parse(HELLO, &other_version), None);
    }
}
