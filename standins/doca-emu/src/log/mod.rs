//! The log: sources, backends and levels.
//!
//! There are two audiences. Messages of the application are logged by `doca_log` and go to the application's
//! backends, which have two limits: the most severe level (upper) and the most verbose one (lower). Messages
//! of the SDK, which this crate itself logs, are logged by [`sdk`] and go only to the SDK's backends, which
//! have one limit.
#![expect(unsafe_code, reason = "the C library knows the local time")]

mod backend;
pub(crate) mod calls;

use std::fmt;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use backend::{Backend, LineBuffer, Sink, Stream};
use doca_sys::bindings::{self as sys, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NO_MEMORY};

pub(crate) use backend::Audience;

/// Maximum number of backends of a process. The real library's documentation promises only this number.
const MAX_BACKENDS: usize = 1024;

pub(crate) fn is_level(level: u32) -> bool {
    // Before 2.5, DISABLE and TRACE were missing.
    let inner = sys::DOCA_LOG_LEVEL_CRIT..=sys::DOCA_LOG_LEVEL_DEBUG;
    let all = sys::DOCA_LOG_LEVEL_DISABLE..=sys::DOCA_LOG_LEVEL_TRACE;
    (if cfg!(workq) { inner } else { all }).contains(&level) && level.is_multiple_of(10)
}

/// State of the log. Backends live as long as the process, because no call destroys one.
struct Log {
    sources: Vec<bool>,
    backends: Vec<&'static Backend>,
    standard: bool,
    lower: u32,
    upper: u32,
    sdk: u32,
}

static LOG: RwLock<Log> = RwLock::new(Log {
    sources: Vec::new(),
    backends: Vec::new(),
    standard: false,
    lower: sys::DOCA_LOG_LEVEL_INFO,
    upper: sys::DOCA_LOG_LEVEL_CRIT,
    sdk: sys::DOCA_LOG_LEVEL_INFO,
});

/// For each audience, the most verbose level that any of its backends shows. More verbose messages are not
/// formatted.
static LOUDEST: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

fn read() -> RwLockReadGuard<'static, Log> {
    LOG.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Log> {
    LOG.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a backend of the audience shows messages of this level.
pub(crate) fn is_wanted(audience: Audience, level: u32) -> bool {
    level <= LOUDEST[audience as usize].load(Relaxed)
}

fn publish(record: &Record<'_>, audience: Audience) {
    let backends: Vec<_> = read()
        .backends
        .iter()
        .copied()
        .filter(|b| b.audience() == audience && b.shows(record.level))
        .collect();
    if backends.is_empty() {
        return;
    }
    let mut line = record.to_line();
    for backend in backends {
        backend.write(record.level, &mut line);
    }
}

/// Logs a message of the SDK. Use `sdk_log!`, which first checks whether a backend shows the level.
pub(crate) fn sdk(level: u32, file: &str, line: u32, message: fmt::Arguments<'_>) {
    let message = message.to_string();
    publish(
        &Record { level, file: file.as_bytes(), line, function: b"", message: message.as_bytes() },
        Audience::Sdk,
    );
}

/// Prints a text on standard output through C's `stdout`, so that it keeps its order with the program's own
/// output.
pub(crate) fn print(text: &[u8]) {
    backend::write_standard_output(text);
}

/// Prints an error on standard error, independent of the backends.
pub(crate) fn complain(file: &str, line: u32, message: &[u8]) {
    let level = sys::DOCA_LOG_LEVEL_ERROR;
    let record = Record { level, file: file.as_bytes(), line, function: b"", message };
    backend::write_standard_error(&record.to_line());
}

pub(crate) fn version() -> String {
    crate::world::version().to_string_lossy().into_owned()
}

/// `sdk_log!(ERROR, "no such device: {address}")`: logs a message of the SDK. The levels are in [`levels`].
/// If no backend shows the message, the cost is one load.
macro_rules! sdk_log {
    ($level:ident, $($message:tt)+) => {{
        let level = $crate::log::levels::$level;
        if $crate::log::is_wanted($crate::log::Audience::Sdk, level) {
            $crate::log::sdk(level, file!(), line!(), format_args!($($message)+));
        }
    }};
}
pub(crate) use sdk_log;

/// The levels, under the names that [`sdk_log!`] uses.
pub(crate) mod levels {
    pub(crate) use doca_sys::bindings::{
        DOCA_LOG_LEVEL_ERROR as ERROR, DOCA_LOG_LEVEL_INFO as INFO, DOCA_LOG_LEVEL_WARNING as WARNING,
    };
}

impl Log {
    /// Updates [`LOUDEST`]. Called after every change of backends and limits.
    fn update_loudest(&self) {
        for audience in [Audience::Application, Audience::Sdk] {
            let loudest = self.backends.iter().filter(|b| b.audience() == audience).map(|b| b.lower()).max();
            LOUDEST[audience as usize].store(loudest.unwrap_or(0), Relaxed);
        }
    }

    fn add(&mut self, sink: Sink, audience: Audience) -> Result<&'static Backend, sys::doca_error_t> {
        if self.backends.len() >= MAX_BACKENDS {
            return Err(DOCA_ERROR_NO_MEMORY);
        }
        let (lower, upper) = match audience {
            Audience::Application => (self.lower, self.upper),
            Audience::Sdk => (self.sdk, sys::DOCA_LOG_LEVEL_CRIT),
        };
        let backend: &'static Backend = Box::leak(Box::new(Backend::new(sink, audience, lower, upper)));
        self.backends.push(backend);
        self.update_loudest();
        Ok(backend)
    }
}

