//! The calls of `doca_log.h`. `doca_log` itself is variadic, so it is in `variadic.c`, which formats the
//! message and then calls `doca_emu_log` here.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{Audience, Backend, LineBuffer, Record, Sink, Stream};
use crate::c_abi::{INVALID, In, Out, Outcome, Text, c, c_calls, require};

pub(crate) type BackendHandle = *mut c::doca_log_backend;

/// Returns the backend of a handle. The backend must belong to this audience.
fn find(handle: BackendHandle, audience: Audience) -> Outcome<&'static Backend> {
    let log = super::read();
    let found =
        log.backends.iter().find(|backend| ptr::from_ref::<Backend>(backend).cast() == handle.cast_const());
    found.copied().filter(|backend| backend.audience() == audience).ok_or(INVALID)
}

/// Makes a backend and stores its handle.
fn create(sink: Outcome<Sink>, audience: Audience, backend: Out<BackendHandle>) -> Outcome {
    backend.check()?;
    backend.put(ptr::from_ref(super::add_backend(sink?, audience)?).cast_mut().cast())
}

/// Makes the first backend, which writes to standard error, write to another stream.
///
/// # Safety
///
/// `stream` is NULL, or an open stream that stays open.
#[cfg(workq)]
pub(crate) unsafe fn redirect(stream: *mut c::FILE) -> Outcome {
    // SAFETY: this function's caller promised that `stream` is NULL, or an open stream that stays open.
    super::first_backend()?.redirect(unsafe { file(stream) }?);
    Ok(())
}

/// # Safety
///
/// `stream` is NULL, or an open stream that stays open.
unsafe fn file(stream: *mut c::FILE) -> Outcome<Sink> {
    require(!stream.is_null(), INVALID)?;
    // SAFETY: the pointer is not NULL, so the caller has promised an open stream that stays open.
    Ok(Sink::File(unsafe { Stream::new(stream.cast()) }))
}

fn fd(fd: c_int) -> Outcome<Sink> {
    require(fd >= 0, INVALID)?;
    Ok(Sink::Fd(fd))
}

/// # Safety
///
/// `start` is NULL, or the start of a buffer of `capacity` bytes that is never freed. The handler may be
/// called with `start` on any thread.
unsafe fn buffer(start: *mut c_char, capacity: usize, handler: c::log_flush_callback) -> Outcome<Sink> {
    require(!start.is_null() && capacity > 0, INVALID)?;
    let handler = handler.ok_or(INVALID)?;
    // SAFETY: the pointer is not NULL, so the caller has promised a buffer of `capacity` bytes that is never
    // freed.
    Ok(Sink::Buffer(unsafe { LineBuffer::new(start, capacity, handler) }))
}

fn syslog(name: &Text) -> Outcome<Sink> {
    Ok(Sink::Syslog(name.value()?.to_owned()))
}

/// Changes a backend's limits. If `change` returns false, a strict limit forbids the change.
fn change(
    handle: BackendHandle,
    audience: Audience,
    level: Option<u32>,
    change: impl FnOnce(&Backend) -> bool,
) -> Outcome {
    let backend = find(handle, audience)?;
    require(level.is_none_or(super::is_level), INVALID)?;
    let changed = change(backend);
    super::read().update_loudest();
    require(changed, c::DOCA_ERROR_NOT_PERMITTED)
}

