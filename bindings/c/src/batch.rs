//! Batches: lists of copies that are prepared once and submitted repeatedly.
#![expect(unsafe_code, reason = "functions that C calls")]

use dma::{Batch, Error, ErrorKind, Result, Window};

use crate::arguments::{Out, invalid, slice};
use crate::error::guard;
use crate::handles::{Exclusive, Held, Table, mark};
use crate::header::*;
use crate::region;

/// The copies of a batch.
pub(crate) type List = Batch<Window, Window>;

/// The batches of the program. While a batch is in flight, its handle stays in exclusive use, so that it
/// cannot be closed or submitted again. The value is `None` if the list is lost, because a device that never
/// answered may still use its memory.
static BATCHES: Table<Option<List>> = Table::new("batch", mark::BATCH);

#[cold]
fn refused(e: Error) -> Error {
    if e.kind() != ErrorKind::InUse {
        return e;
    }
    Error::new(ErrorKind::InUse, "the batch is in flight, or another thread is in a call with it")
        .with_hint("receive its completion first")
}

#[cold]
fn lost() -> Error {
    Error::new(ErrorKind::Closed, "a device that never answered may still use the batch")
        .with_hint("close the batch, and prepare another one")
}

/// The exclusive use of a batch while it is in flight.
pub(crate) type HeldBatch = Held<Option<List>>;

/// A batch that is about to be submitted.
pub(crate) struct Taken(Exclusive<Option<List>>);

impl Taken {
    #[inline]
    pub(crate) fn list(&mut self) -> Result<&mut List> {
        self.0.as_mut().ok_or_else(lost)
    }

    /// Removes and returns the list.
    #[inline]
    pub(crate) fn take_list(&mut self) -> Result<List> {
        self.0.take().ok_or_else(lost)
    }

    /// Puts the list back into the batch; `None` if the list is lost.
    #[inline]
    pub(crate) fn put_back(&mut self, list: Option<List>) {
        // The replaced value is `None`, so there is nothing to drop.
        std::mem::forget(std::mem::replace(&mut *self.0, list));
    }

    /// Keeps the batch in flight until the returned value is dropped.
    #[inline]
    pub(crate) fn hold(self) -> HeldBatch {
        self.0.hold()
    }
}

/// Takes exclusive use of a batch.
#[inline]
pub(crate) fn take(batch: dma_batch) -> Result<Taken> {
    BATCHES.exclusive(batch.id).map(Taken).map_err(refused)
}

/// Resumes the use of a batch whose [`HeldBatch`] was kept. The batch is in flight until the returned value
/// is dropped.
#[inline]
pub(crate) fn received(batch: dma_batch) -> Taken {
    // SAFETY: the batch's `HeldBatch` was kept when it was submitted. A submission has only one completion,
    // so only this call resumes the batch.
    Taken(unsafe { BATCHES.resume(batch.id) })
}

fn create(copies: &[dma_copy]) -> Result<dma_batch> {
    if copies.is_empty() {
        return Err(invalid("the batch has no copies"));
    }
    if u32::try_from(copies.len()).is_err() {
        return Err(Error::new(ErrorKind::OutOfRange, format!("a batch of {} copies", copies.len()))
            .with_numbers(copies.len() as u64, u32::MAX.into())
            .with_hint("prepare several batches"));
    }
    let list: Result<List> =
        copies.iter().map(|copy| Ok((region::window(&copy.src)?, region::window(&copy.dst)?))).collect();
    BATCHES.insert(Some(list?)).map(|id| dma_batch { id })
}

fn close(batch: dma_batch) -> Result<()> {
    drop(BATCHES.to_close(batch.id).map_err(refused)?.map(Exclusive::remove));
    Ok(())
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_batch_create(copies: *const dma_copy, count: usize, batch: *mut dma_batch) {
            // SAFETY: the header requires that `batch` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("batch", batch) }?;
            // SAFETY: the header requires that `copies` is NULL or leads to `count` values that do not
            // change during the call.
            out.write(create(unsafe { slice("copies", copies, count) }?)?);
            Ok(())
        }

        fn dma_batch_close(batch: dma_batch) {
            close(batch)
        }
    }
}
