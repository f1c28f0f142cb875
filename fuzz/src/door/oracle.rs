//! What the bytes must be.

use std::collections::HashMap;

use super::{LEN, Program, c, call};

/// What each byte of the target was last submitted to be written by.
#[derive(Clone, Copy, Default)]
struct Byte {
    /// The last submission that covers it.
    flight: u32,
    /// Two that may have been in flight together do.
    contested: bool,
}

/// The submissions of a run.
pub(super) struct Oracle {
    /// Number of the last one.
    last: u32,
    /// In flight: where each byte comes from and goes to, where both are known.
    flights: HashMap<u32, Vec<(Option<usize>, Option<usize>)>>,
    target: [Byte; LEN],
}

impl Default for Oracle {
    fn default() -> Self {
        Self { last: 0, flights: HashMap::new(), target: [Byte::default(); LEN] }
    }
}

/// Bytes that differ from place to place, and between the memories.
pub(super) fn initial(salt: usize) -> [u8; LEN] {
    std::array::from_fn(|at| ((at * 151 + at / 7 + salt / 16) % 255) as u8)
}

/// The addresses of a list's data, or of the room behind it.
fn addresses(head: *mut c::doca_buf, room: bool) -> Vec<usize> {
    let mut all = Vec::new();
    let mut buf = head;
    while !buf.is_null() && all.len() < 1 << 20 {
        let (mut window, mut data) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut window_len, mut data_len) = (0, 0);
        let codes = [
            call!(doca_buf_get_head(buf, &mut window)),
            call!(doca_buf_get_len(buf, &mut window_len)),
            call!(doca_buf_get_data(buf, &mut data)),
            call!(doca_buf_get_data_len(buf, &mut data_len)),
        ];
        assert_eq!(codes, [c::DOCA_SUCCESS; 4]);
        let (data, end) = (data.addr(), window.addr() + window_len);
        let behind = data.wrapping_add(data_len);
        let range = if room { behind..end } else { data..behind };
        // A program may say that the data is anywhere.
        all.extend(range.take(LEN));
        let mut next = std::ptr::null_mut();
        assert_eq!(call!(doca_buf_get_next_in_list(buf, &mut next)), c::DOCA_SUCCESS);
        buf = next;
    }
    all
}

/// What a copy between two lists moves.
pub(super) fn plan(
    program: &Program,
    src: *mut c::doca_buf,
    dst: *mut c::doca_buf,
) -> Vec<(Option<usize>, Option<usize>)> {
    let source = program.source.as_ptr().addr();
    let target = program.target.addr();
    let place = |address: usize, base: usize| address.checked_sub(base).filter(|at| *at < LEN);
    let pairs = addresses(src, false).into_iter().zip(addresses(dst, true));
    pairs.map(|(from, to)| (place(from, source), place(to, target))).collect()
}

impl Oracle {
    /// A copy was submitted; returns its number.
    pub(super) fn start(&mut self, moves: Vec<(Option<usize>, Option<usize>)>) -> u32 {
        self.last += 1;
        for at in moves.iter().filter_map(|(_, to)| *to) {
            let byte = &mut self.target[at];
            byte.contested |= byte.flight == self.last || self.flights.contains_key(&byte.flight);
            byte.flight = self.last;
        }
        self.flights.insert(self.last, moves);
        self.last
    }

    /// It was not accepted after all.
    pub(super) fn forget(&mut self, flight: u32) {
        self.flights.remove(&flight);
    }

    /// A copy ended.
    pub(super) fn land(&mut self, flight: u32, well: bool, program: &Program) {
        let moves = self.flights.remove(&flight).expect("counted when it was submitted");
        for (from, to) in moves {
            let (Some(from), Some(to)) = (from, to) else { continue };
            let byte = self.target[to];
            if well && byte.flight == flight && !byte.contested {
                assert_eq!(program.peek(to), program.source[from], "byte {to}, copied from {from}");
            }
        }
    }

    /// What no copy was to write has not changed.
    pub(super) fn check_rest(&self, program: &Program) {
        assert_eq!(*program.source, initial(0), "a device wrote what it may only read");
        let before = initial(LEN);
        for (at, byte) in self.target.iter().enumerate() {
            assert!(byte.flight > 0 || program.peek(at) == before[at], "byte {at} was written by nobody");
        }
    }
}

impl Program {
    /// A byte of the target.
    fn peek(&self, at: usize) -> u8 {
        assert!(at < LEN);
        // SAFETY: within the target, which lives as long as the run; devices write it on this thread only.
        unsafe { self.target.add(at).read_volatile() }
    }
}