/// Declares pairs of calls that create backends: one for the application's messages, one for the SDK's.
macro_rules! backends {
    ($($(#[$doc:meta])* $application:ident $(| $old:ident)*, $sdk:ident $(| $old_sdk:ident)*
        ($($arg:ident: $type:ty),*) $sink:block)*) => {
        c_calls! {
            $(
                $(#[$doc])*
                fn $application $(| $old)*($($arg: $type,)* backend: Out<BackendHandle>) {
                    create($sink, Audience::Application, backend)
                }
                $(#[$doc])*
                fn $sdk $(| $old_sdk)*($($arg: $type,)* backend: Out<BackendHandle>) {
                    create($sink, Audience::Sdk, backend)
                }
            )*
        }
    };
}

backends! {
    /// Makes a backend that writes to a stream of C. The program keeps the stream open.
    doca_log_backend_create_with_file | doca_log_create_file_backend, doca_log_backend_create_with_file_sdk
    (stream: *mut c::FILE) {
        // SAFETY: backends are never destroyed, so the program keeps the stream open from now on.
        unsafe { file(stream) }
    }
    /// Makes a backend that writes to a file descriptor. The program keeps the descriptor open.
    doca_log_backend_create_with_fd | doca_log_create_fd_backend, doca_log_backend_create_with_fd_sdk
    (number: c_int) { fd(number) }
    /// Makes a backend that writes each line to the buffer, cut to its capacity and with a NUL, and then
    /// calls the handler.
    doca_log_backend_create_with_buf | doca_log_backend_create_with_buffer | doca_log_create_buffer_backend,
    doca_log_backend_create_with_buf_sdk | doca_log_backend_create_with_buffer_sdk
    (start: *mut c_char, capacity: usize, handler: c::log_flush_callback) {
        // SAFETY: backends are never destroyed, so the program leaves the buffer to the backend from now on.
        // The handler may run on any thread that logs.
        unsafe { buffer(start, capacity, handler) }
    }
    /// Makes a backend that writes to the system log. The lines have this name as the program's name.
    doca_log_backend_create_with_syslog | doca_log_create_syslog_backend,
    doca_log_backend_create_with_syslog_sdk
    (name: Text) { syslog(&name) }
}

c_calls! {
    /// Sets the most verbose level that an application's backend writes. Returns `NOT_PERMITTED` if the
    /// backend's limit is strict and this level would show more messages.
    fn doca_log_backend_set_level_lower_limit
        | doca_log_backend_level_set(backend: BackendHandle, level: u32) {
        change(backend, Audience::Application, Some(level), |backend| backend.set_lower(level))
    }
    /// Sets the most severe level that an application's backend writes. Returns `NOT_PERMITTED` if the
    /// backend's limit is strict and this level would show more messages.
    fn doca_log_backend_set_level_upper_limit
        | doca_log_backend_set_upper_level_limit(backend: BackendHandle, level: u32) {
        change(backend, Audience::Application, Some(level), |backend| backend.set_upper(level))
    }
    /// Makes the lower limit strict: it can no longer be changed to show more messages.
    fn doca_log_backend_set_level_lower_limit_strict
        | doca_log_backend_set_lower_level_immutable(backend: BackendHandle) {
        change(backend, Audience::Application, None, |backend| {
            backend.make_lower_strict();
            true
        })
    }
    /// Makes the upper limit strict: it can no longer be changed to show more messages.
    fn doca_log_backend_set_level_upper_limit_strict
        | doca_log_backend_set_upper_level_immutable(backend: BackendHandle) {
        change(backend, Audience::Application, None, |backend| {
            backend.make_upper_strict();
            true
        })
    }
    /// Sets the lower limit of all present and later backends of the application.
    fn doca_log_level_set_global_lower_limit
        | doca_log_global_level_set(level: u32) { super::set_global(super::Limit::Lower, level) }
    /// Sets the upper limit of all present and later backends of the application.
    fn doca_log_level_set_global_upper_limit
        | doca_log_global_set_upper_level_limit(level: u32) { super::set_global(super::Limit::Upper, level) }
    /// Returns the lower limit of new backends of the application: INFO, unless it was set.
    fn doca_log_level_get_global_lower_limit
        | doca_log_global_level_get() -> u32 { super::global(super::Limit::Lower) }
    /// Returns the upper limit of new backends of the application: CRIT, unless it was set.
    fn doca_log_level_get_global_upper_limit() -> u32 { super::global(super::Limit::Upper) }
    /// Registers a source. Ignores its name, because published transcripts show `DOCA` instead of the name.
    fn doca_log_register_source(name: Text, source: Out<c_int>) {
        name.value()?;
        source.check()?;
        source.put(super::add_source())
    }
    fn doca_log_unregister_source
        | doca_log_source_destroy(source: c_int) { require(super::remove_source(source), INVALID) }
    /// Sets the most verbose level that a backend of the SDK writes.
    fn doca_log_backend_set_sdk_level(backend: BackendHandle, level: u32) {
        change(backend, Audience::Sdk, Some(level), |backend| backend.set_lower(level))
    }
    /// Sets the limit of all present and later backends of the SDK.
    fn doca_log_level_set_global_sdk_limit(level: u32) { super::set_global(super::Limit::Sdk, level) }
    /// Returns the limit of new backends of the SDK: INFO, unless it was set.
    fn doca_log_level_get_global_sdk_limit() -> u32 { super::global(super::Limit::Sdk) }
    /// Makes backends that write INFO and less severe messages to standard output, and WARNING and more
    /// severe messages to standard error.
    fn doca_log_backend_create_standard | doca_log_create_standard_backend() { super::add_standard() }
    /// Checks a message before `variadic.c` formats it. Sets `shown` to true if a backend shows the message.
    fn doca_emu_log_check(level: u32, source: c_int, shown: Out<bool>) {
        require(
            super::is_level(level) && level != c::DOCA_LOG_LEVEL_DISABLE && super::is_source(source),
            INVALID,
        )?;
        shown.put(super::is_wanted(Audience::Application, level))
    }
    /// Logs a message that `variadic.c` has formatted.
    fn doca_emu_log(
        level: u32,
        file: Text,
        line: c_int,
        function: Text,
        message: In<u8>,
        length: usize,
    ) -> () {
        let bytes = |text: &Text| text.get().map(|text| text.to_bytes().to_vec()).unwrap_or_default();
        // SAFETY: `variadic.c` passes the message's length beside it, and does not change the message during
        // the call.
        let Ok(message) = (unsafe { message.slice(length) }) else { return };
        let record = Record {
            level,
            file: &bytes(&file),
            line: u32::try_from(line).unwrap_or_default(),
            function: &bytes(&function),
            message,
        };
        super::publish(&record, Audience::Application);
    }
}
