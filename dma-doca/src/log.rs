//! The SDK's log lines as `tracing` events.
#![expect(unsafe_code, reason = "calls the SDK")]

use std::io::{BufRead, BufReader};
use std::os::fd::IntoRawFd;

use dma_process::{ForkLock, with_signals_blocked};
use doca_sys::bindings::*;
use tracing::level_filters::LevelFilter;

use crate::ffi::Sdk;
use crate::options::SdkLog;

/// Forwards log lines of the SDK, of level `log` or more severe, as events of the target `doca`. Does so once
/// per library. Does nothing without a `tracing` subscriber, or if the library lacks the needed calls.
///
/// The SDK writes to a pipe, from which a thread reads. A callback is not used, because it could run on any
/// thread of the SDK, while the SDK holds a lock.
pub(crate) fn forward(sdk: &Sdk, log: SdkLog) {
    static FORWARDED: ForkLock<Vec<usize>> = ForkLock::new(Vec::new);
    let level = match log {
        SdkLog::Off => return,
        SdkLog::Error => DOCA_LOG_LEVEL_ERROR,
        SdkLog::Warning => DOCA_LOG_LEVEL_WARNING,
        SdkLog::Info => DOCA_LOG_LEVEL_INFO,
        SdkLog::Debug => DOCA_LOG_LEVEL_DEBUG,
    };
    let (Some(create), Some(set_level)) =
        (sdk.common.doca_log_backend_create_with_fd_sdk, sdk.common.doca_log_backend_set_sdk_level)
    else {
        return;
    };
    if LevelFilter::current() == LevelFilter::OFF {
        return;
    }
    let mut forwarded = FORWARDED.lock();
    if forwarded.contains(&(create as usize)) {
        return;
    }
    let (reader, writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(e) => {
            drop(forwarded);
            dma_core::guarded_log!(warn, target: "doca", "the SDK's messages are not forwarded: no pipe for them: {e}");
            return;
        }
    };
    let forward = move || {
        // The SDK waits when the pipe is full, so bytes that are not UTF-8 must not end this thread.
        for line in BufReader::new(reader).split(b'\n') {
            let Ok(line) = line else { break };
            event(&String::from_utf8_lossy(&line));
        }
    };
    let thread = std::thread::Builder::new().name("doca-log".into());
    let thread = with_signals_blocked(|| thread.spawn(forward));
    if let Err(e) = thread {
        drop(forwarded);
        dma_core::guarded_log!(warn, target: "doca", "the SDK's messages are not forwarded: no thread for them: {e}");
        return;
    }
    forwarded.push(create as usize);
    // The SDK uses the descriptor until the process ends, so it is never closed.
    let fd = writer.into_raw_fd();
    let mut backend = std::ptr::null_mut();
    // SAFETY: the descriptor is open and never closed, and the pointer can be written.
    if unsafe { create(fd, &raw mut backend) } == DOCA_SUCCESS {
        // SAFETY: the backend was created above, and is never destroyed.
        unsafe { set_level(backend, level) };
    }
}

/// Emits a line as an event. The level of the line is in the third bracket:
/// `[time][pid][WRN][SOURCE][file:line][func] message`.
fn event(line: &str) {
    let level = line.split(['[', ']']).find_map(|word| match word {
        "CRT" | "CRIT" | "ERR" | "ERROR" => Some(tracing::Level::ERROR),
        "WRN" | "WARN" | "WARNING" => Some(tracing::Level::WARN),
        "INF" | "INFO" => Some(tracing::Level::INFO),
        "DBG" | "DEBUG" => Some(tracing::Level::DEBUG),
        "TRC" | "TRACE" => Some(tracing::Level::TRACE),
        _ => None,
    });
    match level {
        Some(tracing::Level::ERROR) => dma_core::guarded_log!(error, target: "doca", "{line}"),
        Some(tracing::Level::WARN) | None => dma_core::guarded_log!(warn, target: "doca", "{line}"),
        Some(tracing::Level::INFO) => dma_core::guarded_log!(info, target: "doca", "{line}"),
        Some(tracing::Level::DEBUG) => dma_core::guarded_log!(debug, target: "doca", "{line}"),
        Some(tracing::Level::TRACE) => dma_core::guarded_log!(trace, target: "doca", "{line}"),
    }
}
