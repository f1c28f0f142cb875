//! The parts and methods that both transfer types share. A transfer is the handle of an operation in flight,
//! or of an inline operation, which was done when it was submitted.
#![expect(unsafe_code, reason = "drops and moves out values of fields explicitly")]

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::{ptr, slice};

use super::error::TransferKind;
use super::stall_detector::StallDetector;

/// The slot number of a transfer whose operands were returned. No queue is deep enough to have a slot with
/// this number.
pub(crate) const SPENT: u32 = u32::MAX;

/// The slot number of a transfer that was done when it was submitted, until its operands are returned. No
/// queue is deep enough to have a slot with this number.
const DONE: u32 = u32::MAX - 1;

/// A transfer's link to its operation. For an operation in flight, this is the queue and the slot. For an
/// operation that was done when it was submitted, this is the result: such an operation has no slot, and does
/// not keep the queue open.
///
/// Neither this type nor [`TransferFlags`] has invalid bit patterns. Otherwise an `Option` or `Result` would
/// store its tag in such a pattern, and moving a transfer would access parts of words. Such moves dominate
/// the cost of a short copy.
pub(crate) struct Ticket<P> {
    link: Link<P>,
    /// The slot's number; [`SPENT`] after the operands have been returned.
    slot: u32,
    flags: TransferFlags,
}

/// The field `result` is valid if the flags contain [`INLINE`](TransferFlags::INLINE), otherwise `queue`.
union Link<P> {
    queue: ManuallyDrop<P>,
    result: u64,
}

impl<P> Ticket<P> {
    /// Makes the ticket of an operation in `slot` of `queue`.
    #[inline]
    pub(crate) const fn new(queue: P, slot: u32, flags: TransferFlags) -> Self {
        debug_assert!(flags.0 & TransferFlags::INLINE == 0, "an operation with a slot is not inline");
        Self { link: Link { queue: ManuallyDrop::new(queue) }, slot, flags }
    }

    /// Makes the ticket of an operation that is done with this result.
    #[inline]
    pub(crate) const fn done(result: u64, operation: TransferKind) -> Self {
        let flags = TransferFlags(operation as u32 | TransferFlags::INLINE);
        Self { link: Link { result }, slot: DONE, flags }
    }

    /// Returns the queue, unless the operation was done when it was submitted.
    #[inline]
    pub(crate) fn queue(&self) -> Option<&P> {
        if self.flags.is_inline() {
            return None;
        }
        // SAFETY: without the flag, `new` stored a queue, and only the destructor drops it.
        Some(unsafe { &self.link.queue })
    }

    /// Returns the queue, unless the operation was done when it was submitted.
    #[inline]
    pub(crate) fn into_queue(self) -> Option<P> {
        let mut this = ManuallyDrop::new(self);
        if this.flags.is_inline() {
            return None;
        }
        // SAFETY: without the flag, `new` stored a queue.
        let queue = unsafe { &mut this.link.queue };
        // SAFETY: `this` is not used afterwards. Its destructor, which would drop the queue, does not run.
        Some(unsafe { ManuallyDrop::take(queue) })
    }

    /// Returns the result of an operation that was done when it was submitted, until its operands are
    /// returned.
    #[inline]
    pub(crate) const fn result(&self) -> Option<u64> {
        if self.slot != DONE {
            return None;
        }
        // SAFETY: only `done` stores this slot number, together with a result. Only `spend` changes the
        // number, and it stores `SPENT`.
        Some(unsafe { self.link.result })
    }

    /// Returns whether the operands have been returned.
    #[inline]
    pub(crate) const fn is_spent(&self) -> bool {
        self.slot == SPENT
    }

    /// Returns whether the transfer still has its operands, or the queue.
    #[inline]
    pub(crate) const fn has_value(&self) -> bool {
        !(self.is_spent() && self.flags.is_inline())
    }

    /// Marks the transfer as spent, and returns its slot. The transfer must not be spent yet.
    #[inline]
    pub(crate) fn spend(&mut self) -> u32 {
        assert!(!self.is_spent(), "a transfer must not be polled again after it was ready");
        std::mem::replace(&mut self.slot, SPENT)
    }

