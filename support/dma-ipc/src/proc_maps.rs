//! Looks up mappings of this process, for the checks that registering memory with a device would make.

use std::{fs, io};

/// The state of a range of this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// The whole range is mapped with the rights.
    Whole,
    /// A part of the range is not mapped.
    Missing,
    /// A mapped part of the range lacks a requested right. All bytes before this part are mapped with the
    /// rights.
    Denied,
}

/// Number of listings that must all lack a mapping. One listing may miss a mapping, because the kernel writes
/// it page by page while other threads map and unmap.
const LISTINGS: u32 = 3;

/// Returns the state of `len` bytes at `address`, for reading, and for writing if `writable`.
///
/// # Errors
///
/// The mappings cannot be listed, for example because `/proc` is not mounted.
pub fn mapped(address: u64, len: u64, writable: bool) -> io::Result<Mapped> {
    sought(LISTINGS, || Ok(find(&fs::read_to_string("/proc/self/maps")?, address, len, writable)))
}

/// Calls `look` up to `times` times, until it returns a state other than `Missing`. Returns the last state.
fn sought(times: u32, look: impl Fn() -> io::Result<Mapped>) -> io::Result<Mapped> {
    let mut seen = look()?;
    for _ in 1..times {
        if seen != Mapped::Missing {
            break;
        }
        seen = look()?;
    }
    Ok(seen)
}

/// Finds the range in `maps`, which has the format of proc_pid_maps(5): sorted by address, with adjacent
/// mappings on separate lines.
fn find(maps: &str, address: u64, len: u64, writable: bool) -> Mapped {
    let Some(end) = address.checked_add(len) else { return Mapped::Missing };
    let mut reached = address;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let (Some((from, to)), Some(rights)) = (range, words.next()) else { continue };
        let [Ok(from), Ok(to)] = [from, to].map(|text| u64::from_str_radix(text, 16)) else { continue };
        if to <= reached {
            continue;
        }
        if reached >= end || from > reached {
            break;
        }
        if !rights.starts_with('r') || (writable && !rights[1..].starts_with('w')) {
            return Mapped::Denied;
        }
        reached = to;
    }
    if reached >= end { Mapped::Whole } else { Mapped::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_covered_by_whole_mappings_with_the_rights() {
        let maps = "1000-3000 rw-p 0 00:00 0 [heap]\n3000-4000 r--p 0 00:00 0\n5000-6000 rw-s 0 00:00 0 /x y\n\
                    6000-7000 ---p 0 00:00 0\nrubbish\n";
        use Mapped::{Denied, Missing, Whole};
        for (address, len, writable, wanted) in [
            (0x1000, 0x3000, false, Whole),
            (0x1fff, 1, true, Whole),
            (0x1000, 0x2000, true, Whole),
            (0x1000, 0x2001, true, Denied),
            (0x3fff, 1, false, Whole),
            (0x3fff, 2, false, Missing),
            (0x4000, 1, false, Missing),
            (0xfff, 2, false, Missing),
            (0x5000, 0x1000, true, Whole),
            (0x5000, 0x1001, false, Denied),
            (0x6000, 1, false, Denied),
            (0x7000, 1, false, Missing),
            (u64::MAX, 2, false, Missing),
        ] {
            assert_eq!(find(maps, address, len, writable), wanted, "{address:#x}+{len:#x} {writable}");
        }
    }

    #[test]
    fn a_range_missing_in_one_listing_is_sought_in_others() {
        use Mapped::{Denied, Missing, Whole};
        for (missed, then, wanted, looks) in
            [(0, Whole, Whole, 1), (2, Whole, Whole, 3), (3, Whole, Missing, 3), (0, Denied, Denied, 1)]
        {
            let seen = std::cell::Cell::new(0);
            let outcome = sought(3, || {
                seen.set(seen.get() + 1);
                Ok(if seen.get() > missed { then } else { Missing })
            });
            assert_eq!((outcome.unwrap(), seen.get()), (wanted, looks));
        }
    }
}
