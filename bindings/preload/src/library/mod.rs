//! The library as programs load it, for x86-64 Linux with the GNU C library.

mod calls;
mod dsa;
mod entry;
mod report;
mod start;
mod system;
mod text;

use core::sync::atomic::AtomicUsize;

use crate::learner::Cell;

/// Lengths from which calls leave the C library, in bytes. The functions in [`entry`] read them. They are 0
/// until the library has started, so that all calls take the long way, which then needs no C library.
struct Limits {
    copy: AtomicUsize,
    fill: AtomicUsize,
    compare: AtomicUsize,
}

static LIMITS: Limits =
    Limits { copy: AtomicUsize::new(0), fill: AtomicUsize::new(0), compare: AtomicUsize::new(0) };

/// Operations that are learned separately.
#[derive(Clone, Copy)]
enum Operation {
    Copy,
    Fill,
    Compare,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Copy, Self::Fill, Self::Compare];

    const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Compare => "compare",
        }
    }
}

/// The shortest range of lengths is 64 KiB to 128 KiB, as a power of two.
const FIRST_CLASS: u32 = 16;
/// Number of ranges of lengths. The last one has no upper end.
const CLASSES: usize = 16;

static CELLS: [[Cell; CLASSES]; 3] = [const { [const { Cell::new() }; CLASSES] }; 3];

/// Returns the cell of an operation and a length.
fn cell(operation: Operation, len: usize) -> &'static Cell {
    let class = len.max(1).ilog2().saturating_sub(FIRST_CLASS) as usize;
    &CELLS[operation as usize][class.min(CLASSES - 1)]
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::trap()
}
