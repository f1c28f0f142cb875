//! Operations with a result. The device executes them if it can. Otherwise the CPU executes them, and the
//! device makes the necessary copies.
//!
//! A query with one segment on each side, within the device's limits, becomes one descriptor. A longer query,
//! or a query that the CPU executes, is executed in chunks. One chunk is in flight at a time, because a chunk
//! needs the result of the previous chunk, and a comparison ends at the first difference. Other operations
//! are in flight at the same time. If the CPU cannot reach an operand, the device first copies the chunk to
//! the bounce buffer.
#![expect(unsafe_code, reason = "reads the operands of an operation in progress")]

use super::cursor::Cursor;
use crate::{Capabilities, Completion, Descriptor, Segment, racy_copy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryKind {
    Compare,
    Crc32c,
    CopyCrc32c,
}

impl QueryKind {
    pub(crate) const fn capability(self) -> Capabilities {
        match self {
            Self::Compare => Capabilities::COMPARE,
            Self::Crc32c => Capabilities::CRC32C,
            Self::CopyCrc32c => Capabilities::COPY_CRC32C,
        }
    }
}

/// A checked operation with a result. Its lists contain no empty segments.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) kind: QueryKind,
    /// The source, or one side of a comparison.
    pub(crate) a: Vec<Segment>,
    /// The destination, or the other side of a comparison. Empty for a CRC.
    pub(crate) b: Vec<Segment>,
    pub(crate) seed: u32,
    /// For each side, true if the CPU can reach it.
    pub(crate) cpu: [bool; 2],
}

impl Query {
    pub(crate) fn len(&self) -> usize {
        self.a.iter().map(|segment| segment.len).sum()
    }

    /// Returns the query's descriptor, if it has one segment on each side.
    pub(crate) fn single(&self, token: u64) -> Option<Descriptor<'static>> {
        match (self.kind, &self.a[..], &self.b[..]) {
            (QueryKind::Compare, &[a], &[b]) => Some(Descriptor::compare(token, a, b)),
            (QueryKind::Crc32c, &[a], []) => Some(Descriptor::crc32c(token, a, self.seed)),
            (QueryKind::CopyCrc32c, &[a], &[b]) => Some(Descriptor::copy_crc32c(token, a, b, self.seed)),
            _ => None,
        }
    }

    /// Returns the result of a query of 0 bytes.
    pub(crate) fn initial(&self) -> u64 {
        if self.kind == QueryKind::Compare { Completion::EQUAL } else { self.seed.into() }
    }

    /// Returns whether the CPU can execute the query without copies to the bounce buffer.
    pub(crate) const fn is_reachable(&self) -> bool {
        let [a, b] = self.cpu;
        match self.kind {
            QueryKind::Compare => a && b,
            QueryKind::Crc32c => a,
            QueryKind::CopyCrc32c => a || b,
        }
    }
}

/// Length of the longest chunk that the CPU reads, in bytes. A chunk takes about 20 us, which bounds the time
/// of a poll.
const CPU_CHUNK: usize = 256 << 10;

/// A [`Query`] in progress.
#[derive(Debug)]
pub(crate) struct QueryProgress {
    kind: QueryKind,
    /// True if the device executes the query.
    native: bool,
    reachable: bool,
    cpu: [bool; 2],
    a: Cursor,
    b: Cursor,
    left: usize,
    /// Number of bytes before the current chunk.
    before: usize,
    /// The result so far.
    pub(crate) result: u64,
    /// Number of descriptors of the current chunk that were submitted.
    submitted: usize,
}

/// A chunk of a query: one segment of each side.
#[derive(Clone, Copy, Debug)]
struct QueryChunk {
    a: Segment,
    b: Segment,
    /// The segments that the CPU reads after the copies.
    read: [Segment; 2],
    /// The copies that the device makes first.
    copies: [Option<(Segment, Segment)>; 2],
}

/// The next step of a query.
pub(crate) enum Step {
    /// Submit this descriptor, then call [`QueryProgress::record_submitted`].
    Submit(Descriptor<'static>),
    /// Wait until all submitted descriptors have been reported, then call [`QueryProgress::settle`].
    Settle,
}

impl QueryProgress {
    pub(crate) fn new(query: Query, native: bool) -> Self {
        Self {
            kind: query.kind,
            native,
            reachable: query.is_reachable(),
            cpu: query.cpu,
            left: query.len(),
            before: 0,
            result: query.initial(),
            a: Cursor::new(query.a),
            b: Cursor::new(query.b),
            submitted: 0,
        }
    }

    pub(crate) const fn is_native(&self) -> bool {
        self.native
    }

