//! Connections of two programs that know a secret, over TCP. Both prove that they know it, and messages are
//! authenticated against change, forgery, loss and replay. Messages are not encrypted: anyone on the network
//! can read them.
//!
//! One side listens, the other one calls. The caller proves first. Before that, the listener sends only a
//! nonce:
//!
//! ```text
//! caller   -> listener   magic, 32 random bytes c
//! listener -> caller     magic, 32 random bytes l
//! caller   -> listener   MAC(caller, c, l)
//! listener -> caller     MAC(listener, c, l), or 32 zeros if the caller's MAC is wrong
//! ```
//!
//! MAC is HMAC-SHA-256 ([`Proof`]). Keys are derived from the secret by HMAC-SHA-256, too, for each
//! [`Protocol`] others. After the exchange each direction has a key for this connection, and the MAC of a
//! message covers its sequence number.
//!
//! A listener that has many callers ([`Pending`]) closes slow connections for new ones. Instead of its nonce
//! or proof it then sends 32 bytes of 0xff, and the caller calls again. Other servers of the workspace have
//! messages of their own, and use [`Pending`] and [`Proof`] alone.

mod answer;
mod exchange;
mod frames;
mod mac;
mod pending;
mod proof;
mod secret;

pub use answer::{Authenticated, Verdict, admit, answer};
pub use exchange::call;
pub use frames::{Receiving, Sending};
pub use pending::{MAX_PENDING, Origin, PENDING_TIMEOUT, Pending};
pub use proof::{PROOF_LEN, Proof, Side};
pub use secret::{Macs, Protocol, Secret};
