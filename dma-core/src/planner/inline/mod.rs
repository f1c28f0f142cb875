//! [`Inline`]: short operations that the CPU executes in the thread that submits them.
#![expect(unsafe_code, reason = "passes checked operations to the executor")]

mod queries;
mod rows;

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Planner;
use super::batch::{Batch, CheckedPairs};
use super::check::Lists;
use super::plain::{By, grants, is_valid, shared_bytes};
use super::plan::Plan;
use crate::memory::operand::sealed::Operand;
use crate::memory::range::Range;
use crate::{
    Access, DeviceAddr, EngineId, InlineCopy, InlineExecutor, Operation, RawQueue, Segment, racy_copy,
};

/// Maximum number of bytes of a batch or of a copy of lists, as a multiple of [`InlineExecutor::max_len`].
const MAX_TOTAL: usize = 16;

/// Minimum average length, in bytes, of the copies of a batch that are passed to the executor several at a
/// time.
const LONG_COPY: usize = 4 << 10;
/// Maximum number of copies in one call of the executor.
const COPIES_IN_A_CALL: usize = 32;

/// A queue's [`InlineExecutor`]. Operations are checked before they are passed to the executor.
///
/// Each method checks an operation as [`check`](super::check) does, and executes it. If the operation is
/// invalid, empty, too long, has lists, or uses memory that the CPU cannot reach, the method returns `None`
/// and has no effect. Then the planner accepts the operation, or finds the reason for the refusal.
#[derive(Debug)]
pub(crate) struct Inline {
    engine: EngineId,
    executor: Option<Executor>,
    /// Maximum length of an operation, in bytes; 0 if no operation may be executed now.
    limit: usize,
    /// The value of `limit` for copies that the executor needs not admit: 0 if it selects copies.
    copy_limit: usize,
    /// The value of `limit` while operations may be executed; 0 without an executor.
    max_len: usize,
    /// See [`InlineExecutor::plain_copy_len`]; 0 if the executor selects copies.
    pub(super) plain_copy_len: usize,
    /// See [`InlineExecutor::plain_read_len`].
    plain_read_len: usize,
    /// See [`InlineExecutor::batches_short_copies`].
    batches_short_copies: bool,
    /// See [`InlineExecutor::selects_copies`].
    selects_copies: bool,
}

/// A shared executor, with the address of its value. A call through the [`Arc`] computes this address each
/// time, from the value's alignment.
#[derive(Debug)]
struct Executor {
    value: NonNull<dyn InlineExecutor>,
    shared: Arc<dyn InlineExecutor>,
}

// SAFETY: `value` is used only as a shared reference to the value of `shared`, which is `Send` and `Sync`.
unsafe impl Send for Executor {}
// SAFETY: `value` is used only as a shared reference to a value that is `Sync`.
unsafe impl Sync for Executor {}

impl Executor {
    fn new(shared: Arc<dyn InlineExecutor>) -> Self {
        Self { value: NonNull::from(&*shared), shared }
    }
}

impl Deref for Executor {
    type Target = dyn InlineExecutor;

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: `new` made the pointer from `shared`, which keeps the value alive and at its address.
        unsafe { self.value.as_ref() }
    }
}

impl Planner {
    /// Returns whether the engine has an executor that selects copies.
    #[inline]
    pub(crate) const fn selects_copies(&self) -> bool {
        self.inline.selects_copies()
    }

    /// Returns the executor of short operations, if the engine has one and the queue is open.
    pub(crate) fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.inline.executor()
    }

    /// Executes an operation in this call, if inline execution is allowed now and `run` finds the operation
    /// valid and short enough.
    #[inline]
    pub(crate) fn execute_inline(
        &mut self,
        run: impl FnOnce(&Inline, &Lists) -> Option<Executed>,
    ) -> Option<u64> {
        if !self.inline.is_allowed() || self.is_poisoned() {
            return None;
        }
        let Executed { result, operations, bytes } =
            self.device.guard.call_executor(|| run(&self.inline, &self.lists))?;
        self.outcomes.count_executed(operations, bytes);
        Some(result)
    }

    /// Removes and returns the executor, for a layer above that calls it without this planner.
    pub(crate) fn take_inline(&mut self) -> Inline {
        let none = Inline::none(self.engine);
        std::mem::replace(&mut self.inline, none)
    }
}

