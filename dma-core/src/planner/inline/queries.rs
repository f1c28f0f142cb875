//! Operations with results: comparisons, CRCs, and copies with a CRC.

use super::{Executed, Inline};
use crate::memory::operand::sealed::Operand;
use crate::{Completion, DeviceAddr, Operation, racy_copy};

impl Inline {
    #[inline]
    pub(crate) fn compare<A: Operand, B: Operand>(&self, a: &A, b: &B) -> Option<Executed> {
        if !(A::SINGLE && B::SINGLE) {
            return None;
        }
        let (a, b) = (a.single(), b.single());
        if !(self.reads(a) & self.reads(b) & (a.len == b.len) & self.fits(a.len)) {
            return None;
        }
        if a.len <= self.plain_read_len {
            // SAFETY: as below, and the executor would only make this call.
            let differs = unsafe { racy_copy::first_difference(a.addr.as_ptr(), b.addr.as_ptr(), a.len) };
            return Some(Executed::one(differs.map_or(Completion::EQUAL, |at| at as u64), a.len));
        }
        // SAFETY: the lines above have checked the engine, the rights and the length. The caller owns the
        // operands, which keep their regions registered. Therefore others can write only bytes of windows.
        let result = unsafe { self.execute(&Operation::Compare { a: a.segment(), b: b.segment() }) }?;
        Some(Executed::one(result, a.len))
    }

    #[inline]
    pub(crate) fn crc32c<S: Operand>(&self, src: &S, seed: u32) -> Option<Executed> {
        if !S::SINGLE {
            return None;
        }
        let src = src.single();
        if !(self.reads(src) & self.fits(src.len)) {
            return None;
        }
        if src.len <= self.plain_read_len {
            // SAFETY: as below, and the executor would only make this call.
            let crc = unsafe { plain_crc32c(seed, src.addr, src.len) };
            return Some(Executed::one(crc.into(), src.len));
        }
        // SAFETY: the lines above have checked the engine, the rights and the length. The caller owns the
        // operand, which keeps its region registered. Therefore others can write only bytes of windows.
        let result = unsafe { self.execute(&Operation::Crc32c { src: src.segment(), seed }) }?;
        Some(Executed::one(result, src.len))
    }

    #[inline]
    pub(crate) fn copy_crc32c<S: Operand, D: Operand>(
        &self,
        src: &S,
        dst: &D,
        seed: u32,
    ) -> Option<Executed> {
        if !(S::SINGLE && D::SINGLE) {
            return None;
        }
        let (src, dst) = (src.single(), dst.single());
        if !self.takes_copy(src, dst, D::UNIQUE) {
            return None;
        }
        if src.len <= self.plain_copy_len {
            // SAFETY: as below, and the executor would only make this call.
            let crc = unsafe { plain_copy_crc32c(seed, dst.addr, src.addr, src.len) };
            return Some(Executed::one(crc.into(), dst.len));
        }
        let operation = Operation::CopyCrc32c { src: src.segment(), dst: dst.segment(), seed };
        // SAFETY: `takes_copy` has checked the engine, the rights, the lengths and the overlap. The caller
        // owns the operands, which keep their regions registered. Therefore others can only read a shared
        // source, or access bytes of windows.
        let result = unsafe { self.execute_copy(&operation, dst.len) }?;
        Some(Executed::one(result, dst.len))
    }
}

/// Calls [`racy_copy::crc32c()`], whose code would otherwise be in each call of a queue.
///
/// # Safety
///
/// See [`racy_copy::crc32c()`].
#[inline(never)]
unsafe fn plain_crc32c(seed: u32, src: DeviceAddr, len: usize) -> u32 {
    // SAFETY: both functions have the same requirements, which the caller meets.
    unsafe { racy_copy::crc32c(seed, src.as_ptr(), len) }
}

/// Calls [`racy_copy::copy_crc32c()`], whose code would otherwise be in each call of a queue.
///
/// # Safety
///
/// See [`racy_copy::copy_crc32c()`].
#[inline(never)]
unsafe fn plain_copy_crc32c(seed: u32, dst: DeviceAddr, src: DeviceAddr, len: usize) -> u32 {
    // SAFETY: both functions have the same requirements, which the caller meets.
    unsafe { racy_copy::copy_crc32c(seed, dst.as_ptr(), src.as_ptr(), len) }
}
