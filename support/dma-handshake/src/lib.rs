//! TCP connections of two programs that share a secret, by the [Noise protocol framework]. Both programs
//! prove that they know the secret. Messages are encrypted and authenticated.
//!
//! [Noise protocol framework]: https://noiseprotocol.org/noise.html
//!
//! One side (the listener) listens, and the other side (the caller) connects:
//!
//! ```text
//! caller   -> listener   the protocol's name, version, the secret's id, Noise message 1 (psk, e)
//! listener -> caller     the protocol's name, version, status, Noise message 2 (e, ee)
//! caller   -> listener   transport message: the request
//! listener -> caller     status, transport message: the reply
//! ```
//!
//! The pattern is `NNpsk0`, with the functions of `Noise_NNpsk0_25519_ChaChaPoly_SHA256`:
//!
//! - Neither side has a key of its own, only the shared secret, so the pattern is `NN`. The new pair of keys
//!   of each side (`e`) gives forward secrecy: who learns the secret later cannot decrypt a recorded
//!   connection.
//! - The caller's first message depends on the secret (`psk0`), so the listener sends nothing to programs
//!   without the secret, and does no public-key operation for them.
//! - A recorded first message is valid again. Therefore the listener admits the caller after the request,
//!   which depends on the listener's new key.
//! - Name, version and id are the prologue, so both sides detect a change of them.
//!
//! # What others can do
//!
//! Without the secret, a program on the network:
//!
//! - that only listens learns the protocol's name and version, the secret's id, the status, the number, time
//!   and approximate lengths of messages, and nothing of their content;
//! - that changes, forges, drops, repeats or reorders messages ends the connection, with an error at the side
//!   that receives them. A status other than "accepted" is not authenticated, so this program can also make
//!   the caller report a wrong error;
//! - that replays a caller's messages makes the listener compute one key agreement, and is not admitted;
//! - that opens many connections uses up to [`MAX_PENDING`] of the listener's connections. While more than
//!   half of them are pending, the listener closes those older than [`PENDING_TIMEOUT`].
//!
//! Every secret can be guessed by trying it on a recorded first message. Therefore secrets must be random, as
//! `head -c 32 /dev/urandom` makes them. Each program that knows the secret can impersonate both sides.
//!
//! # Admission
//!
//! A listener with too many pending connections ([`Pending`]) closes slow connections to admit new ones. It
//! sends the status "busy", and the caller can connect again. Servers on Unix sockets use only [`Pending`]
//! and [`admit`], which need no feature: the kernel tells them the user of the other side.

mod admit;
mod pending;

#[cfg(feature = "noise")]
mod answer;
#[cfg(feature = "noise")]
mod crypto;
#[cfg(feature = "noise")]
mod exchange;
#[cfg(feature = "noise")]
mod frames;
#[cfg(feature = "noise")]
mod keys;
#[cfg(feature = "noise")]
mod secret;

pub use admit::{Verdict, admit};
pub use pending::{MAX_PENDING, Origin, PENDING_TIMEOUT, Pending};

#[cfg(feature = "noise")]
pub use self::{
    answer::{Authenticated, answer},
    exchange::{Answering, Requested, Step, call, request},
    frames::{Receiving, Sending},
    keys::Keys,
    secret::{Id, Protocol, Secret},
};
