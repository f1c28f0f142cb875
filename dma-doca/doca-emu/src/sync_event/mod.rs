//! Sync events: a number of 64 bits that both sides of a card count with and wait for.
//!
//! The number lies in memory of its own, which the other side maps too, or in memory of the program.

mod calls;
mod context;
mod event;
mod tasks;
mod value;

#[cfg(workq)]
pub(crate) use {
    context::POLL,
    event::{Compare, Event},
    tasks::is_mask,
};
