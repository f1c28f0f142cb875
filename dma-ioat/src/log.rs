//! SPDK's log lines as `tracing` events.
#![expect(unsafe_code, reason = "SPDK calls the function with C's strings and arguments")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::OnceLock;

use dma_core::log_event;
use spdk_sys::bindings::*;
use spdk_sys::{Library, Log};
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// The log calls of the library whose log is forwarded. A process has only one such library.
static LOG: OnceLock<Log> = OnceLock::new();

unsafe extern "C" {
    /// A function of the C library. Its last parameter is a `va_list`, which all supported processors pass by
    /// its address.
    fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, args: *mut c_void) -> c_int;
}

/// Forwards SPDK's log to events of the target `spdk`. Does nothing without a `tracing` subscriber, or if the
/// library has no such log.
///
/// DPDK's own output is not forwarded.
pub(crate) fn forward(spdk: &Library) {
    if let Some(log) = &spdk.log
        && LevelFilter::current() != LevelFilter::OFF
        && LOG.set(*log).is_ok()
    {
        // SAFETY: the function can be called from any thread, as long as the process lives.
        unsafe { (log.spdk_log_open)(Some(line)) };
    }
}

/// Emits a message as an event. SPDK calls this function for each message, on any thread.
///
/// # Safety
///
/// The pointers are to C strings, or null, and `args` matches `format`.
unsafe extern "C" fn line(
    level: c_int,
    file: *const c_char,
    number: c_int,
    function: *const c_char,
    format: *const c_char,
    args: *mut __va_list_tag,
) {
    /// The maximum length of the lines that SPDK prints.
    const LEN: usize = 1024;
    let mut message = [0; LEN];
    if format.is_null() {
        return;
    }
    // SAFETY: the buffer has `LEN` bytes, and SPDK's `args` match its format string and are used only once.
    unsafe { vsnprintf(message.as_mut_ptr().cast(), LEN, format, args.cast()) };
    let message = CStr::from_bytes_until_nul(&message).unwrap_or_default().to_string_lossy();
    let text = |text: *const c_char| {
        if text.is_null() {
            return "?".into();
        }
        // SAFETY: the pointer is not null, and SPDK passes strings that end in NUL and stay valid during the
        // call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    let place = match file.is_null() {
        true => String::new(),
        false => format!("{}:{number}:{}: ", text(file), text(function)),
    };
    let line = format!("{place}{}", message.trim_end());
    // A panic of a subscriber must not unwind into SPDK. The caller of SPDK may hold a lock.
    log_event(move || tell(level, &line));
}

/// Emits an event. If no subscriber wants the event, prints the line if SPDK would print it.
fn tell(level: c_int, line: &str) {
    macro_rules! event {
        ($level:expr) => {
            if tracing::enabled!(target: "spdk", $level) {
                tracing::event!(target: "spdk", $level, "{line}");
                return;
            }
        };
    }
    match level {
        SPDK_LOG_DISABLED => return,
        SPDK_LOG_ERROR => event!(Level::ERROR),
        SPDK_LOG_WARN => event!(Level::WARN),
        SPDK_LOG_NOTICE | SPDK_LOG_INFO => event!(Level::INFO),
        _ => event!(Level::DEBUG),
    }
    // SAFETY: the call takes no arguments, and only reads a number.
    let shown = LOG.get().and_then(|log| log.spdk_log_get_print_level).map(|call| unsafe { call() });
    if level <= shown.unwrap_or(SPDK_LOG_NOTICE) {
        // An error stream that is closed or full is no reason to panic.
        _ = writeln!(std::io::stderr(), "{line}");
    }
}
