//! The parts and methods that both kinds of transfer share. A transfer is the handle of an operation in
//! flight, or of one that was done when it was submitted.
#![expect(unsafe_code, reason = "ends the life of a value in a field by hand")]

use std::cell::Cell;
use std::mem::ManuallyDrop;

use super::error::Operation;

/// The slot number of a transfer whose operands were returned. No queue is deep enough to have such a slot.
pub(crate) const SPENT: u32 = u32::MAX;

/// The slot number of a transfer that was done when it was submitted, until its operands are returned. No
/// queue is deep enough to have such a slot.
const DONE: u32 = u32::MAX - 1;

/// A transfer's reference to its queue with the slot of its operation, or the result of an operation that was
/// done when it was submitted, which has no slot and does not keep the queue open.
///
/// Neither this type nor [`TransferFlags`] has invalid bit patterns. An `Option` or `Result` would store its
/// tag in such a pattern, and moving a transfer would then access parts of words. Such moves dominate the
/// cost of a short copy.
pub(crate) struct Ticket<P> {
    link: Link<P>,
    /// [`SPENT`] once the operands have been returned.
    slot: u32,
    flags: TransferFlags,
}

/// `result` if the flags say [`INLINE`](TransferFlags::INLINE), else `queue`.
union Link<P> {
    queue: ManuallyDrop<P>,
    result: u64,
}

impl<P> Ticket<P> {
    /// Makes the ticket of an operation in `slot` of `queue`.
    #[inline]
    pub(crate) const fn new(queue: P, slot: u32, flags: TransferFlags) -> Self {
        debug_assert!(flags.0 & TransferFlags::INLINE == 0, "it is in a queue");
        Self { link: Link { queue: ManuallyDrop::new(queue) }, slot, flags }
    }

