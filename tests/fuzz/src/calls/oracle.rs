//! Computes the expected bytes.

use std::collections::HashMap;

use super::{LEN, MemoryProgram, c, call};

/// The last submission that writes one byte of the target.
#[derive(Clone, Copy, Default)]
struct Byte {
    /// This submission alone writes the byte.
    flight: u32,
    /// Two submissions that may have overlapped in time write the byte.
    contested: bool,
}

/// The source and destination of one byte, if they are known.
type Move = (Option<usize>, Option<usize>);

/// The submissions of a run.
pub(super) struct Oracle {
    /// Number of the last submission.
    last: u32,
    /// Copies in flight, as the source and destination of each byte.
    flights: HashMap<u32, Vec<Move>>,
    target: [Byte; LEN],
}

impl Default for Oracle {
    fn default() -> Self {
        Self { last: 0, flights: HashMap::new(), target: [Byte::default(); LEN] }
    }
}

/// Initial bytes, which differ by position and between the two memories.
pub(super) fn initial(salt: usize) -> [u8; LEN] {
    std::array::from_fn(|at| ((at * 151 + at / 7 + salt / 16) % 255) as u8)
}

/// Returns the addresses of a list's data, or of the space after it.
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
        // The program may have set the data to any address.
        all.extend(range.take(LEN));
        let mut next = std::ptr::null_mut();
        assert_eq!(call!(doca_buf_get_next_in_list(buf, &mut next)), c::DOCA_SUCCESS);
        buf = next;
    }
    all
}

/// Returns the bytes that a copy between two lists moves.
pub(super) fn plan(program: &MemoryProgram, src: *mut c::doca_buf, dst: *mut c::doca_buf) -> Vec<Move> {
    let source = program.source.as_ptr().addr();
    let target = program.target.addr();
    let place = |address: usize, base: usize| address.checked_sub(base).filter(|at| *at < LEN);
    let pairs = addresses(src, false).into_iter().zip(addresses(dst, true));
    pairs.map(|(from, to)| (place(from, source), place(to, target))).collect()
}

impl Oracle {
    /// Records a submitted copy, and returns its number.
    pub(super) fn start(&mut self, moves: Vec<Move>) -> u32 {
        self.last += 1;
        for at in moves.iter().filter_map(|(_, to)| *to) {
            let byte = &mut self.target[at];
            byte.contested |= byte.flight == self.last || self.flights.contains_key(&byte.flight);
            byte.flight = self.last;
        }
        self.flights.insert(self.last, moves);
        self.last
    }

    /// Removes a copy that was refused.
    pub(super) fn forget(&mut self, flight: u32) {
        self.flights.remove(&flight);
    }

    /// Checks a completed copy.
    pub(super) fn land(&mut self, flight: u32, well: bool, program: &MemoryProgram) {
        let moves = self.flights.remove(&flight).expect("recorded when it was submitted");
        for (from, to) in moves {
            let (Some(from), Some(to)) = (from, to) else { continue };
            let byte = self.target[to];
            if well && byte.flight == flight && !byte.contested {
                assert_eq!(program.peek(to), program.source[from], "byte {to}, copied from {from}");
            }
        }
    }

    /// Checks that bytes that no copy writes are unchanged.
    pub(super) fn check_rest(&self, program: &MemoryProgram) {
        assert_eq!(*program.source, initial(0), "a device wrote memory that it may only read");
        let before = initial(LEN);
        for (at, byte) in self.target.iter().enumerate() {
            assert!(
                byte.flight > 0 || program.peek(at) == before[at],
                "byte {at} was written without a task"
            );
        }
    }
}

impl MemoryProgram {
    /// Returns a byte of the target.
    fn peek(&self, at: usize) -> u8 {
        assert!(at < LEN);
        // SAFETY: the address is within the target, which outlives the run. The simulated device
        // writes only on this thread.
        unsafe { self.target.add(at).read_volatile() }
    }
}