/// Adds a backend with the global limits.
fn add_backend(sink: Sink, audience: Audience) -> Result<&'static Backend, sys::doca_error_t> {
    let mut log = write();
    let first = audience == Audience::Sdk && !log.backends.iter().any(|b| b.audience() == Audience::Sdk);
    let backend = log.add(sink, audience)?;
    drop(log);
    if first {
        sdk_log!(INFO, "DOCA version {} (stand-in: dma-doca-emu {})", version(), env!("CARGO_PKG_VERSION"));
    }
    Ok(backend)
}

/// Returns the backend that exists from the start in DOCA 1.5. It writes to standard error, unless the
/// program redirects it.
#[cfg(workq)]
pub(crate) fn first_backend() -> Result<&'static Backend, sys::doca_error_t> {
    static FIRST: std::sync::OnceLock<Result<&'static Backend, sys::doca_error_t>> =
        std::sync::OnceLock::new();
    *FIRST.get_or_init(|| add_backend(Sink::File(Stream::standard_error()), Audience::Application))
}

/// Adds the two standard backends, which NVIDIA's samples use: INFO and less severe messages on standard
/// output, WARNING and more severe ones on standard error. A second call adds nothing, because otherwise
/// every message would be printed twice.
fn add_standard() -> Result<(), sys::doca_error_t> {
    let mut log = write();
    if !log.standard {
        log.add(Sink::StandardOutput, Audience::Application)?;
        log.add(Sink::StandardError, Audience::Application)?;
        log.standard = true;
    }
    Ok(())
}

/// A global limit, for all backends of an audience.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    Lower,
    Upper,
    Sdk,
}

impl Limit {
    fn of(self, log: &mut Log) -> &mut u32 {
        match self {
            Self::Lower => &mut log.lower,
            Self::Upper => &mut log.upper,
            Self::Sdk => &mut log.sdk,
        }
    }
}

/// Changes a limit of all present and later backends of an audience.
pub(crate) fn set_global(limit: Limit, level: u32) -> Result<(), sys::doca_error_t> {
    if !is_level(level) {
        return Err(DOCA_ERROR_INVALID_VALUE);
    }
    let mut log = write();
    *limit.of(&mut log) = level;
    let audience = if matches!(limit, Limit::Sdk) { Audience::Sdk } else { Audience::Application };
    for backend in log.backends.iter().filter(|b| b.audience() == audience) {
        // If a backend's limit is strict, it does not change.
        _ = if matches!(limit, Limit::Upper) { backend.set_upper(level) } else { backend.set_lower(level) };
    }
    log.update_loudest();
    Ok(())
}

/// Returns the limit that later backends begin with.
pub(crate) fn global(limit: Limit) -> u32 {
    *limit.of(&mut write())
}

/// Returns the number of a new source. The numbers of removed sources are reused.
pub(crate) fn add_source() -> i32 {
    let mut log = write();
    let free = log.sources.iter().position(|used| !used).unwrap_or_else(|| {
        log.sources.push(false);
        log.sources.len() - 1
    });
    log.sources[free] = true;
    i32::try_from(free).unwrap_or(i32::MAX)
}

fn is_source(source: i32) -> bool {
    usize::try_from(source).is_ok_and(|n| read().sources.get(n) == Some(&true))
}

fn remove_source(source: i32) -> bool {
    let mut log = write();
    match usize::try_from(source).ok().and_then(|n| log.sources.get_mut(n)) {
        Some(used) => std::mem::replace(used, false),
        None => false,
    }
}

pub(super) struct Record<'a> {
    pub(super) level: u32,
    pub(super) file: &'a [u8],
    pub(super) line: u32,
    /// Name of the function that logs. Empty in messages of the SDK.
    pub(super) function: &'a [u8],
    pub(super) message: &'a [u8],
}

impl Record<'_> {
    /// Formats a line such as `[17:04:05:000123][4711][DOCA][INF][file.c:12][main] message`, as in published
    /// transcripts: local time with microseconds, thread, audience, level, source line, function, message.
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

/// Converts seconds since 1970 to hour, minute and second of the local time.
fn local_time(seconds: u64) -> (i32, i32, i32) {
    let seconds = libc::time_t::try_from(seconds).unwrap_or_default();
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: `seconds` can be read and `broken_down` written during the call.
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
    fn levels_are_the_seven_that_exist() {
        let levels: Vec<u32> = (0..100).filter(|&level| is_level(level)).collect();
        assert_eq!(
            levels,
            if cfg!(workq) { &[20, 30, 40, 50, 60][..] } else { &[10, 20, 30, 40, 50, 60, 70] }
        );
    }

    #[test]
    fn numbers_of_sources_are_given_again() {
        let (first, second) = (add_source(), add_source());
        assert_ne!(first, second);
        assert!(is_source(first) && remove_source(first) && !is_source(first));
        assert!(!remove_source(first), "twice");
        assert!(!remove_source(-1) && !remove_source(i32::MAX));
        assert_eq!(add_source(), first);
        assert!(remove_source(first) && remove_source(second));
    }

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
        // The test may not run on the main thread, so the thread's number is not the process's.
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
