//! The format of traces, version 4, in bytes. Numbers are little-endian or variable. A variable number has 7
//! bits in each byte, the lowest bits first; the highest bit is set in all bytes except the last.
//!
//! A file consists of [`MAGIC`], the version (2 bytes), and blocks. A block consists of the queue (4 bytes),
//! the length (4), the CRC-32 of the content (4) and the content. The contents of a queue's blocks, joined,
//! are its events. The last block has the queue [`END`], and contains the summary: name, times, regions and
//! queues, as `encode_summary` writes them. A block of the queue [`CHECKPOINT`] contains an earlier summary.
//! A checkpoint precedes the first block that names a new queue or region, so that a file without an end can
//! be read. Version 2 has no checkpoints. Versions 2 and 3 do not store the places of regions.
//!
//! An event begins with a byte: its lowest 2 bits are the kind, and the other bits a count. The count
//! [`LONG`] means that the real count follows as a variable number. Times are in units of 8 ns, and count
//! from the end of the previous event.
//!
//! | kind | after the count |
//! |---|---|
//! | [`SUBMIT`] | time to the call, time of the call, `count` operations |
//! | [`FLUSH`], count 0 | time to the call, time of the call |
//! | [`FLUSH`], count [`POLL`] | time to the first of the polls that reported nothing, before another call |
//! | [`DONE`] | time to the first poll, time to the report; the oldest `count` descriptors are done |
//! | [`ENDED`] | the same, and 0 for done, 1 for failed, 2 for aborted; `count` older ones are in flight |
//!
//! An operation begins with a byte: the kind, and the flags [`FENCE`], [`SAME_LEN`], [`SAME_SRC`],
//! [`SAME_DST`]. The length of the operation follows, unless it equals that of the previous operation. After
//! that, each side that has segments follows. A list begins with the number and the lengths of its segments.
//! Each segment has its region, unless it equals that of the side's previous segment, and the distance from
//! the end of that previous segment. The kind [`REPEAT`] stands for further copies that are as long as the
//! previous operation, which must be a copy; their number follows. On both sides, each begins where the
//! previous one ends. With [`STRIDE`], two distances follow, for the sources and for the destinations, each
//! from the end of the previous segment.

/// The first bytes of a trace file.
pub(super) const MAGIC: &[u8; 8] = b"DMATRACE";
pub(super) const VERSION: u16 = 4;
/// The oldest version that this build reads.
pub(super) const OLDEST: u16 = 2;
/// The first version that stores the places of regions.
pub(super) const PLACES: u16 = 4;
pub(super) const HEADER: usize = MAGIC.len() + 2;
pub(super) const BLOCK: usize = 12;
/// The queue number of the last block.
pub(super) const END: u32 = u32::MAX;
/// The queue number of an earlier summary.
pub(super) const CHECKPOINT: u32 = u32::MAX - 1;
/// The number of bits by which nanoseconds are shifted to get the unit of time.
pub(super) const TIME: u32 = 3;

pub(super) const SUBMIT: u8 = 0;
pub(super) const FLUSH: u8 = 1;
pub(super) const DONE: u8 = 2;
pub(super) const ENDED: u8 = 3;
pub(super) const LONG: u8 = 63;
/// The count of a [`FLUSH`] event that stands for polls instead of a doorbell.
pub(super) const POLL: u8 = 1;

pub(super) const COPY: u8 = 0;
pub(super) const LISTS: u8 = 1;
pub(super) const FILL: u8 = 2;
pub(super) const COMPARE: u8 = 3;
pub(super) const CRC: u8 = 4;
pub(super) const COPY_CRC: u8 = 5;
pub(super) const BOTH: u8 = 6;
pub(super) const REPEAT: u8 = 7;
pub(super) const KIND: u8 = 7;
pub(super) const FENCE: u8 = 1 << 3;
pub(super) const SAME_LEN: u8 = 1 << 4;
pub(super) const SAME_SRC: u8 = 1 << 5;
pub(super) const SAME_DST: u8 = 1 << 6;
/// The bit of a [`REPEAT`] with distances.
pub(super) const STRIDE: u8 = 1 << 5;

/// Maximum number of bytes of a variable number.
pub(super) const NUMBER: usize = 10;

/// Encodes a signed distance, so that short distances in both directions become small numbers.
#[inline]
pub(super) const fn zigzag(from: u64, to: u64) -> u64 {
    let distance = to.wrapping_sub(from).cast_signed();
    ((distance << 1) ^ (distance >> 63)).cast_unsigned()
}

/// Decodes a distance that [`zigzag`] encoded.
pub(super) const fn unzigzag(from: u64, number: u64) -> u64 {
    from.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg())
}

/// Maximum number of bytes that are written at a time: an event without operations, an operation without
/// lists, or a segment of a list.
pub(super) const ROOM: usize = 64;

/// A buffer for the bytes of an event.
#[derive(Debug)]
pub(super) struct Place<'a> {
    bytes: &'a mut [u8; ROOM],
    len: usize,
}

impl Place<'_> {
    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        // The length is never exceeded; the remainder only avoids a bounds check.
        self.bytes[self.len % ROOM] = byte;
        self.len += 1;
    }

    #[inline]
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

/// Bytes to be written, in a buffer that never grows.
#[derive(Debug)]
pub(super) struct Encoder {
    bytes: Box<[u8]>,
    len: usize,
}

impl Encoder {
    pub(super) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len].into(), len: 0 }
    }

    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Writes at most [`ROOM`] bytes. The caller has checked that they fit.
    #[inline]
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Place<'_>)) {
        if let Some(bytes) = self.bytes[self.len..].first_chunk_mut() {
            let mut place = Place { bytes, len: 0 };
            write(&mut place);
            self.len += place.len;
        }
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.write(|place| place.byte(byte));
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.write(|place| place.number(number));
    }

    /// Writes an event with its count and times.
    #[inline]
    pub(super) fn event(&mut self, kind: u8, count: u64, times: &[u64]) {
        self.write(|place| {
            if count < u64::from(LONG) {
                place.byte(kind | (count as u8) << 2);
            } else {
                place.byte(kind | LONG << 2);
                place.number(count);
            }
            times.iter().for_each(|time| place.number(*time));
        });
    }
}

/// Untrusted bytes to be read.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..NUMBER as u32 * 7).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // Only one bit of the tenth byte belongs to the number.
            if shift == 63 && byte > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Returns the kind and the count of an event.
    pub(super) fn event(&mut self) -> Option<(u8, u64)> {
        let byte = self.byte()?;
        let count = if byte >> 2 == LONG { self.number()? } else { u64::from(byte >> 2) };
        Some((byte & 3, count))
    }
}
