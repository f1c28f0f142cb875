//! TCP connections of two programs that share a secret. Both programs prove that they know it. Messages are
//! authenticated, which detects changes, forgery, loss and replay. Messages are not encrypted: anyone on the
//! network can read them.
//!
//! One side (the listener) listens, and the other side (the caller) connects. The caller sends its proof
//! first; until then, the listener sends only a nonce:
//!
//! ```text
//! caller   -> listener   magic, 32 random bytes c
//! listener -> caller     magic, 32 random bytes l
//! caller   -> listener   MAC(caller, c, l)
//! listener -> caller     MAC(listener, c, l), or 32 zeros if the caller's MAC is wrong
//! ```
//!
//! MAC is HMAC-SHA-256 ([`Proof`]). Its keys are also derived from the secret by HMAC-SHA-256, and differ
//! for each [`Protocol`]. After the exchange, each direction of this connection has its own key, and the MAC
//! of a message covers its sequence number.
//!
//! A listener with too many pending connections ([`Pending`]) closes slow connections to admit new ones. It
//! then sends 32 bytes of 0xff instead of its nonce or proof, and the caller can connect again. Other
//! servers of the workspace have their own messages, and use only [`Pending`] and [`Proof`].

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