    /// Returns the number of the slot. A transfer that is spent, or was done when it was submitted, has an
    /// invalid number.
    #[inline]
    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    #[inline]
    pub(crate) const fn flags(&self) -> TransferFlags {
        self.flags
    }

    pub(crate) const fn set_yielded(&mut self) {
        self.flags.0 |= TransferFlags::YIELDED;
    }

    /// Returns whether a task has awaited this transfer for the stall timeout, without the time during which
    /// the device completed other operations. `steps` are those of the
    /// [stall detector](StallDetector::steps). The first call begins the measurement.
    pub(crate) const fn is_overdue(&mut self, steps: u32) -> bool {
        let TransferFlags(flags) = &mut self.flags;
        if *flags & TransferFlags::AWAITED == 0 {
            *flags |= TransferFlags::AWAITED | (steps & TransferFlags::STEPS) << TransferFlags::STEPS_AT;
            return false;
        }
        let waited = steps.wrapping_sub(*flags >> TransferFlags::STEPS_AT) & TransferFlags::STEPS;
        *flags & TransferFlags::OUTLASTS_STALLS == 0 && waited >= StallDetector::STEPS
    }

    pub(crate) const fn set_outlasts_stalls(&mut self) {
        self.flags.0 |= TransferFlags::OUTLASTS_STALLS;
    }

    /// Returns whether the task that awaits this transfer should yield first. The transfer is done. Without
    /// yields, a task whose transfers are all done when they are submitted would never let other tasks run.
    pub(crate) fn must_yield(&mut self) -> bool {
        if !self.flags.is_inline() || self.flags.has_yielded() || may_go_on() {
            return false;
        }
        AWAITED.set(0);
        self.set_yielded();
        true
    }
}

thread_local! {
    /// Number of transfers that were done when they were submitted, and that tasks awaited on this thread
    /// since one of them yielded.
    static AWAITED: Cell<u8> = const { Cell::new(0) };
}

/// Counts a transfer that was done when it was submitted, unless the task that awaits it should yield.
#[inline]
pub(crate) fn may_go_on() -> bool {
    /// A task yields at least once in this many such transfers.
    const YIELD_EVERY: u8 = 64;
    let awaited = AWAITED.get() + 1;
    if awaited < YIELD_EVERY {
        AWAITED.set(awaited);
    }
    awaited < YIELD_EVERY
}

impl<P> Drop for Ticket<P> {
    #[inline]
    fn drop(&mut self) {
        if !self.flags.is_inline() {
            // SAFETY: without the flag, `new` stored a queue.
            let queue = unsafe { &mut self.link.queue };
            // SAFETY: only this destructor drops the queue, and it is not used afterwards.
            unsafe { ManuallyDrop::drop(queue) };
        }
    }
}

/// The low 7 bits are the [`TransferKind`], bits 8 to 11 are flags, the next 4 bits are the low bits of
/// the stall detector's steps at the first poll, and the upper half is the lane.
#[derive(Clone, Copy)]
pub(crate) struct TransferFlags(u32);

impl TransferFlags {
    /// The transfer's task has yielded once, to let other tasks submit operations before the doorbell.
    const YIELDED: u32 = 1 << 8;
    /// The operation was done when it was submitted.
    const INLINE: u32 = 1 << 9;
    /// A task has polled the transfer, so the steps are set.
    const AWAITED: u32 = 1 << 10;
    /// An await does not fail if the device has stalled.
    const OUTLASTS_STALLS: u32 = 1 << 11;
    /// Mask of the steps. If the number wraps during a wait, a stall is detected up to one timeout later.
    const STEPS: u32 = 2 * StallDetector::STEPS - 1;
    const STEPS_AT: u32 = 12;

    #[inline]
    pub(crate) const fn new(operation: TransferKind) -> Self {
        Self(operation as u32)
    }

