//! Operations that both queue types have.

/// Defines the operations of a queue type. Operands must also implement `$send`.
// Those that take operands by value are always inline, for the same reason as `copy`.
macro_rules! operations {
    ($queue:ty, $result:ident $(, $send:ident)?) => {
        impl $queue {
            /// Fills `dst` with repetitions of `pattern`. The pattern `[x; 8]` sets every byte to `x`. Does
            /// not block. If the device cannot fill, the queue copies from memory that contains the pattern.
            ///
            /// # Errors
            ///
            /// The errors of [`copy`](Self::copy), with the operand; `Unsupported` if the engine can neither
            /// fill nor allocate memory to copy from.
            #[inline(always)]
            pub fn fill<D: $crate::Destination $(+ $send)?>(&self, dst: D, pattern: [u8; 8]) -> $result<D> {
                self.submit_checked(
                    $crate::planner::error::TransferKind::Fill,
                    dst,
                    |inline, dst| inline.fill(dst, pattern),
                    |caps, dst, lists| $crate::planner::check::fill(caps, dst, pattern, lists),
                )
            }

            /// Copies `src` to `dst` and to `also`. All three must have the same length and must not overlap.
            /// Does not block. If the device lacks this operation, the queue submits two copies.
            ///
            /// # Errors
            ///
            /// The errors of [`copy`](Self::copy), with the operands.
            #[inline(always)]
            pub fn copy_to_both<S, D, E>(&self, src: S, dst: D, also: E) -> $result<(S, D, E)>
            where
                S: $crate::Source $(+ $send)?,
                D: $crate::Destination $(+ $send)?,
                E: $crate::Destination $(+ $send)?,
            {
                self.submit_checked(
                    $crate::planner::error::TransferKind::CopyToBoth,
                    (src, dst, also),
                    |inline, (src, dst, also)| inline.copy_to_both(src, dst, also),
                    |caps, (src, dst, also), lists| {
                        $crate::planner::check::copy_to_both(caps.engine, (src, dst, also), lists)
                    },
                )
            }

            /// Compares `a` with `b`, which must have the same length. The result is the offset of the first
            /// byte that differs. Does not block. If the device cannot compare, the CPU compares during
            /// polls. Memory that the CPU cannot reach is copied first.
            ///
            /// ```
            /// # use dma_core::{Buffer, Queue, Result};
            /// # fn demo(queue: &Queue, a: Buffer, b: Buffer) -> Result<()> {
            /// let ((a, b), difference) = queue.compare(a, b)?.wait()?;
            /// assert_eq!(difference, a.iter().zip(&b[..]).position(|(a, b)| a != b));
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            ///
            /// The errors of [`copy`](Self::copy), with the operands, except that `a` and `b` may overlap;
            /// `Unsupported` if neither the device nor the CPU can compare the operands.
            #[inline(always)]
            pub fn compare<A, B>(&self, a: A, b: B) -> $result<(A, B), Option<usize>>
            where
                A: $crate::Source $(+ $send)?,
                B: $crate::Source $(+ $send)?,
            {
                self.submit_checked(
                    $crate::planner::error::TransferKind::Compare,
                    (a, b),
                    |inline, (a, b)| inline.compare(a, b),
                    |caps, (a, b), lists| {
                        let kind = $crate::planner::query::QueryKind::Compare;
                        $crate::planner::check::query(caps, kind, (a, Some(b)), 0, lists)
                    },
                )
            }

            /// Computes the CRC-32C of `src`, as defined for iSCSI and NVMe. `seed` is the CRC-32C of the
            /// preceding bytes, or 0. Does not block. If the device cannot compute the CRC, the CPU computes
            /// it during polls. Memory that the CPU cannot reach is copied first.
            ///
            /// # Errors
            ///
            /// The errors of [`compare`](Self::compare), with the operand.
            #[inline(always)]
            pub fn crc32c<S: $crate::Source $(+ $send)?>(&self, src: S, seed: u32) -> $result<S, u32> {
                self.submit_checked(
                    $crate::planner::error::TransferKind::Crc32c,
                    src,
                    |inline, src| inline.crc32c(src, seed),
                    |caps, src, lists| {
                        let kind = $crate::planner::query::QueryKind::Crc32c;
                        $crate::planner::check::query(caps, kind, (src, None::<&S>), seed, lists)
                    },
                )
            }

            /// Copies `src` to `dst` and computes the CRC-32C of the bytes. `seed` is the CRC-32C of the
            /// preceding bytes, or 0. Does not block. If the device lacks this operation, the CPU computes
            /// the CRC of each copied chunk, from the source if it can reach the source, otherwise from the
            /// destination. If a peer writes a window at the same time, the result may differ from the CRC of
            /// the destination.
            ///
            /// For more destinations, also submit a [`copy`](Self::copy) or a
            /// [`copy_to_both`](Self::copy_to_both) of the same [`Buffer`](crate::Buffer): all may be in
            /// flight at once, because they only read it.
            ///
            /// # Errors
            ///
            /// The errors of [`copy`](Self::copy), with the operands; `Unsupported` in the cases of
            /// [`compare`](Self::compare).
            #[inline(always)]
            pub fn copy_crc32c<S, D>(&self, src: S, dst: D, seed: u32) -> $result<(S, D), u32>
            where
                S: $crate::Source $(+ $send)?,
                D: $crate::Destination $(+ $send)?,
            {
                self.submit_checked(
                    $crate::planner::error::TransferKind::CopyCrc32c,
                    (src, dst),
                    |inline, (src, dst)| inline.copy_crc32c(src, dst, seed),
                    |caps, (src, dst), lists| {
                        let kind = $crate::planner::query::QueryKind::CopyCrc32c;
                        $crate::planner::check::query(caps, kind, (src, Some(dst)), seed, lists)
                    },
                )
            }

            /// Copies `src` to `dst` within this call, if the engine can do so now: see
            /// [`Queue`](crate::Queue). Otherwise, or if the copy is invalid, returns false and copies
            /// nothing. In that case call [`copy`](Self::copy), which submits the copy or returns the reason.
            ///
            /// The call borrows the operands, because the copy is never in flight. A function that gets the
            /// operands by reference needs fewer instructions with it than with `copy`, which moves them into
            /// a transfer and out of it. The operands are single ranges, or [`Rows`](crate::Rows) and a
            /// range.
            ///
            /// ```
            /// # use dma_core::{BufferMut, Queue, Result};
            /// fn mirror(queue: &Queue, mut pair: (BufferMut, BufferMut)) -> Result<(BufferMut, BufferMut)> {
            ///     let (src, dst) = &mut pair;
            ///     if queue.copy_now(src, dst) {
            ///         return Ok(pair);
            ///     }
            ///     Ok(queue.copy(pair.0, pair.1)?.wait()?)
            /// }
            /// ```
            // Always inline, for the same reason as `copy`.
            #[inline(always)]
            #[must_use = "if the result is false, nothing was copied"]
            pub fn copy_now<S, D>(&self, src: &S, dst: &mut D) -> bool
            where
                S: $crate::Source $(+ $send)?,
                D: $crate::Destination $(+ $send)?,
            {
                self.execute_now(|inline| {
                    if S::SINGLE && D::SINGLE {
                        inline.copy(src, &*dst).or_else(|| inline.copy_selected(src, &*dst))
                    } else {
                        inline.copy_rows(src, &*dst)
                    }
                })
                .is_some()
            }

            /// Copies `len` bytes from byte `src_at` of `src` to byte `dst_at` of `dst` within this call, if
            /// the engine can do so now: see [`Queue`](crate::Queue). Otherwise, or if the copy is invalid,
            /// returns false and copies nothing. In that case call [`copy`](Self::copy), which submits the
            /// copy or returns the reason.
            ///
            /// The caller keeps the operands, and no transfer is made. Therefore this costs less than `copy`
            /// if ranges of the same windows are copied repeatedly.
            ///
            /// ```
            /// # use dma_core::{Queue, Result, Window};
            /// # fn demo(queue: &Queue, ring: &Window, to: &Window, at: usize) -> Result<()> {
            /// if !queue.copy_at_once((ring, at), (to, 0), 64) {
            ///     queue.copy(ring.slice(at..at + 64), to.slice(..64))?.wait()?;
            /// }
            /// # Ok(()) }
            /// ```
            #[inline]
            #[must_use = "if the result is false, nothing was copied"]
            pub fn copy_at_once(
                &self,
                (src, src_at): (&$crate::Window, usize),
                (dst, dst_at): (&$crate::Window, usize),
                len: usize,
            ) -> bool {
                self.execute_now(|inline| inline.copy_part((&src.0, src_at), (&dst.0, dst_at), len)).is_some()
            }

            /// Executes the copies of `batch` within this call, if the engine can do so now: see
            /// [`Queue`](crate::Queue). Otherwise, or if a copy is invalid, returns false and copies nothing.
            /// In that case call [`submit`](Self::submit), which submits the batch or returns the reason.
            // The parameter is `&mut`, so that no reference to bytes of the batch's buffers exists.
            #[must_use = "if the result is false, nothing was copied"]
            pub fn submit_at_once<S, D>(&self, batch: &mut $crate::Batch<S, D>) -> bool
            where
                S: $crate::Source,
                D: $crate::Destination,
            {
                self.execute_now(|inline| inline.copy_all(batch)).is_some()
            }

            /// Fills `dst` as [`fill`](Self::fill) does, within this call, as [`copy_now`](Self::copy_now)
            /// copies. Returns false if nothing was written.
            #[inline]
            #[must_use = "if the result is false, nothing was written"]
            pub fn fill_now<D: $crate::Destination $(+ $send)?>(&self, dst: &mut D, pattern: [u8; 8]) -> bool {
                self.execute_now(|inline| inline.fill(&*dst, pattern)).is_some()
            }

            /// Copies as [`copy_to_both`](Self::copy_to_both) does, within this call, as
            /// [`copy_now`](Self::copy_now) does. Returns false if nothing was copied.
            #[inline]
            #[must_use = "if the result is false, nothing was copied"]
            pub fn copy_to_both_now<S, D, E>(&self, src: &S, dst: &mut D, also: &mut E) -> bool
            where
                S: $crate::Source $(+ $send)?,
                D: $crate::Destination $(+ $send)?,
                E: $crate::Destination $(+ $send)?,
            {
                self.execute_now(|inline| inline.copy_to_both(src, &*dst, &*also)).is_some()
            }

            /// Compares as [`compare`](Self::compare) does, within this call, as [`copy_now`](Self::copy_now)
            /// copies. Returns `None` if nothing was compared, and otherwise the offset of the first byte
            /// that differs, or `Some(None)` if the bytes are equal.
            #[inline]
            #[must_use = "if the result is `None`, nothing was compared"]
            pub fn compare_now<A, B>(&self, a: &A, b: &B) -> Option<Option<usize>>
            where
                A: $crate::Source $(+ $send)?,
                B: $crate::Source $(+ $send)?,
            {
                let result = self.execute_now(|inline| inline.compare(a, b))?;
                Some((result != $crate::Completion::EQUAL).then_some(result as usize))
            }

            /// Returns the CRC-32C as [`crc32c`](Self::crc32c) does, within this call, as
            /// [`copy_now`](Self::copy_now) copies. Returns `None` if nothing was computed.
            #[inline]
            #[must_use = "if the result is `None`, nothing was computed"]
            pub fn crc32c_now<S: $crate::Source $(+ $send)?>(&self, src: &S, seed: u32) -> Option<u32> {
                self.execute_now(|inline| inline.crc32c(src, seed)).map(|crc| crc as u32)
            }

            /// Copies and returns the CRC-32C as [`copy_crc32c`](Self::copy_crc32c) does, within this call,
            /// as [`copy_now`](Self::copy_now) does. Returns `None` if nothing was copied.
            #[inline]
            #[must_use = "if the result is `None`, nothing was copied"]
            pub fn copy_crc32c_now<S, D>(&self, src: &S, dst: &mut D, seed: u32) -> Option<u32>
            where
                S: $crate::Source $(+ $send)?,
                D: $crate::Destination $(+ $send)?,
            {
                self.execute_now(|inline| inline.copy_crc32c(src, &*dst, seed)).map(|crc| crc as u32)
            }

            /// Copies the bytes of `src` to `dst`, which must have the same length. Blocks until the copy is
            /// done.
            ///
            /// The bytes need not be registered. On an engine that copies by CPU
            /// ([`CPU_COPIES`](crate::Capabilities::CPU_COPIES)), the calling thread copies them, and shares
            /// copies of 256 KiB or more with the engine's threads where that pays. Any other engine copies
            /// through buffers of `pool`, which must belong to the same engine. Up to 8 chunks are in flight,
            /// each at most half as long as the pool's longest buffers. The device never accesses the slices.
            ///
            /// If all buffers are in use, the copy does not wait for them, because the caller may hold them.
            /// It uses memory that the pool keeps for this purpose, in chunks of at most 32 KiB, one at a
            /// time. Waits up to [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout) for
            /// other calls that use this memory, for queue slots that other operations use, and for a device
            /// that completes nothing. If transfers that have ended hold all slots, drop or wait for them
            /// first: a [`Queue`](crate::Queue) refuses the copy at once, but a
            /// [`SharedQueue`](crate::SharedQueue) waits, because another thread may free a slot.
            ///
            /// # Errors
            ///
            /// Before any byte of `dst` is written: `LengthMismatch`; `WrongEngine` for a pool of another
            /// engine; `InvalidArgument` for a pool with buffers of only 1 byte; `Closed`; `DeviceLost`.
            ///
            /// After a part of `dst` may have been written: `OutOfResources` or `QueueFull` if no memory or
            /// slot becomes free in time; `TimedOut` if the device completes nothing, in which case the queue
            /// keeps the pool's buffers, or at once if a stalled device holds them from earlier copies; the
            /// device failures of [`Transfer::wait`](crate::Transfer::wait).
            pub fn copy_bytes(&self, pool: &$crate::BufferPool, src: &[u8], dst: &mut [u8]) -> $crate::Result<()> {
                $crate::planner::copy_bytes::copy_bytes(self, pool, src, dst)
            }
        }
    };
}
pub(crate) use operations;
