//! Whether memory is there.

use std::fs;

use crate::door::{INVALID, Outcome, c, require};

/// A device finds out when memory is registered whether all of it is mapped, and writable if it is to be written.
///
/// # Errors
///
/// `INVALID_VALUE` if some of it is not mapped, `NOT_PERMITTED` if some of it is not to be read, or to be written.
pub(super) fn check(addr: usize, len: usize, writable: bool) -> Outcome {
    // Where it cannot be told, the program's word is taken.
    let list = || fs::read_to_string("/proc/self/maps");
    sought(LISTINGS, || list().map_or(Ok(()), |maps| covered(&maps, addr, len, writable)))
}

/// The kernel makes the listing page by page, while other threads map and unmap: what is missing in so many of them is not there.
const LISTINGS: u32 = 3;

/// Looks up to so many times for what may be missed.
fn sought(times: u32, look: impl Fn() -> Outcome) -> Outcome {
    (1..times).find_map(|_| Some(look()).filter(|seen| *seen != Err(INVALID))).unwrap_or_else(look)
}

/// `maps` is as proc_pid_maps(5) has it: by address, and mappings that touch are separate lines.
fn covered(maps: &str, addr: usize, len: usize, writable: bool) -> Outcome {
    let end = addr.checked_add(len).ok_or(INVALID)?;
    let mut reached = addr;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let (Some((from, to)), Some(rights)) = (range, words.next()) else { continue };
        let [Ok(from), Ok(to)] = [from, to].map(|text| usize::from_str_radix(text, 16)) else { continue };
        if to <= reached {
            continue;
        }
        if reached >= end || from > reached {
            break;
        }
        let allowed = rights.starts_with('r') && (!writable || rights[1..].starts_with('w'));
        require(allowed, c::DOCA_ERROR_NOT_PERMITTED)?;
        reached = to;
    }
    require(reached >= end, INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_listing_lacks_is_sought_in_others() {
        for (missed, wanted, looks) in [(0, Ok(()), 1), (2, Ok(()), 3), (3, Err(INVALID), 3)] {
            let seen = std::cell::Cell::new(0);
            let outcome = sought(3, || {
                seen.set(seen.get() + 1);
                require(seen.get() > missed, INVALID)
            });
            assert_eq!((outcome, seen.get()), (wanted, looks));
        }
        let denied = Err(c::DOCA_ERROR_NOT_PERMITTED);
        assert_eq!(sought(3, || denied), denied, "it is there");
    }

    #[test]
    fn ranges_are_covered_by_mappings_with_the_rights() {
        let maps = "1000-3000 rw-p 0 00:00 0 [heap]\n3000-4000 r--p 0 00:00 0\n5000-6000 ---p 0 00:00 0 /x y\nrubbish\n";
        let (there, missing, denied) = (Ok(()), Err(INVALID), Err(c::DOCA_ERROR_NOT_PERMITTED));
        for (addr, len, writable, wanted) in [
            (0x1000, 0x3000, false, there),
            (0x1fff, 1, true, there),
            (0x1000, 0x2000, true, there),
            (0x1000, 0x2001, true, denied),
            (0x3fff, 2, false, missing),
            (0x4000, 1, false, missing),
            (0xfff, 2, false, missing),
            (0x5000, 1, false, denied),
            (0x6000, 1, false, missing),
            (usize::MAX, 2, false, missing),
        ] {
            assert_eq!(covered(maps, addr, len, writable), wanted, "{addr:#x}+{len:#x} {writable}");
        }
    }
}