    #[inline]
    pub(crate) const fn with_lane(self, lane: u16) -> Self {
        Self(self.0 | (lane as u32) << 16)
    }

    pub(crate) const fn lane(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(crate) const fn operation(self) -> TransferKind {
        TransferKind::ALL[(self.0 & 0x7f) as usize]
    }

    pub(crate) const fn has_yielded(self) -> bool {
        self.0 & Self::YIELDED != 0
    }

    #[inline]
    const fn is_inline(self) -> bool {
        self.0 & Self::INLINE != 0
    }
}

/// A value that is dropped only if a panic unwinds. Without a panic, it must be forgotten.
pub(crate) struct DropOnUnwind<T>(ManuallyDrop<T>);

impl<T> DropOnUnwind<T> {
    #[inline(always)]
    pub(crate) const fn new(value: ManuallyDrop<T>) -> Self {
        Self(value)
    }
}

impl<T> Drop for DropOnUnwind<T> {
    // The value is moved out, so that no pointer to it is passed to other code. Otherwise the compiler would
    // keep the value in memory even if there is no panic.
    #[inline(always)]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_cold<T>(value: T) {
            drop(value);
        }
        // SAFETY: this destructor is the last use of the value.
        drop_cold(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// Reads a value word by word.
///
/// The compiler keeps the parts of a value in registers if code reads each part. It copies parts that are
/// only moved, such as the address in a buffer, from memory to memory with each move. Reading the words once
/// prevents this for all moves of the value.
///
/// # Safety
///
/// The requirements are those of [`ptr::read`].
#[inline(always)]
pub(crate) unsafe fn read_in_words<T>(from: &T) -> T {
    /// A word with any bits, which may be a pointer or uninitialized.
    type Word = MaybeUninit<*const ()>;
    let words = size_of::<T>() / size_of::<Word>();
    if align_of::<T>() < align_of::<Word>() || words > 12 {
        // SAFETY: the caller meets the requirements.
        return unsafe { ptr::read(from) };
    }
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value consists of these words, because its size is a multiple of its alignment.
    let from = unsafe { slice::from_raw_parts(ptr::from_ref(from).cast::<Word>(), words) };
    // SAFETY: the memory of the value has these words, may be uninitialized, and is used by nobody else.
    let to = unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast::<Word>(), words) };
    let mut copy = |at: usize| {
        if let (Some(to), Some(from)) = (to.get_mut(at), from.get(at)) {
            *to = *from;
        }
    };
    // The compiler would turn a loop into a copy from memory to memory.
    macro_rules! copy {
        ($($at:literal)*) => { $(copy($at);)* };
    }
    copy!(0 1 2 3 4 5 6 7 8 9 10 11);
    // SAFETY: all words are those of a value. The caller meets the other requirements.
    unsafe { value.assume_init() }
}

