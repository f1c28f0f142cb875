//! Copies and fills by channels: the calls of `ioat.h`.

mod calls;
pub(crate) mod channel;
pub(crate) mod socket;
