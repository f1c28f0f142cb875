//! [`Cursor`]: a position in a list of segments.

use crate::Segment;

/// A position in a list of segments.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    list: Vec<Segment>,
    at: usize,
    /// Number of bytes of `list[at]` before the position.
    done: usize,
}

impl Cursor {
    pub(crate) fn new(list: Vec<Segment>) -> Self {
        Self { list, at: 0, done: 0 }
    }

    /// Returns the number of segments of the whole list.
    pub(crate) fn segments(&self) -> usize {
        self.list.len()
    }

    /// Returns the next `len` bytes as one segment. All these bytes must be in the current segment.
    pub(crate) fn segment(&self, len: usize) -> Segment {
        let segment = self.list[self.at];
        Segment { addr: segment.addr.offset(self.done), len, ..segment }
    }

    /// Returns the whole list, for reuse of its memory.
    pub(crate) fn into_list(self) -> Vec<Segment> {
        self.list
    }

    /// Returns the number of bytes in the next `max` segments, but at most `limit`.
    pub(crate) fn reach(&self, max: usize, limit: usize) -> usize {
        let mut bytes = 0;
        for (i, segment) in self.list[self.at..].iter().take(max).enumerate() {
            // The sum saturates, because a source may contain the same bytes repeatedly.
            let rest = segment.len - if i == 0 { self.done } else { 0 };
            bytes = rest.saturating_add(bytes);
            if bytes >= limit {
                return limit;
            }
        }
        bytes
    }

    /// Appends the next `bytes` to `out` as segments. Does not move the position.
    pub(super) fn peek(&self, mut bytes: usize, out: &mut Vec<Segment>) {
        let (mut at, mut done) = (self.at, self.done);
        while bytes > 0 {
            let segment = self.list[at];
            let n = bytes.min(segment.len - done);
            out.push(Segment { key: segment.key, addr: segment.addr.offset(done), len: n });
            bytes -= n;
            at += 1;
            done = 0;
        }
    }

    /// Moves the position forward by `bytes`.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let n = bytes.min(self.list[self.at].len - self.done);
            self.done += n;
            bytes -= n;
            if self.done == self.list[self.at].len {
                self.at += 1;
                self.done = 0;
            }
        }
    }
}