    /// Returns whether the query copies to the bounce buffer.
    pub(crate) const fn needs_bounce(&self) -> bool {
        !self.native && !self.reachable
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Returns the next step of the current chunk. `bounce` is required if
    /// [`needs_bounce`](Self::needs_bounce).
    pub(crate) fn next(&self, token: u64, max_transfer: usize, bounce: Option<Segment>) -> Step {
        let QueryChunk { a, b, copies, .. } = self.chunk(max_transfer, bounce);
        if self.native && self.submitted == 0 {
            let seed = self.result as u32;
            return Step::Submit(match self.kind {
                QueryKind::Compare => Descriptor::compare(token, a, b),
                QueryKind::Crc32c => Descriptor::crc32c(token, a, seed),
                QueryKind::CopyCrc32c => Descriptor::copy_crc32c(token, a, b, seed),
            });
        }
        match copies.iter().flatten().nth(self.submitted) {
            Some((src, dst)) => Step::Submit(Descriptor::copy(token, *src, *dst)),
            None => Step::Settle,
        }
    }

    /// Returns the current chunk, which does not change until [`settle`](Self::settle).
    fn chunk(&self, max_transfer: usize, bounce: Option<Segment>) -> QueryChunk {
        let copies = self.kind == QueryKind::CopyCrc32c;
        let half = bounce.map_or(usize::MAX, |bounce| bounce.len / 2);
        let mut len = self.left.min(if self.native { max_transfer } else { CPU_CHUNK.min(half) });
        if copies || bounce.is_some() {
            len = len.min(max_transfer);
        }
        len = self.a.reach(1, len);
        if self.kind != QueryKind::Crc32c {
            len = self.b.reach(1, len);
        }
        let a = self.a.segment(len);
        let b = if self.kind == QueryKind::Crc32c { a } else { self.b.segment(len) };
        let mut chunk = QueryChunk { a, b, read: [a, b], copies: [None; 2] };
        if self.native {
            return chunk;
        }
        if copies {
            chunk.copies[0] = Some((a, b));
            chunk.read = if self.cpu[0] { [a, a] } else { [b, b] };
        }
        if let Some(bounce) = bounce {
            let part = |n: usize| Segment { addr: bounce.addr.offset(n * half), len, ..bounce };
            match self.kind {
                QueryKind::Compare => {
                    for (n, side) in [a, b].into_iter().enumerate().filter(|(n, _)| !self.cpu[*n]) {
                        chunk.read[n] = part(n);
                        chunk.copies[n] = Some((side, part(n)));
                    }
                }
                QueryKind::Crc32c | QueryKind::CopyCrc32c => {
                    chunk.read = [part(0); 2];
                    chunk.copies[1] = Some((a, part(0)));
                }
            }
        }
        chunk
    }

    /// Records that the device accepted the descriptor of [`next`](Self::next).
    pub(crate) const fn record_submitted(&mut self) {
        self.submitted += 1;
    }

    /// Combines the result of the current chunk with the results of the chunks before. All descriptors of the
    /// chunk must have been reported as done. `answer` is the result of the last descriptor. The limit and
    /// the bounce buffer must be the same as in [`next`](Self::next).
    ///
    /// # Safety
    ///
    /// The operands are mapped and initialized. No device writes the parts that the CPU reads, and no
    /// exclusive reference to them is used. Only this operation uses the bounce buffer.
    pub(crate) unsafe fn settle(&mut self, answer: u64, max_transfer: usize, bounce: Option<Segment>) {
        let QueryChunk { a, read, .. } = self.chunk(max_transfer, bounce);
        self.submitted = 0;
        let answer = match (self.native, self.kind) {
            (true, _) => answer,
            // SAFETY: the caller ensures that the operands and the bounce buffer are mapped and initialized,
            // and that nothing else writes the bytes of this chunk or has an exclusive reference to them.
            (false, QueryKind::Compare) => unsafe {
                let [left, right] = read.map(|side| side.addr.as_ptr().cast_const());
                racy_copy::first_difference(left, right, a.len)
                    .map_or(Completion::EQUAL, |differs| differs as u64)
            },
            (false, _) => {
                let from = read[0].addr.as_ptr();
                // SAFETY: the caller ensures that the operand or the bounce buffer is mapped and initialized,
                // and that nothing else writes the bytes of this chunk or has an exclusive reference to them.
                unsafe { racy_copy::crc32c(self.result as u32, from, a.len) }.into()
            }
        };
        self.a.advance(a.len);
        if self.kind != QueryKind::Crc32c {
            self.b.advance(a.len);
        }
        self.left -= a.len;
        match self.kind {
            QueryKind::Compare if answer != Completion::EQUAL => {
                self.result = self.before as u64 + answer;
                self.left = 0;
            }
            QueryKind::Compare => self.before += a.len,
            QueryKind::Crc32c | QueryKind::CopyCrc32c => self.result = answer,
        }
    }

    /// Returns the lists for reuse.
    pub(crate) fn into_lists(self) -> [Vec<Segment>; 2] {
        [self.a.into_list(), self.b.into_list()]
    }
}
