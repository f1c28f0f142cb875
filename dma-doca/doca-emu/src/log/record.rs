//! Format of log lines.
#![expect(unsafe_code, reason = "the C library knows the local time")]

use std::io::Write;
use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

use doca_sys::bindings as sys;

/// A log message.
pub(super) struct Record<'a> {
    pub(super) level: u32,
    pub(super) file: &'a [u8],
    pub(super) line: u32,
    /// Empty in messages of the SDK.
    pub(super) function: &'a [u8],
    pub(super) message: &'a [u8],
}

impl Record<'_> {
    /// `[17:04:05:000123][4711][DOCA][INF][file.c:12][main] message` and a line's end, as published
    /// transcripts of programs show it: local time to the microsecond, the thread, the level, the place.
    pub(super) fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.message.len() + 96);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (hour, minute, second) = local_time(since.as_secs());
        let file = self.file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        // Writing to memory does not fail.
        let _ = write!(
            line,
            "[{hour:02}:{minute:02}:{second:02}:{:06}][{thread}][DOCA][{}][",
            since.subsec_micros(),
            tag(self.level)
        );
        line.extend_from_slice(file);
        let _ = write!(line, ":{}]", self.line);
        if !self.function.is_empty() {
            line.push(b'[');
            line.extend_from_slice(self.function);
            line.push(b']');
        }
        line.push(b' ');
        line.extend_from_slice(self.message);
        line.push(b'\n');
        line
    }
}

fn tag(level: u32) -> &'static str {
    match level {
        sys::DOCA_LOG_LEVEL_CRIT => "CRT",
        sys::DOCA_LOG_LEVEL_ERROR => "ERR",
        sys::DOCA_LOG_LEVEL_WARNING => "WRN",
        sys::DOCA_LOG_LEVEL_INFO => "INF",
        sys::DOCA_LOG_LEVEL_DEBUG => "DBG",
        _ => "TRC",
    }
}

/// Hour, minute and second here, of a time in seconds since 1970.
fn local_time(seconds: u64) -> (i32, i32, i32) {
    let seconds = libc::time_t::try_from(seconds).unwrap_or_default();
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call.
    let filled = unsafe { libc::localtime_r(&raw const seconds, broken_down.as_mut_ptr()) };
    if filled.is_null() {
        return (0, 0, 0);
    }
    // SAFETY: the call succeeded, so it has filled the struct.
    let tm = unsafe { broken_down.assume_init() };
    (tm.tm_hour, tm.tm_min, tm.tm_sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_place_without_its_directories() {
        let record = Record {
            level: sys::DOCA_LOG_LEVEL_WARNING,
            file: b"../src/copy.c",
            line: 7,
            function: b"main",
            message: b"careful \xff",
        };
        let line = record.to_line();
        let end = format!("][{}][DOCA][WRN][copy.c:7][main] careful ", std::process::id());
        let head = String::from_utf8_lossy(&line[..line.len() - 2]);
        // The test may run on another thread than the first: then the number is another one.
        let tail = head.split("][").skip(2).collect::<Vec<_>>().join("][");
        assert!(end.ends_with(&tail), "{head}");
        assert_eq!(line[line.len() - 2..], *b"\xff\n");
        assert_eq!(head.as_bytes()[0], b'[');
        assert_eq!(head.find(']'), Some("[hh:mm:ss:uuuuuu".len()));
    }

    #[test]
    fn without_a_function_there_is_no_empty_bracket() {
        let record =
            Record { level: sys::DOCA_LOG_LEVEL_ERROR, file: b"a.rs", line: 1, function: b"", message: b"x" };
        assert!(String::from_utf8(record.to_line()).expect("text").ends_with("[DOCA][ERR][a.rs:1] x\n"));
    }
}