    /// Makes the ticket of an operation that is done with this result.
    #[inline]
    pub(crate) const fn done(result: u64, operation: Operation) -> Self {
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

    /// Returns the result of an operation that was done when it was submitted, until its operands are
    /// returned.
    #[inline]
    pub(crate) const fn result(&self) -> Option<u64> {
        if self.slot != DONE {
            return None;
        }
        // SAFETY: only `done` stores this number, together with a result, and the other values that replace
        // it are not this number.
        Some(unsafe { self.link.result })
    }

    /// Returns whether the operands have been returned.
    #[inline]
    pub(crate) const fn is_spent(&self) -> bool {
        self.slot == SPENT
    }

    /// Marks the transfer as spent, which it was not, and returns its slot.
    #[inline]
    pub(crate) fn spend(&mut self) -> u32 {
        assert!(!self.is_spent(), "a transfer is not polled again once it was ready");
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

    /// Returns whether the task that awaits this transfer, which is done, should yield first, so that a task
    /// whose transfers are all done when it submits them lets others run.
    pub(crate) fn must_yield(&mut self) -> bool {
        /// A task yields at least once in this many transfers that were done when they were submitted.
        const YIELD_EVERY: u8 = 64;
        thread_local! {
            /// Number of such transfers that tasks awaited on this thread since one of them yielded.
            static AWAITED: Cell<u8> = const { Cell::new(0) };
        }
        if !self.flags.is_inline() || self.flags.has_yielded() {
            return false;
        }
        let awaited = AWAITED.get() + 1;
        let is_due = awaited == YIELD_EVERY;
        AWAITED.set(if is_due { 0 } else { awaited });
        if is_due {
            self.set_yielded();
        }
        is_due
    }
}

impl<P> Drop for Ticket<P> {
    #[inline]
    fn drop(&mut self) {
        if !self.flags.is_inline() {
            // SAFETY: without the flag, `new` stored a queue.
            let queue = unsafe { &mut self.link.queue };
            // SAFETY: nothing else drops the queue, and it is not used afterwards.
            unsafe { ManuallyDrop::drop(queue) };
        }
    }
}

/// The [`Operation`] in the low byte, flags, and the lane in the upper half.
#[derive(Clone, Copy)]
pub(crate) struct TransferFlags(u32);

impl TransferFlags {
    /// The transfer's task has yielded once, to let other tasks run: they may submit before the doorbell.
    const YIELDED: u32 = 1 << 8;
    /// The operation was done when it was submitted.
    const INLINE: u32 = 1 << 9;

    #[inline]
    pub(crate) const fn new(operation: Operation) -> Self {
        Self(operation as u32)
    }

    #[inline]
    pub(crate) const fn with_lane(self, lane: u16) -> Self {
        Self(self.0 | (lane as u32) << 16)
    }

    pub(crate) const fn lane(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(crate) const fn operation(self) -> Operation {
        Operation::ALL[(self.0 & 0xff) as usize]
    }

    pub(crate) const fn has_yielded(self) -> bool {
        self.0 & Self::YIELDED != 0
    }

    #[inline]
    const fn is_inline(self) -> bool {
        self.0 & Self::INLINE != 0
    }
}

/// A value that is dropped if a panic unwinds, and not otherwise.
pub(crate) struct DropOnUnwind<T>(ManuallyDrop<T>);

impl<T> DropOnUnwind<T> {
    #[inline(always)]
    pub(crate) const fn new(value: ManuallyDrop<T>) -> Self {
        Self(value)
    }

    #[inline(always)]
    pub(crate) fn into_inner(self) -> ManuallyDrop<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used afterwards, and its destructor does not run.
        unsafe { std::ptr::read(&this.0) }
    }
}

impl<T> std::ops::Deref for DropOnUnwind<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for DropOnUnwind<T> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the value after its owner.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Declares a type of transfer with the methods that both types share.
macro_rules! transfer {
    ($(#[$doc:meta])* $transfer:ident<T> $(where T: $send:ident)?, $queue:ty) => {
        $(#[$doc])*
        #[must_use = "dropping a transfer gives up its operands"]
        pub struct $transfer<T: $($send +)? 'static, R: Answer = ()> {
            ticket: Ticket<$queue>,
            operands: ManuallyDrop<T>,
            answer: PhantomData<fn() -> R>,
        }

        /// No field is ever pinned, because the operands' memory is elsewhere.
        impl<T $(: $send)?, R: Answer> Unpin for $transfer<T, R> {}

        impl<T: $($send +)? 'static, R: Answer> $transfer<T, R> {
            #[inline]
            pub(super) const fn new(ticket: Ticket<$queue>, operands: T) -> Self {
                Self { ticket, operands: ManuallyDrop::new(operands), answer: PhantomData }
            }

            /// Takes the operands out and marks the transfer as spent, so that its destructor does not drop
            /// them. Returns its slot.
            #[inline]
            fn take(ticket: &mut Ticket<$queue>, operands: &mut ManuallyDrop<T>) -> (u32, T) {
                let slot = ticket.spend();
                // SAFETY: the transfer was not spent, so the operands have not been taken before.
                (slot, unsafe { ManuallyDrop::take(operands) })
            }

            /// Returns the operands, if the operation was done when it was submitted.
            #[inline]
            fn take_done(&mut self) -> Option<R::With<T>> {
                let result = self.ticket.result()?;
                let (_, operands) = Self::take(&mut self.ticket, &mut self.operands);
                Some(R::with(operands, result))
            }

            /// Waits until the operation has ended and returns its operands. While it waits, the calling
            /// thread polls the device. Gives up when the device has completed nothing on this queue, or
            /// lane, for [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout).
            ///
            /// # Errors
            ///
            /// `DeviceFault`, `Aborted`, `DeviceLost`, `Revoked` or another failure, with the operands;
            /// `Closed`, with the operands, if the queue was closed before; `TimedOut` without them, because
            /// the queue keeps them until the device is done.
            ///
            /// # Panics
            ///
            /// If the future has already returned its result.
            // For the same reason as the queue's `copy`.
            #[inline(always)]
            pub fn wait(self) -> Result<R::With<T>, OpError<T>> {
                // `ManuallyDrop` hides the operands from destructors, so that the compiler moves them only
                // once.
                let this = ManuallyDrop::new(self);
                if let Some(result) = this.ticket.result() {
                    // SAFETY: `this` is not used afterwards, and its destructor does not run. The ticket has
                    // a result, so it is not spent, and the operands have not been taken. Its destructor
                    // would do nothing.
                    return Ok(R::with(unsafe { ptr::read(&*this.operands) }, result));
                }
                if let Some(result) = this.release_if_done() {
                    return Ok(Self::into_done(this, result));
                }
                // Most devices complete a short operation soon after the doorbell.
                let this = DropOnUnwind::new(this);
                let completed = this.complete();
                let this = this.into_inner();
                if let Some(result) = completed {
                    return Ok(Self::into_done(this, result));
                }
                slow_path(ManuallyDrop::into_inner(this), Self::wait_slow)
            }

            /// Returns the operands of an operation that is done, whose slot was released.
            #[inline(always)]
            fn into_done(this: ManuallyDrop<Self>, result: u64) -> R::With<T> {
                // SAFETY: `this` is not used after the two reads, and its destructor does not run.
                drop(unsafe { ptr::read(&this.ticket) });
                // SAFETY: `this` is not used afterwards, and its destructor does not run. A spent transfer is
                // never done, so the operands have not been taken.
                R::with(unsafe { ptr::read(&*this.operands) }, result)
            }

            fn wait_slow(mut self) -> Result<R::With<T>, OpError<T>> {
                let stall = self.stall_timeout();
                if self.block(None, stall) {
                    return self.finish();
                }
                Err(error::wait_timed_out(self.ticket.flags().operation(), self.backend(), stall))
            }

            /// Waits until the operation has ended or `deadline` has passed. After `Ok`, [`wait`](Self::wait)
            /// returns at once.
            ///
            /// # Errors
            ///
            /// `TimedOut`: the transfer is still in flight, and can be waited for again.
            pub fn wait_until(&mut self, deadline: Instant) -> Result<()> {
                let over = self.block(Some(deadline), Duration::MAX);
                if over { Ok(()) } else { Err(Error::bare(ErrorKind::TimedOut)) }
            }

            /// Waits as [`wait_until`](Self::wait_until) does, until `timeout` from now.
            ///
            /// # Errors
            ///
            /// `TimedOut`: the transfer is still in flight, and can be waited for again.
            pub fn wait_for(&mut self, timeout: Duration) -> Result<()> {
                self.wait_until(deadline(timeout))
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Future for $transfer<T, R> {
            type Output = Result<R::With<T>, OpError<T>>;

            /// Returns the same result as `wait`, but never gives up on a stalled device. A transfer that was
            /// done when it was submitted is ready at the first poll, except one in 64, which is ready at the
            /// second, so that a task with many of them lets others run.
            ///
            /// # Panics
            ///
            /// If it is polled again after it was ready.
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                // The slot may already serve another operation.
                assert!(!self.ticket.is_spent(), "a transfer is not polled again once it was ready");
                if self.ticket.must_yield() {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(done) = self.take_done() {
                    return Poll::Ready(Ok(done));
                }
                if self.is_pending(context.waker()) { Poll::Pending } else { Poll::Ready(self.finish()) }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Drop for $transfer<T, R> {
            #[inline]
            fn drop(&mut self) {
                if self.ticket.result().is_some() {
                    drop(self.take_done());
                } else if !self.ticket.is_spent() {
                    self.drop_held();
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
