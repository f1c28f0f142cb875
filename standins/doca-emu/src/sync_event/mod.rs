//! Sync events: 64-bit numbers that both sides of a card change and wait for.
//!
//! The number is in memory that belongs to the event, which the other side maps too, or in memory of the
//! program.

mod calls;
mod context;
mod event;
mod job;
mod tasks;
mod value;

#[cfg(workq)]
pub(crate) use {
    context::POLL,
    event::{Compare, Event},
    job::is_mask,
};
