//! The parts and methods that both kinds of transfer share. A transfer is the handle of an operation in
//! flight.
#![expect(unsafe_code, reason = "ends the life of a value in a field by hand")]

use std::mem::MaybeUninit;
use std::ops::Deref;

use super::error::Operation;

/// The slot number of a transfer whose operands were returned. No queue is deep enough to have such a slot.
pub(crate) const SPENT: u32 = u32::MAX;

/// A transfer's reference to its queue.
///
/// Neither this type nor [`TransferFlags`] has invalid bit patterns. An `Option` or `Result` would store its
/// tag in such a pattern, and moving a transfer would then access parts of words. Such moves dominate the
/// cost of a short copy.
pub(crate) struct QueueRef<P>(MaybeUninit<P>);

impl<P> QueueRef<P> {
    #[inline]
    pub(crate) const fn new(shared: P) -> Self {
        Self(MaybeUninit::new(shared))
    }
}

impl<P> Deref for QueueRef<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        // SAFETY: `new` stores a value, and only the destructor drops it.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<P> Drop for QueueRef<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` stores a value, and nothing else drops it.
        unsafe { self.0.assume_init_drop() };
    }
}

/// The [`Operation`] in the low byte, the flag [`YIELDED`](Self::YIELDED), and the lane in the upper half.
#[derive(Clone, Copy)]
pub(crate) struct TransferFlags(u32);

impl TransferFlags {
    /// The transfer's task has yielded once, to let other tasks submit before the doorbell.
    const YIELDED: u32 = 1 << 8;

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

    pub(crate) const fn set_yielded(&mut self) {
        self.0 |= Self::YIELDED;
    }
}

/// Declares a type of transfer with the methods that both types share.
macro_rules! transfer {
    ($(#[$doc:meta])* $transfer:ident<T> $(where T: $send:ident)?, $queue:ty) => {
        $(#[$doc])*
        #[must_use = "dropping a transfer gives up its operands"]
        pub struct $transfer<T: $($send +)? 'static, R: Answer = ()> {
            queue: QueueRef<$queue>,
            /// [`SPENT`] once the operands have been returned.
            slot: u32,
            flags: TransferFlags,
            operands: ManuallyDrop<T>,
            answer: PhantomData<fn() -> R>,
        }

        /// No field is ever pinned, because the operands' memory is elsewhere.
        impl<T $(: $send)?, R: Answer> Unpin for $transfer<T, R> {}

        impl<T: $($send +)? 'static, R: Answer> $transfer<T, R> {
            #[inline]
            pub(super) fn new(queue: $queue, slot: u32, flags: TransferFlags, operands: T) -> Self {
                let operands = ManuallyDrop::new(operands);
                Self { queue: QueueRef::new(queue), slot, flags, operands, answer: PhantomData }
            }

            /// Takes the operands out and marks the transfer as spent, so that its destructor does not drop
            /// them.
            #[inline]
            fn take(slot: &mut u32, operands: &mut ManuallyDrop<T>) -> T {
                assert!(*slot != SPENT, "a transfer is not polled again once it was ready");
                *slot = SPENT;
                // SAFETY: the transfer was not spent, so the operands have not been taken before.
                unsafe { ManuallyDrop::take(operands) }
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
            #[inline]
            pub fn wait(self) -> Result<R::With<T>, OpError<T>> {
                // `ManuallyDrop` hides the operands from destructors, so that the compiler moves them only
                // once.
                let this = ManuallyDrop::new(self);
                if let Some(result) = this.release_if_done() {
                    // SAFETY: `this` is not used after the two reads, and its destructor does not run.
                    drop(unsafe { ptr::read(&this.queue) });
                    // SAFETY: `this` is not used afterwards, and its destructor does not run. A spent
                    // transfer is never done, so the operands have not been taken.
                    return Ok(R::with(unsafe { ptr::read(&*this.operands) }, result));
                }
                slow_path(ManuallyDrop::into_inner(this), Self::wait_slow)
            }

            fn wait_slow(mut self) -> Result<R::With<T>, OpError<T>> {
                let stall = self.stall_timeout();
                if self.block(None, stall) {
                    return self.finish();
                }
                Err(error::wait_timed_out(self.flags.operation(), self.backend(), stall))
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

            /// Returns the same result as `wait`, but never gives up on a stalled device.
            ///
            /// # Panics
            ///
            /// If it is polled again after it was ready.
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                // The slot may already serve another operation.
                assert!(self.slot != SPENT, "a transfer is not polled again once it was ready");
                if self.is_pending(context.waker()) { Poll::Pending } else { Poll::Ready(self.finish()) }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> Drop for $transfer<T, R> {
            #[inline]
            fn drop(&mut self) {
                if self.slot != SPENT {
                    self.drop_held();
                }
            }
        }

        impl<T: $($send +)? 'static, R: Answer> fmt::Debug for $transfer<T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($transfer))
                    .field("operation", &self.flags.operation())
                    .field("slot", &self.slot)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use transfer;