/// An operation that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed {
    pub(crate) result: u64,
    /// Number of operations: more than 1 for a batch.
    pub(crate) operations: u64,
    /// Number of bytes written, or read if the operation writes none.
    pub(crate) bytes: usize,
}

impl Executed {
    /// Makes the value for a single operation.
    #[inline]
    const fn one(result: u64, bytes: usize) -> Self {
        Self { result, operations: 1, bytes }
    }
}

impl Inline {
    pub(crate) fn new(raw: &dyn RawQueue) -> Self {
        let executor = raw.inline_executor().map(Executor::new);
        let max_len = executor.as_ref().map_or(0, |executor| executor.max_len());
        let batches_short_copies = executor.as_ref().is_some_and(|executor| executor.batches_short_copies());
        let selects_copies = executor.as_ref().is_some_and(|executor| executor.selects_copies());
        let states = executor.as_ref().filter(|_| !selects_copies);
        let plain_copy_len = states.map_or(0, |executor| executor.plain_copy_len());
        let plain_read_len = executor.as_ref().map_or(0, |executor| executor.plain_read_len());
        let mut inline = Self {
            executor,
            max_len,
            plain_copy_len,
            plain_read_len,
            batches_short_copies,
            selects_copies,
            ..Self::none(raw.engine_id())
        };
        inline.allow(true);
        inline
    }

    /// Makes an `Inline` without an executor.
    pub(crate) const fn none(engine: EngineId) -> Self {
        Self {
            engine,
            executor: None,
            limit: 0,
            copy_limit: 0,
            max_len: 0,
            plain_copy_len: 0,
            plain_read_len: 0,
            batches_short_copies: false,
            selects_copies: false,
        }
    }

    /// Allows operations, or suspends them while others are in flight.
    #[inline]
    pub(crate) const fn allow(&mut self, allowed: bool) {
        self.limit = if allowed { self.max_len } else { 0 };
        self.copy_limit = if self.selects_copies { 0 } else { self.limit };
    }

    /// Drops the executor.
    pub(crate) fn end(&mut self) {
        (self.executor, self.limit, self.copy_limit, self.max_len) = (None, 0, 0, 0);
    }

    /// Returns whether operations are allowed now.
    #[inline]
    pub(crate) const fn is_allowed(&self) -> bool {
        self.limit > 0
    }

