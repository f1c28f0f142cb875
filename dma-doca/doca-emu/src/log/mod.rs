//! The log: sources, backends and levels.
//!
//! There are two audiences. Application messages come in through `doca_log` and go to the application's
//! backends, whose limits say from which level (upper) to which (lower, the more talkative end). Messages of
//! the SDK, here those of this crate, come in through [`sdk`] and go to the SDK's backends alone, which have
//! one limit.

mod backend;
pub(crate) mod calls;
mod record;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use doca_sys::bindings::{self as sys, DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NO_MEMORY};

pub(crate) use backend::Audience;
use backend::{Backend, LineBuffer, Sink, Stream};
use record::Record;

/// Backends of one process, as far as the real library's documentation promises any.
const MAX_BACKENDS: usize = 1024;

/// A level that exists.
pub(crate) fn is_level(level: u32) -> bool {
    // Without the first and the last of them before 2.5.
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

/// The most talkative level that any backend of an audience shows. Messages beyond are not formatted.
static LOUDEST: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

fn read() -> RwLockReadGuard<'static, Log> {
    LOG.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Log> {
    LOG.write().unwrap_or_else(PoisonError::into_inner)
}

/// Some backend shows messages of that level.
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

/// Logs a message of the SDK. Use `sdk_log!`, which asks first whether anybody listens.
pub(crate) fn sdk(level: u32, file: &str, line: u32, message: fmt::Arguments<'_>) {
    let message = message.to_string();
    publish(
        &Record { level, file: file.as_bytes(), line, function: b"", message: message.as_bytes() },
        Audience::Sdk,
    );
}

/// Prints a text on standard output, in order with what the program prints there through C's streams.
pub(crate) fn print(text: &[u8]) {
    backend::write_standard_output(text);
}

/// Shows an error to the user on standard error, whatever backends there are.
pub(crate) fn complain(file: &str, line: u32, message: &[u8]) {
    let level = sys::DOCA_LOG_LEVEL_ERROR;
    let record = Record { level, file: file.as_bytes(), line, function: b"", message };
    backend::write_standard_error(&record.to_line());
}

/// Version of the SDK.
pub(crate) fn version() -> String {
    crate::world::version().to_string_lossy().into_owned()
}

/// `sdk_log!(ERROR, "no such device: {address}")`: a message of the SDK at a level of `doca_log_level`
/// (those of [`levels`]). Costs one load where nobody listens.
macro_rules! sdk_log {
    ($level:ident, $($message:tt)+) => {{
        let level = $crate::log::levels::$level;
        if $crate::log::is_wanted($crate::log::Audience::Sdk, level) {
            $crate::log::sdk(level, file!(), line!(), format_args!($($message)+));
        }
    }};
}
pub(crate) use sdk_log;

/// The levels, by the names that [`sdk_log!`] takes.
pub(crate) mod levels {
    pub(crate) use doca_sys::bindings::{
        DOCA_LOG_LEVEL_ERROR as ERROR, DOCA_LOG_LEVEL_INFO as INFO, DOCA_LOG_LEVEL_WARNING as WARNING,
    };
}

impl Log {
    /// Called after every change of backends and limits.
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

/// The backend that DOCA 1.5 has from the start, on standard error unless the program redirects it.
#[cfg(workq)]
pub(crate) fn first_backend() -> Result<&'static Backend, sys::doca_error_t> {
    static FIRST: std::sync::OnceLock<Result<&'static Backend, sys::doca_error_t>> =
        std::sync::OnceLock::new();
    *FIRST.get_or_init(|| add_backend(Sink::File(Stream::standard_error()), Audience::Application))
}

/// The two backends of every sample: up to INFO on standard output, from WARNING on standard error. A second
/// call adds nothing, or every message would be there twice.
fn add_standard() -> Result<(), sys::doca_error_t> {
    let mut log = write();
    if !log.standard {
        log.add(Sink::StandardOutput, Audience::Application)?;
        log.add(Sink::StandardError, Audience::Application)?;
        log.standard = true;
    }
    Ok(())
}

/// A limit for all backends of an audience.
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

/// Changes a limit of all backends of an audience, and of those to come.
pub(crate) fn set_global(limit: Limit, level: u32) -> Result<(), sys::doca_error_t> {
    if !is_level(level) {
        return Err(DOCA_ERROR_INVALID_VALUE);
    }
    let mut log = write();
    *limit.of(&mut log) = level;
    let audience = if matches!(limit, Limit::Sdk) { Audience::Sdk } else { Audience::Application };
    for backend in log.backends.iter().filter(|b| b.audience() == audience) {
        // A strict limit stays where it is.
        _ = if matches!(limit, Limit::Upper) { backend.set_upper(level) } else { backend.set_lower(level) };
    }
    log.update_loudest();
    Ok(())
}

/// A limit of the backends to come.
pub(crate) fn global(limit: Limit) -> u32 {
    *limit.of(&mut write())
}

/// A new source's number. Numbers of sources that are gone are given again.
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
}
