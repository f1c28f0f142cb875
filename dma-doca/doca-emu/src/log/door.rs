//! The calls of `doca_log.h`. `doca_log` itself takes any number of arguments, so it is in `variadic.c`, which formats and
//! then calls `doca_emu_log` here.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{Audience, Backend, Record, Sink};
use crate::door::{Code, INVALID, In, Out, Outcome, Text, answer, c, require};

type BackendHandle = *mut c::doca_log_backend;

/// The backend that a handle stands for, if it is one, for that audience.
fn find(handle: BackendHandle, audience: Audience) -> Outcome<&'static Backend> {
    let log = super::read();
    let found =
        log.backends.iter().find(|backend| ptr::from_ref::<Backend>(backend).cast() == handle.cast_const());
    found.copied().filter(|backend| backend.audience() == audience).ok_or(INVALID)
}

/// Makes a backend and stores its handle.
fn create(sink: Outcome<Sink>, audience: Audience, backend: Out<BackendHandle>) -> Code {
    answer(|| {
        backend.check()?;
        backend.put(ptr::from_ref(super::add_backend(sink?, audience)?).cast_mut().cast())
    })
}

fn file(stream: *mut c::FILE) -> Outcome<Sink> {
    require(!stream.is_null(), INVALID)?;
    Ok(Sink::File(stream.cast()))
}

fn fd(fd: c_int) -> Outcome<Sink> {
    require(fd >= 0, INVALID)?;
    Ok(Sink::Fd(fd))
}

fn buffer(start: *mut c_char, capacity: usize, handler: c::log_flush_callback) -> Outcome<Sink> {
    require(!start.is_null() && capacity > 0, INVALID)?;
    Ok(Sink::Buffer { start, capacity, handler: handler.ok_or(INVALID)? })
}

fn syslog(name: &Text) -> Outcome<Sink> {
    Ok(Sink::Syslog(name.get()?.to_owned()))
}

/// Changes a backend's limits; false from `change` means that a strict limit forbids it.
fn change(
    handle: BackendHandle,
    audience: Audience,
    level: Option<u32>,
    change: impl FnOnce(&Backend) -> bool,
) -> Code {
    answer(|| {
        let backend = find(handle, audience)?;
        require(level.is_none_or(super::is_level), INVALID)?;
        let changed = change(backend);
        super::read().update_loudest();
        require(changed, c::DOCA_ERROR_NOT_PERMITTED)
    })
}

/// The most talkative level that a backend of the application shows; `NOT_PERMITTED` if a strict one is less.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_set_level_lower_limit(backend: BackendHandle, level: u32) -> Code {
    change(backend, Audience::Application, Some(level), |backend| backend.set_lower(level))
}

/// The gravest level that a backend of the application shows; `NOT_PERMITTED` if a strict one is less grave.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_set_level_upper_limit(backend: BackendHandle, level: u32) -> Code {
    change(backend, Audience::Application, Some(level), |backend| backend.set_upper(level))
}

/// From now on the lower limit can only show less.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_set_level_lower_limit_strict(backend: BackendHandle) -> Code {
    change(backend, Audience::Application, None, |backend| {
        backend.make_lower_strict();
        true
    })
}

/// From now on the upper limit can only show less.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_set_level_upper_limit_strict(backend: BackendHandle) -> Code {
    change(backend, Audience::Application, None, |backend| {
        backend.make_upper_strict();
        true
    })
}

/// The most talkative level that a backend of the SDK shows.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_set_sdk_level(backend: BackendHandle, level: u32) -> Code {
    change(backend, Audience::Sdk, Some(level), |backend| backend.set_lower(level))
}

/// The lower limit of all backends of the application, and of those to come.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_set_global_lower_limit(level: u32) -> Code {
    answer(|| super::set_global_lower(level))
}

/// The upper limit of all backends of the application, and of those to come.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_set_global_upper_limit(level: u32) -> Code {
    answer(|| super::set_global_upper(level))
}

/// The limit of all backends of the SDK, and of those to come.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_set_global_sdk_limit(level: u32) -> Code {
    answer(|| super::set_global_sdk(level))
}

/// What was set, or INFO.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_get_global_lower_limit() -> u32 {
    super::global_lower()
}