    /// Returns the executor, if the engine has one and the queue is open.
    pub(crate) fn executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        self.executor.as_ref().map(|executor| Arc::clone(&executor.shared))
    }

    /// Returns whether there is an executor.
    #[inline]
    pub(crate) const fn exists(&self) -> bool {
        self.max_len > 0
    }

    /// Returns whether an operation of `len` bytes is not empty and short enough. False if `limit` is 0.
    #[inline]
    const fn fits(&self, len: usize) -> bool {
        len.wrapping_sub(1) < self.limit
    }

    #[inline]
    fn reads(&self, range: &Range) -> bool {
        grants(By::Cpu, self.engine, range, Access::READ)
    }

    #[inline]
    fn writes(&self, range: &Range) -> bool {
        grants(By::Cpu, self.engine, range, Access::WRITE)
    }

    /// Returns whether a copy is valid and short enough. `unique` is true if no other operand can overlap the
    /// destination.
    #[inline]
    fn takes_copy(&self, src: &Range, dst: &Range, unique: bool) -> bool {
        self.fits(dst.len) & is_valid(By::Cpu, self.engine, src, dst, unique)
    }

    /// Returns whether the executor executes these copies, which are valid and short enough. The copies must
    /// be executed at once if the result is true.
    #[inline]
    fn admits(&self, copies: u64, bytes: usize) -> bool {
        !self.selects_copies || self.is_admitted(copies, bytes)
    }

    /// See [`admits`](Self::admits).
    #[cold]
    #[inline(never)]
    fn is_admitted(&self, copies: u64, bytes: usize) -> bool {
        self.executor.as_ref().is_some_and(|executor| executor.admits_copies(copies, bytes))
    }

    /// Executes a copy that is not plain, if the executor admits it. `len` is the length of its source.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::execute`].
    #[inline]
    unsafe fn execute_copy(&self, operation: &Operation<'_>, len: usize) -> Option<u64> {
        if !self.admits(1, len) {
            return None;
        }
        // SAFETY: both methods have the same requirements, which the caller meets.
        unsafe { self.execute(operation) }
    }

    /// Executes an operation.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::execute`].
    #[inline]
    unsafe fn execute(&self, operation: &Operation<'_>) -> Option<u64> {
        let executor = self.executor.as_ref()?;
        // SAFETY: this method and the executor's method have the same requirements, and the caller meets
        // them.
        Some(unsafe { executor.execute(operation) })
    }

    #[inline]
    pub(crate) fn copy<S: Operand, D: Operand>(&self, src: &S, dst: &D) -> Option<Executed> {
        if !(S::SINGLE && D::SINGLE) {
            return None;
        }
        let (src, dst) = (src.single(), dst.single());
        if !(self.fits_plain_copy(dst.len) && is_valid(By::Cpu, self.engine, src, dst, D::UNIQUE)) {
            return None;
        }
        // SAFETY: the lines above have checked the engine, the rights, the lengths and the overlap. Views lie
        // inside their regions and keep them registered. The caller owns the operands. Therefore others can
        // only read a shared source, or access bytes of windows.
        let executed = unsafe { self.copy_checked(src.addr, dst.addr, dst.len) };
        executed.then_some(Executed::one(0, dst.len))
    }

    /// Returns whether a copy is not empty and short enough, and the executor need not admit it. False while
    /// no operation may be executed.
    #[inline(always)]
    pub(crate) const fn fits_plain_copy(&self, len: usize) -> bool {
        len.wrapping_sub(1) < self.copy_limit
    }

    /// Executes a copy that is valid, short enough and admitted, if there is an executor. Returns whether it
    /// was executed.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::copy`].
    #[inline(always)]
    pub(super) unsafe fn copy_checked(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) -> bool {
        if len <= self.plain_copy_len {
            // SAFETY: the caller meets the requirements of the executor, which would only make this call.
            unsafe { racy_copy::copy(dst.as_ptr(), src.as_ptr(), len) };
            return true;
        }
        let Some(executor) = self.executor.as_ref() else { return false };
        // SAFETY: the caller meets the requirements.
        unsafe { executor.copy(src, dst, len) };
        true
    }

    /// Does the work of [`copy`](Self::copy) for an executor that selects copies.
    #[inline]
    pub(crate) fn copy_selected<S: Operand, D: Operand>(&self, src: &S, dst: &D) -> Option<Executed> {
        if !(self.selects_copies && S::SINGLE && D::SINGLE) {
            return None;
        }
        let (src, dst) = (src.single(), dst.single());
        if !self.takes_copy(src, dst, D::UNIQUE) {
            return None;
        }
        // SAFETY: as in `copy`.
        unsafe { self.copy_if_admitted(src.addr, dst.addr, dst.len) }.then_some(Executed::one(0, dst.len))
    }

    /// Executes a copy, if the executor admits it. Returns whether it was executed.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::copy`].
    // The arguments are not references, because then the compiler would keep operands in memory.
    #[cold]
    #[inline(never)]
    unsafe fn copy_if_admitted(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) -> bool {
        let Some(executor) = self.executor.as_ref() else {
            return false;
        };
        let admits = executor.admits_copies(1, len);
        if admits {
            // SAFETY: the caller meets the requirements.
            unsafe { executor.copy(src, dst, len) };
        }
        admits
    }

    /// See [`InlineExecutor::selects_copies`].
    #[inline]
    pub(crate) const fn selects_copies(&self) -> bool {
        self.selects_copies
    }

    /// Copies `len` bytes from byte `src_at` of one view to byte `dst_at` of another view.
    #[inline]
    pub(crate) fn copy_part(
        &self,
        (src, src_at): (&Range, usize),
        (dst, dst_at): (&Range, usize),
        len: usize,
    ) -> Option<Executed> {
        let is_inside = |view: &Range, at: usize| at <= view.len && len <= view.len - at;
        let granted = self.reads(src) & self.writes(dst);
        if !(granted & self.fits(len) & is_inside(src, src_at) & is_inside(dst, dst_at)) {
            return None;
        }
        let ((src_space, from), (dst_space, to)) = (src.located_at(src_at), dst.located_at(dst_at));
        if src_space == dst_space && from.abs_diff(to) < len as u64 {
            return None;
        }
        if !self.admits(1, len) {
            return None;
        }
        // SAFETY: the lines above have checked the engine, the rights and the overlap, and that both ranges
        // lie inside their views. The views keep their regions registered. Both views are windows, so no
        // reference to their bytes exists.
        let executed = unsafe { self.copy_checked(src.addr.offset(src_at), dst.addr.offset(dst_at), len) };
        executed.then_some(Executed::one(0, len))
    }

    /// Executes all copies of `batch`, or none of them.
    #[inline]
    pub(crate) fn copy_all<S: Operand, D: Operand>(&self, batch: &mut Batch<S, D>) -> Option<Executed> {
        if !(S::SINGLE && D::SINGLE && self.is_allowed()) || batch.pairs.is_empty() {
            return None;
        }
        let executor = self.executor.as_ref()?;
        let CheckedPairs { longest, bytes, .. } = match batch.checked {
            Some(checked) if checked.engine == self.engine => checked,
            _ => *batch.checked.insert(self.check_all(&batch.pairs)?),
        };
        if longest > self.limit || bytes > self.limit.saturating_mul(MAX_TOTAL) {
            return None;
        }
        let pairs = &batch.pairs[..];
        if !self.admits(pairs.len() as u64, bytes) {
            return None;
        }
        // The product does not overflow, because each pair has at least one byte.
        if self.batches_short_copies || bytes >= LONG_COPY * pairs.len() {
            // SAFETY: `check_all` has checked each pair as `copy` does. The operands have not changed since,
            // because each change of a batch removes the result of the check.
            unsafe { Self::copy_long(&**executor, pairs) };
        } else {
            for (src, dst) in pairs {
                let (src, dst) = (src.single(), dst.single());
                // SAFETY: `check_all` has checked each pair as `copy` does. The operands have not changed
                // since, because each change of a batch removes the result of the check.
                unsafe { self.copy_checked(src.addr, dst.addr, dst.len) };
            }
        }
        Some(Executed { result: 0, operations: pairs.len() as u64, bytes })
    }

    /// Checks all pairs, each of single ranges, as [`copy`](Self::copy) does, except for the limits of
    /// length. Returns `None` if a pair is invalid or empty.
    fn check_all<S: Operand, D: Operand>(&self, pairs: &[(S, D)]) -> Option<CheckedPairs> {
        let mut checked = CheckedPairs { engine: self.engine, longest: 0, bytes: 0 };
        for (src, dst) in pairs {
            let (src, dst) = (src.single(), dst.single());
            if !is_valid(By::Cpu, self.engine, src, dst, D::UNIQUE) || dst.len == 0 {
                return None;
            }
            checked.longest = checked.longest.max(dst.len);
            checked.bytes = checked.bytes.checked_add(dst.len)?;
        }
        Some(checked)
    }

    /// Executes copies of single ranges, several in a call.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`InlineExecutor::copy`], for each pair.
    #[inline(never)]
    unsafe fn copy_long<S: Operand, D: Operand>(executor: &dyn InlineExecutor, pairs: &[(S, D)]) {
        let mut copies = [InlineCopy::default(); COPIES_IN_A_CALL];
        for pairs in pairs.chunks(COPIES_IN_A_CALL) {
            for (copy, (src, dst)) in copies.iter_mut().zip(pairs) {
                let (src, dst) = (src.single(), dst.single());
                *copy = InlineCopy { src: src.addr, dst: dst.addr, len: dst.len };
            }
            // SAFETY: the caller meets the requirements for each pair. The operands are behind a shared
            // reference, so they have not changed since the caller checked them.
            unsafe { executor.copy_all(&copies[..pairs.len()]) };
        }
    }

    #[inline]
    pub(crate) fn copy_to_both<S, D, E>(&self, src: &S, dst: &D, also: &E) -> Option<Executed>
    where
        S: Operand,
        D: Operand,
        E: Operand,
    {
        if !(S::SINGLE && D::SINGLE && E::SINGLE) {
            return None;
        }
        let (src, dst, also) = (src.single(), dst.single(), also.single());
        let unique = D::UNIQUE && E::UNIQUE;
        if !(self.takes_copy(src, dst, D::UNIQUE)
            && self.takes_copy(src, also, E::UNIQUE)
            && (unique || shared_bytes(dst, also) == 0))
        {
            return None;
        }
        let operation = Operation::CopyToBoth { src: src.segment(), dst: &[dst.segment(), also.segment()] };
        // SAFETY: the lines above have checked the operands of both copies as `copy` does, and that the
        // destinations do not overlap. The caller owns the operands, as in `copy`.
        let result = unsafe { self.execute_copy(&operation, src.len) }?;
        Some(Executed::one(result, 2 * src.len))
    }

    #[inline]
    pub(crate) fn fill<D: Operand>(&self, dst: &D, pattern: [u8; 8]) -> Option<Executed> {
        if !D::SINGLE {
            return None;
        }
        let dst = dst.single();
        if !(self.writes(dst) && self.fits(dst.len)) {
            return None;
        }
        if dst.len <= self.plain_copy_len && pattern == [pattern[0]; 8] {
            // SAFETY: as below, and the executor would only make this call.
            unsafe { racy_copy::set(dst.addr.as_ptr(), pattern[0], dst.len) };
            return Some(Executed::one(0, dst.len));
        }
        // SAFETY: the lines above have checked the engine, the rights and the length. The caller owns the
        // operand, which keeps its region registered. A writable operand is a buffer without other views, or
        // a window, so no reference to its bytes exists.
        let result = unsafe { self.execute(&Operation::Fill { pattern, dst: &[dst.segment()] }) }?;
        Some(Executed::one(result, dst.len))
    }

    /// Executes a copy or a fill of lists that [`check`](super::check) has checked. `is_cpu_visible` is true
    /// if the CPU can reach all of its memory.
    pub(crate) fn lists(&self, plan: &Plan, is_cpu_visible: bool) -> Option<Executed> {
        let are_short = |list: &[Segment]| list.iter().all(|segment| segment.len <= self.limit);
        let bytes = plan.len();
        let operation = match plan {
            Plan::Lists(src, dst) if are_short(src) || are_short(dst) => Operation::CopyLists { src, dst },
            Plan::Fill(pattern, dst) if are_short(dst) => Operation::Fill { pattern: *pattern, dst },
            _ => return None,
        };
        if !is_cpu_visible || bytes > self.limit.saturating_mul(MAX_TOTAL) {
            return None;
        }
        if matches!(plan, Plan::Lists(..)) && !self.admits(1, bytes) {
            return None;
        }
        // SAFETY: the plan is checked, and the CPU can reach its memory. The caller owns the operands, so
        // their regions are registered. Others can only read a shared source, or access bytes of windows.
        let result = unsafe { self.execute(&operation) }?;
        Some(Executed::one(result, bytes))
    }
}
