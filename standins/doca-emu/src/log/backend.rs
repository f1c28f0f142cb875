//! Log backends.
#![expect(unsafe_code, reason = "streams, buffers and handlers are the caller's, handed over as pointers")]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use dma_process::lock;
use doca_sys::bindings as sys;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Kind of messages that a backend shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Messages of the program, through `doca_log`.
    Application = 0,
    /// Messages of the SDK.
    Sdk = 1,
}

#[derive(Debug)]
pub(crate) enum Sink {
    /// A `FILE` of C. Each line is flushed, so that the lines keep their order with the program's own output.
    File(Stream),
    Fd(c_int),
    /// A buffer for one line, and the function that is called with the buffer.
    Buffer(LineBuffer),
    /// The system log, where lines have this name as the program's name.
    Syslog(CString),
    /// Standard output, for messages up to INFO.
    StandardOutput,
    /// Standard error, for messages of WARNING and more severe levels.
    StandardError,
}

/// A `FILE` of C that is open, and stays open.
#[derive(Debug)]
pub(crate) struct Stream(*mut libc::FILE);

impl Stream {
    /// # Safety
    ///
    /// The stream is open, and stays open as long as the backend exists.
    pub(super) unsafe fn new(stream: *mut libc::FILE) -> Self {
        Self(stream)
    }

    pub(super) fn standard_error() -> Self {
        // SAFETY: the C library sets this variable before any code of this library runs, and nothing changes
        // it at the same time.
        Self(unsafe { stderr })
    }

    fn write(&self, line: &[u8]) {
        // SAFETY: the stream is open: the caller of `new` has promised that, or it is one of the standard
        // streams.
        unsafe { libc::fwrite(line.as_ptr().cast(), 1, line.len(), self.0) };
        // SAFETY: the stream is open: the caller of `new` has promised that, or it is one of the standard
        // streams.
        unsafe { libc::fflush(self.0) };
    }
}

/// The program's buffer for one line.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    start: *mut c_char,
    /// Length of the buffer in bytes, which includes the NUL at the end of a line.
    capacity: usize,
    /// The function that is called with the buffer, on the thread that logs.
    handler: unsafe extern "C" fn(*mut c_char),
}

impl LineBuffer {
    /// # Safety
    ///
    /// The `capacity` bytes (at least 1) at `start` belong to this value alone as long as it exists, and the
    /// handler may be called with `start` on any thread.
    pub(super) unsafe fn new(
        start: *mut c_char,
        capacity: usize,
        handler: unsafe extern "C" fn(*mut c_char),
    ) -> Self {
        Self { start, capacity, handler }
    }

    /// Puts a line into the buffer, cut to its capacity and with a NUL, and calls the handler.
    fn write(&self, line: &[u8]) {
        let length = line.len().min(self.capacity - 1);
        // SAFETY: the caller of `new` promised `capacity` bytes for this value alone, `length` is less, and
        // the sink's lock excludes other threads.
        unsafe { line.as_ptr().copy_to_nonoverlapping(self.start.cast::<u8>(), length) };
        // SAFETY: `length` is less than `capacity`, so this byte is within the buffer too.
        unsafe { self.start.wrapping_add(length).write(0) };
        IN_HANDLER.set(true);
        // SAFETY: the program registered the handler together with this buffer, for any thread.
        unsafe { (self.handler)(self.start) };
        IN_HANDLER.set(false);
    }
}

#[derive(Debug)]
pub(crate) struct Backend {
    sink: Mutex<Sink>,
    audience: Audience,
    /// The most severe level that is shown.
    upper: AtomicU32,
    /// The most verbose level that is shown.
    lower: AtomicU32,
    strict_upper: AtomicBool,
    strict_lower: AtomicBool,
}

// SAFETY: the lock lets one thread at a time use the pointers of a sink. The program that created the backend
// promised that they stay valid on any thread.
unsafe impl Send for Backend {}
// SAFETY: the lock lets one thread at a time use the pointers of a sink, and all other fields are atomic.
unsafe impl Sync for Backend {}