/// What was set, or CRIT.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_get_global_upper_limit() -> u32 {
    super::global_upper()
}

/// What was set, or INFO.
#[unsafe(no_mangle)]
extern "C" fn doca_log_level_get_global_sdk_limit() -> u32 {
    super::global_sdk()
}

/// A number for messages of a source. The name is shown nowhere: published transcripts say DOCA in its place.
#[unsafe(no_mangle)]
extern "C" fn doca_log_register_source(name: Text, source: Out<c_int>) -> Code {
    answer(|| {
        name.get()?;
        source.check()?;
        source.put(super::add_source())
    })
}

/// The number is free again.
#[unsafe(no_mangle)]
extern "C" fn doca_log_unregister_source(source: c_int) -> Code {
    answer(|| require(super::remove_source(source), INVALID))
}

/// A backend of the application on a stream of C's, which stays the program's and open.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_file(stream: *mut c::FILE, backend: Out<BackendHandle>) -> Code {
    create(file(stream), Audience::Application, backend)
}

/// A backend of the SDK on a stream of C's, which stays the program's and open.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_file_sdk(
    stream: *mut c::FILE,
    backend: Out<BackendHandle>,
) -> Code {
    create(file(stream), Audience::Sdk, backend)
}

/// A backend of the application on a file descriptor, which stays the program's and open.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_fd(descriptor: c_int, backend: Out<BackendHandle>) -> Code {
    create(fd(descriptor), Audience::Application, backend)
}

/// A backend of the SDK on a file descriptor, which stays the program's and open.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_fd_sdk(descriptor: c_int, backend: Out<BackendHandle>) -> Code {
    create(fd(descriptor), Audience::Sdk, backend)
}

/// A backend of the application that puts each line into the buffer, cut to its capacity and with a NUL, and calls the
/// handler.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_buf(
    start: *mut c_char,
    capacity: usize,
    handler: c::log_flush_callback,
    backend: Out<BackendHandle>,
) -> Code {
    create(buffer(start, capacity, handler), Audience::Application, backend)
}

/// A backend of the SDK that puts each line into the buffer, cut to its capacity and with a NUL, and calls the handler.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_buf_sdk(
    start: *mut c_char,
    capacity: usize,
    handler: c::log_flush_callback,
    backend: Out<BackendHandle>,
) -> Code {
    create(buffer(start, capacity, handler), Audience::Sdk, backend)
}

/// A backend of the application in the system's log, under a name.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_syslog(name: Text, backend: Out<BackendHandle>) -> Code {
    create(syslog(&name), Audience::Application, backend)
}

/// A backend of the SDK in the system's log, under a name.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_with_syslog_sdk(name: Text, backend: Out<BackendHandle>) -> Code {
    create(syslog(&name), Audience::Sdk, backend)
}

/// What most programs want: messages up to INFO on standard output, from WARNING on standard error.
#[unsafe(no_mangle)]
extern "C" fn doca_log_backend_create_standard() -> Code {
    answer(super::add_standard)
}

/// For `variadic.c`: what is wrong with a message before it is formatted; `shown` becomes whether anybody would see it.
#[unsafe(no_mangle)]
extern "C" fn doca_emu_log_check(level: u32, source: c_int, shown: Out<bool>) -> Code {
    answer(|| {
        require(
            super::is_level(level) && level != c::DOCA_LOG_LEVEL_DISABLE && super::is_source(source),
            INVALID,
        )?;
        shown.put(super::is_wanted(Audience::Application, level))
    })
}

/// For `variadic.c`: a formatted message.
#[unsafe(no_mangle)]
extern "C" fn doca_emu_log(
    level: u32,
    file: Text,
    line: c_int,
    function: Text,
    message: In<u8>,
    length: usize,
) {
    let bytes = |text: &Text| text.get().map(|text| text.to_bytes().to_vec()).unwrap_or_default();
    let Ok(message) = message.slice(length) else { return };
    let record = Record {
        level,
        file: &bytes(&file),
        line: u32::try_from(line).unwrap_or_default(),
        function: &bytes(&function),
        message,
    };
    super::publish(&record, Audience::Application);
}
