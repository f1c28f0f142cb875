//! Batches: copies that are prepared once and submitted again and again.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use dma::{Batch, Error, ErrorKind, Result, Window};

use crate::arguments::{Out, invalid, slice};
use crate::error::guard;
use crate::handles::Table;
use crate::header::*;
use crate::region;

/// The list of a batch.
pub(crate) type List = Batch<Window, Window>;

/// A batch of the program.
#[derive(Debug)]
enum Prepared {
    Idle(List),
    InFlight,
    /// A device that never answered may still use the memory, so the list is lost.
    Lost,
}

static BATCHES: Table<Mutex<Prepared>> = Table::new("batch");

fn lock(prepared: &Mutex<Prepared>) -> MutexGuard<'_, Prepared> {
    prepared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn not_idle(prepared: &Prepared) -> Error {
    match prepared {
        Prepared::Lost => Error::new(ErrorKind::Closed, "a device that never answered has the batch")
            .with_hint("close the batch, and prepare another one"),
        _ => Error::new(ErrorKind::InUse, "the batch is in flight").with_hint("receive its completion first"),
    }
}

/// Takes the list of a batch, which is in flight from then on.
pub(crate) fn take(batch: dma_batch) -> Result<List> {
    let prepared = BATCHES.get(batch.id)?;
    let mut state = lock(&prepared);
    match std::mem::replace(&mut *state, Prepared::InFlight) {
        Prepared::Idle(list) => Ok(list),
        other => {
            let error = not_idle(&other);
            *state = other;
            Err(error)
        }
    }
}

/// Returns the list of a batch, if the device no longer uses it.
pub(crate) fn put_back(batch: dma_batch, list: Option<List>) {
    loop {
        match BATCHES.get(batch.id) {
            Ok(prepared) => break *lock(&prepared) = list.map_or(Prepared::Lost, Prepared::Idle),
            // Another thread tries to close it, and fails soon, because it is in flight.
            Err(e) if e.kind() == ErrorKind::InUse => std::hint::spin_loop(),
            Err(_) => break,
        }
    }
}

fn create(copies: &[dma_copy]) -> Result<dma_batch> {
    if copies.is_empty() {
        return Err(invalid("a batch of no copies"));
    }
    if u32::try_from(copies.len()).is_err() {
        return Err(Error::new(ErrorKind::OutOfRange, format!("a batch of {} copies", copies.len()))
            .with_numbers(copies.len() as u64, u32::MAX.into())
            .with_hint("prepare several batches"));
    }
    let list: Result<List> =
        copies.iter().map(|copy| Ok((region::window(&copy.src)?, region::window(&copy.dst)?))).collect();
    BATCHES.insert(Mutex::new(Prepared::Idle(list?))).map(|id| dma_batch { id })
}

fn close(batch: dma_batch) -> Result<()> {
    let closed = BATCHES.exclusive(batch.id)?.remove_if(|prepared| {
        let state = prepared.into_inner().unwrap_or_else(PoisonError::into_inner);
        if matches!(state, Prepared::InFlight) {
            let error = not_idle(&state);
            Err((Mutex::new(state), error))
        } else {
            Ok(state)
        }
    });
    closed.map(drop)
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_batch_create(copies: *const dma_copy, count: usize, batch: *mut dma_batch) -> dma_status {
            guard(|| {
                // SAFETY: the caller keeps to the header.
                let out = unsafe { Out::new("batch", batch) }?;
                // SAFETY: the caller keeps to the header.
                out.write(create(unsafe { slice("copies", copies, count) }?)?);
                Ok(())
            })
        }

        fn dma_batch_close(batch: dma_batch) -> dma_status {
            guard(|| close(batch))
        }
    }
}