/// Declares a transfer type with the methods that both types share.
macro_rules! transfer {
    ($(#[$doc:meta])* $transfer:ident<T> $(where T: $send:ident)?, $queue:ty, $threads:ty) => {
        $(#[$doc])*
        #[must_use = "dropping a transfer gives up its operands"]
        pub struct $transfer<T: $($send +)? 'static, R: Answer = ()> {
            threads: PhantomData<$threads>,
            ticket: ManuallyDrop<Ticket<$queue>>,
            operands: ManuallyDrop<T>,
            answer: PhantomData<fn() -> R>,
        }

        /// A transfer can move while it is pinned, because it only has handles of the operands' memory.
        impl<T $(: $send)?, R: Answer> Unpin for $transfer<T, R> {}

        impl<T: $($send +)? 'static, R: Answer> $transfer<T, R> {
            #[inline]
            pub(super) const fn new(ticket: Ticket<$queue>, operands: T) -> Self {
                let (ticket, operands) = (ManuallyDrop::new(ticket), ManuallyDrop::new(operands));
                Self { threads: PhantomData, ticket, operands, answer: PhantomData }
            }

            /// Takes the operands out and marks the transfer as spent, so that its destructor does not drop
            /// them. Returns its slot.
            #[inline]
            fn take(ticket: &mut Ticket<$queue>, operands: &mut ManuallyDrop<T>) -> (u32, T) {
                let slot = ticket.spend();
                // SAFETY: the transfer was not spent, so the operands have not been taken before.
                (slot, unsafe { ManuallyDrop::take(operands) })
            }

            /// Drops a transfer.
            #[inline(never)]
            fn drop_moved(mut this: ManuallyDrop<Self>) {
                // SAFETY: only this copy of the ticket is dropped, also if a destructor of the operands
                // panics.
                let _ticket = ManuallyDrop::into_inner(unsafe { ptr::read(&this.ticket) });
                if this.ticket.result().is_some() {
                    drop(this.take_done());
                } else if !this.ticket.is_spent() {
                    this.drop_held();
                }
            }

            /// Returns the operands, if the operation was done when it was submitted.
            #[inline]
            fn take_done(&mut self) -> Option<R::With<T>> {
                let result = self.ticket.result()?;
                let (_, operands) = Self::take(&mut self.ticket, &mut self.operands);
                Some(R::with(operands, result))
            }

            /// Waits until the operation has ended and returns its operands. During the wait, the calling
            /// thread polls the device. The wait fails if the device has completed nothing on this queue, or
            /// lane, for [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout).
            ///
            /// # Errors
            ///
            /// `DeviceFault`, `Aborted`, `DeviceLost`, `Revoked` or another failure, with the operands;
            /// `Closed`, with the operands, if the queue was closed before; `TimedOut`, without the operands,
            /// because the queue keeps them until the device has completed the operation; `DeviceLost`,
            /// without the operands, if the lost device has not reported the operation. Such operands are
            /// leaked, because the device may still write to them.
            ///
            /// # Panics
            ///
            /// If the future has already returned its result.
            // Inline, for the same reason as the queue's `copy`.
            #[inline(always)]
            pub fn wait(self) -> Result<R::With<T>, OpError<T>> {
                // With `ManuallyDrop`, the operands are not dropped if a panic unwinds, so the compiler moves
                // them only once.
                let this = ManuallyDrop::new(self);
                let result = match this.ticket.result() {
                    Some(result) => result,
                    None => match Self::wait_for_device(&this) {
                        Some(result) => result,
                        None => return slow_path(ManuallyDrop::into_inner(this), Self::wait_slow),
                    },
                };
                // SAFETY: `this` is not used afterwards, and its destructor does not run. The ticket has a
                // result, or had a slot, so it is not spent, and the operands have not been taken. The
                // ticket's destructor would have no effect, or the ticket was dropped.
                Ok(R::with(unsafe { read_in_words(&*this.operands) }, result))
            }

            /// Waits as [`wait`](Self::wait) does, for an operation that is still in flight or has failed.
            fn wait_slow(mut self) -> Result<R::With<T>, OpError<T>> {
                let stall = self.stall_timeout();
                if self.block(None, stall) {
                    return self.finish();
                }
                Err(error::wait_timed_out(self.ticket.flags().operation(), self.backend(), stall))
            }

            /// Makes an await of this transfer last until the operation has ended or the queue is closed,
            /// even if the device has stalled. [`wait`](Self::wait) still fails then. Use this if the program
            /// detects stalls in another way, and must not lose the operands before.
            pub fn outlast_stalls(mut self) -> Self {
                self.ticket.set_outlasts_stalls();
                self
            }

            /// Waits until the operation has ended or `deadline` has passed. After `Ok`, [`wait`](Self::wait)
            /// returns at once.
            ///
            /// # Errors
            ///
            /// `TimedOut`. The transfer is still in flight, and can be waited for again.
            pub fn wait_until(&mut self, deadline: Instant) -> Result<()> {
                let over = self.block(Some(deadline), Duration::MAX);
                if over { Ok(()) } else { Err(Error::bare(ErrorKind::TimedOut)) }
            }

            /// Waits like [`wait_until`](Self::wait_until), for at most `timeout`.
            ///
            /// # Errors
            ///
            /// `TimedOut`. The transfer is still in flight, and can be waited for again.
            pub fn wait_for(&mut self, timeout: Duration) -> Result<()> {
                self.wait_until(deadline(timeout))
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Future for $transfer<T, R> {
            type Output = Result<R::With<T>, OpError<T>>;

            /// Returns the same result as [`wait`](Self::wait). The future fails with `TimedOut`,
            /// without the operands, if the device has completed nothing on this queue, or lane, for
            /// [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout) while the transfer was
            /// awaited, unless [`outlast_stalls`](Self::outlast_stalls) was called.
            ///
            /// A transfer that was done when it was submitted is ready at the first poll. One in 64 such
            /// transfers is ready only at the second poll, so that a task with many of them lets other tasks
            /// run.
            ///
            /// # Panics
            ///
            /// If the future is polled again after it was ready.
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                // The slot may already belong to another operation, so do not use it again.
                assert!(!self.ticket.is_spent(), "a transfer must not be polled again after it was ready");
                if self.ticket.must_yield() {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(done) = self.take_done() {
                    return Poll::Ready(Ok(done));
                }
                if !self.is_pending(context.waker()) {
                    return Poll::Ready(self.finish());
                }
                if !self.has_stalled() {
                    return Poll::Pending;
                }
                let (operation, backend) = (self.ticket.flags().operation(), self.backend());
                let error = error::wait_timed_out(operation, backend, self.stall_timeout());
                self.drop_held();
                Poll::Ready(Err(error))
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Drop for $transfer<T, R> {
            // The transfer is passed by value. If its address were passed, the compiler would keep every
            // transfer that a panic may drop in memory, for example during `Vec::push`.
            #[inline(always)]
            fn drop(&mut self) {
                if self.ticket.has_value() {
                    // SAFETY: `self` is not used afterwards, and its fields have no destructors.
                    Self::drop_moved(ManuallyDrop::new(unsafe { ptr::read(self) }));
                }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> fmt::Debug for $transfer<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($transfer))
                    .field("operation", &self.ticket.flags().operation())
                    .field("slot", &self.ticket.queue().map(|_| self.ticket.slot()))
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use transfer;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_value_is_read() {
        fn read<T: Copy + PartialEq + std::fmt::Debug>(value: T) {
            // SAFETY: the type is `Copy`.
            assert_eq!(unsafe { read_in_words(&value) }, value);
        }
        let words: [u64; 14] = std::array::from_fn(|n| u64::MAX / (n as u64 + 2));
        read(());
        read([words[0]; 1]);
        read::<[u64; 7]>(*words.first_chunk().expect("7 of 14"));
        read::<[u64; 12]>(*words.first_chunk().expect("12 of 14"));
        read(words);
        read([7_u8; 13]);
        read((1_u8, 2_u64, 3_u16));
        read((u128::MAX, 5_u8));
        read(("text", 9_u32));
        let owned = ManuallyDrop::new((Box::new(5), vec![6]));
        // SAFETY: the other copy is not dropped.
        let owned = unsafe { read_in_words(&*owned) };
        assert_eq!(owned, (Box::new(5), vec![6]));
    }

    #[test]
    fn a_transfer_is_overdue_after_its_own_wait() {
        for begun in [0, 5, 13, 15, u32::MAX] {
            let mut ticket = Ticket::new((), 0, TransferFlags::new(TransferKind::Copy).with_lane(u16::MAX));
            assert!(!ticket.is_overdue(begun), "the first poll begins the wait");
            assert!(!ticket.is_overdue(begun.wrapping_add(7)));
            assert!(ticket.is_overdue(begun.wrapping_add(8)) && ticket.is_overdue(begun.wrapping_add(15)));
            ticket.set_outlasts_stalls();
            assert!(!ticket.is_overdue(begun.wrapping_add(8)));
            assert_eq!((ticket.flags().lane(), ticket.flags().operation()), (u16::MAX, TransferKind::Copy));
        }
    }
}