thread_local! {
    /// Set while this thread runs a buffer's handler. Messages that the handler logs go only to sinks without
    /// handlers. Otherwise the handler would call itself endlessly.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

impl Backend {
    pub(super) fn new(sink: Sink, audience: Audience, lower: u32, upper: u32) -> Self {
        Self {
            sink: Mutex::new(sink),
            audience,
            upper: AtomicU32::new(upper),
            lower: AtomicU32::new(lower),
            strict_upper: AtomicBool::new(false),
            strict_lower: AtomicBool::new(false),
        }
    }

    #[cfg(workq)]
    pub(super) fn redirect(&self, sink: Sink) {
        *lock(&self.sink) = sink;
    }

    pub(super) fn audience(&self) -> Audience {
        self.audience
    }

    pub(super) fn lower(&self) -> u32 {
        self.lower.load(Relaxed)
    }

    pub(super) fn shows(&self, level: u32) -> bool {
        self.upper.load(Relaxed) <= level && level <= self.lower.load(Relaxed)
    }

    /// Sets the lower limit. Returns false if that limit is strict and `level` would show more messages.
    pub(super) fn set_lower(&self, level: u32) -> bool {
        let refused = self.strict_lower.load(Relaxed) && level > self.lower.load(Relaxed);
        if !refused {
            self.lower.store(level, Relaxed);
        }
        !refused
    }

    /// Sets the upper limit. Returns false if that limit is strict and `level` would show more messages.
    pub(super) fn set_upper(&self, level: u32) -> bool {
        let refused = self.strict_upper.load(Relaxed) && level < self.upper.load(Relaxed);
        if !refused {
            self.upper.store(level, Relaxed);
        }
        !refused
    }

    pub(super) fn make_lower_strict(&self) {
        self.strict_lower.store(true, Relaxed);
    }

    pub(super) fn make_upper_strict(&self) {
        self.strict_upper.store(true, Relaxed);
    }

    /// Writes a line, which must end in `\n`. Failed writes are ignored, because they cannot be reported
    /// anywhere. A NUL is added to the line for sinks that need one, and removed again.
    pub(super) fn write(&self, level: u32, line: &mut Vec<u8>) {
        if IN_HANDLER.get() && matches!(self.try_sink_is_buffer(), Some(true) | None) {
            return;
        }
        let sink = lock(&self.sink);
        match &*sink {
            Sink::File(stream) => stream.write(line),
            Sink::Fd(fd) => write_fd(*fd, line),
            Sink::Buffer(buffer) => buffer.write(line),
            Sink::Syslog(name) => {
                line.pop();
                line.push(0);
                write_syslog(name, level, line);
                line.pop();
                line.push(b'\n');
            }
            Sink::StandardOutput if level >= sys::DOCA_LOG_LEVEL_INFO => write_standard_output(line),
            Sink::StandardError if level < sys::DOCA_LOG_LEVEL_INFO => write_standard_error(line),
            Sink::StandardOutput | Sink::StandardError => {}
        }
    }

    /// Returns true if the sink is a buffer, `None` if the sink is locked. Inside a handler, this thread
    /// itself may hold the lock.
    fn try_sink_is_buffer(&self) -> Option<bool> {
        self.sink.try_lock().ok().map(|sink| matches!(*sink, Sink::Buffer(_)))
    }
}

pub(super) fn write_standard_output(text: &[u8]) {
    // SAFETY: the C library sets this variable before any code of this library runs.
    Stream(unsafe { stdout }).write(text);
}

pub(super) fn write_standard_error(text: &[u8]) {
    Stream::standard_error().write(text);
}

fn write_fd(fd: c_int, line: &[u8]) {
    if fd >= 0 {
        // SAFETY: the descriptor is not negative. The program promised to keep it open; if it is closed, the
        // write fails.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let _ = (&*file).write_all(line);
    }
}

fn write_syslog(name: &CString, level: u32, line: &[u8]) {
    static SYSLOG: Mutex<()> = Mutex::new(());
    let priority = match level {
        sys::DOCA_LOG_LEVEL_CRIT => libc::LOG_CRIT,
        sys::DOCA_LOG_LEVEL_ERROR => libc::LOG_ERR,
        sys::DOCA_LOG_LEVEL_WARNING => libc::LOG_WARNING,
        sys::DOCA_LOG_LEVEL_INFO => libc::LOG_INFO,
        _ => libc::LOG_DEBUG,
    };
    // The program's name is global in the process, so it is set and used under one lock.
    let _together = lock(&SYSLOG);
    // SAFETY: the name lives as long as the process, because backends are never destroyed.
    unsafe { libc::openlog(name.as_ptr(), libc::LOG_PID, libc::LOG_USER) };
    // SAFETY: the format takes one string, and the line ends in NUL.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), line.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> Backend {
        Backend::new(Sink::Fd(-1), Audience::Application, sys::DOCA_LOG_LEVEL_INFO, sys::DOCA_LOG_LEVEL_ERROR)
    }

    #[test]
    fn shows_what_lies_between_the_limits() {
        let backend = backend();
        let shown: Vec<u32> = (10..=70).step_by(10).filter(|&level| backend.shows(level)).collect();
        assert_eq!(shown, [30, 40, 50]);
    }

    #[test]
    fn a_strict_limit_can_only_show_less() {
        let backend = backend();
        backend.make_lower_strict();
        backend.make_upper_strict();
        assert!(!backend.set_lower(sys::DOCA_LOG_LEVEL_DEBUG) && backend.lower() == sys::DOCA_LOG_LEVEL_INFO);
        assert!(backend.set_lower(sys::DOCA_LOG_LEVEL_WARNING));
        assert!(!backend.set_upper(sys::DOCA_LOG_LEVEL_CRIT));
        assert!(backend.set_upper(sys::DOCA_LOG_LEVEL_WARNING));
        let shown: Vec<u32> = (10..=70).step_by(10).filter(|&level| backend.shows(level)).collect();
        assert_eq!(shown, [40]);
    }
}
