//! Connections of two programs that know a secret, over TCP. Both prove that they know it, and messages are
//! authenticated against change, forgery, loss and replay. Messages are not encrypted: anyone on the network
//! can read them.
//!
//! One side listens, the other one calls. The caller proves first. The listener reveals nothing but a nonce
//! before that:
//!
//! ```text
//! caller   -> listener   magic, 32 random bytes c
//! listener -> caller     magic, 32 random bytes l
//! caller   -> listener   MAC(caller, c, l)
//! listener -> caller     MAC(listener, c, l), or 32 zeros if the caller's MAC is wrong
//! ```
//!
//! MAC is keyed BLAKE3. Keys are derived from the secret by BLAKE3's key derivation, for each [`Protocol`]
//! others. After the exchange each direction has a key for this connection, and the MAC of a message covers
//! its sequence number.
//!
//! A listener that has many callers closes slow connections without an answer while others wait. Such a
//! caller calls again.

mod admission;
mod exchange;
mod frames;
mod secret;

pub use admission::{Authenticated, Verdict, admit, answer};
pub use exchange::call;
pub use frames::{Receiving, Sending};
pub use secret::{Macs, Protocol, Secret};
