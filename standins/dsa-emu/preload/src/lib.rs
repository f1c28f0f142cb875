//! The preloaded library. The library starts the work queues when a program is loaded, and intercepts calls
//! of the C library that name the devices' paths, map or write a work queue, or change the handlers of traps.
//!
//! The work queues themselves are in `dma-dsa-emu`. Test programs that link it must not contain the functions
//! that this library exports. This crate is empty except on Linux on x86-64 with the GNU C library.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(unsafe_code, reason = "exports functions of the C library")]

mod real;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{off_t, sigaction as action, sigset_t, size_t, ssize_t};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use dsa_emu::preload::{
    Calls, Config, DEVICE_NUMBERS, Mode, Queue, SIZE, Tree, change, queue_of, queues, read, serve, set_calls,
    with_link, without_traps,
};

/// Folders of the system that are replaced by folders below the root.
const REPLACED: [&[u8]; 3] = [b"/dev/dsa", b"/sys/bus/dsa", b"/sys/module/idxd"];

/// The folder that contains the emulated files. Set once the work queues have started.
static ROOT: OnceLock<Vec<u8>> = OnceLock::new();

/// The id of the thread that is starting the work queues. 0 before the start, [`STARTED`] after it.
static STARTER: AtomicI32 = AtomicI32::new(0);
const STARTED: i32 = -1;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start_once;

/// Starts the work queues unless they have started. The constructor of another library may run before ours,
/// so each intercepted call with a path does this first. Calls that the start itself makes are not
/// intercepted.
extern "C" fn start_once() {
    if STARTER.load(Ordering::Acquire) == STARTED {
        return;
    }
    let thread = rustix::thread::gettid().as_raw_pid();
    match STARTER.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            start();
            STARTER.store(STARTED, Ordering::Release);
        }
        Err(starter) if starter == thread => {}
        Err(_) => {
            while STARTER.load(Ordering::Acquire) != STARTED {
                std::thread::yield_now();
            }
        }
    }
}

fn start() {
    let Some(root) = std::env::var_os("DSA_EMU_ROOT") else { return };
    let config = match Config::from_environment() {
        Ok(config) => config,
        Err(error) => return eprintln!("dsa-emu: {error}"),
    };
    // SAFETY: each calls the C library's function of its name, which it finds by `dlsym`.
    unsafe { set_calls(Calls { sigaction: real::sigaction, pthread_sigmask: real::pthread_sigmask }) };
    for queue in serve(config, &Tree::at(PathBuf::from(&root))) {
        match queue {
            // The thread of the work queue runs as long as the process.
            Ok(_) => {}
            Err(error) => eprintln!("dsa-emu: {error}"),
        }
    }
    let _ = ROOT.set(root.into_encoded_bytes());
    if std::env::var_os("DSA_EMU_REPORT").is_some() {
        // SAFETY: `report` has the type that `atexit` expects, and may run when the process ends.
        unsafe { libc::atexit(report) };
    }
}

extern "C" fn report() {
    for queue in queues().filter(|queue| queue.submissions() > 0) {
        eprintln!("dsa-emu: {}: {} submissions", queue.config.name, queue.submissions());
    }
}

/// Buffer for a path.
type Room = [u8; libc::PATH_MAX as usize];

/// Returns the path to use instead of `path`.
///
/// # Safety
///
/// `path` must be a C string or null.
unsafe fn replaced(path: *const c_char, room: &mut Room) -> *const c_char {
    start_once();
    let Some(root) = ROOT.get().filter(|_| !path.is_null()) else { return path };
    // SAFETY: the caller passes a C string.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let is_below = |dir: &&[u8]| given.strip_prefix(*dir).is_some_and(|rest| matches!(rest[0], b'/' | 0));
    let is_replaced = REPLACED.iter().any(is_below) || given.starts_with(DEVICE_NUMBERS.as_bytes());
    let len = root.len() + given.len();
    if len > room.len() || !is_replaced {
        return path;
    }
    room[..root.len()].copy_from_slice(root);
    room[root.len()..len].copy_from_slice(given);
    room.as_ptr().cast()
}

/// Limits a dedicated work queue to one client, as the kernel does: returns the file descriptor `fd` of an
/// `open`, or closes it and fails. The lock belongs to the open file description: children and mappings keep
/// it, and it is released with the last of them.
///
/// # Safety
///
/// `path` must be a C string, and `fd` the file descriptor that a call has just returned for it.
unsafe fn limit_clients(fd: c_int, path: *const c_char) -> c_int {
    let Some(root) = ROOT.get().filter(|_| fd >= 0) else { return fd };
    // SAFETY: the caller passes a C string.
    if !unsafe { CStr::from_ptr(path) }.to_bytes().starts_with(root) {
        return fd;
    }
    let is_dedicated = opened(fd).is_some_and(|queue| queue.config.mode == Mode::Dedicated);
    // SAFETY: the caller's file descriptor is open.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    match is_dedicated.then(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Some(Err(Errno::WOULDBLOCK)) => {
            // SAFETY: the call has just opened the file descriptor, and the program does not know its number
            // yet.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            fail(Errno::BUSY, -1)
        }
        // A file descriptor that was opened with O_PATH cannot have a lock, and does not count as a client.
        _ => fd,
    }
}

/// Functions that take a path, after the arguments in brackets. All other arguments, including those that C
/// declares as `...`, are passed on in registers unchanged. Functions marked `opens` return a file
/// descriptor.
macro_rules! paths {
    (@ $result:ident $path:ident) => { $result };
    (@ $result:ident $path:ident opens) => {
        // SAFETY: `$path` is the path of this call, and `$result` its new file descriptor.
        unsafe { limit_clients($result, $path) }
    };
    ($(fn $name:ident[$($before:ident: $first:ty)?]($($arg:ident: $kind:ty),*) -> $ret:ty $(, $opens:ident)?;)*) => {
        mod with_path {
            use super::{c_char, c_int, c_uint, c_void, mem, size_t, ssize_t};
            crate::real::real! {
                $(fn $name($($before: $first,)? path: *const c_char $(, $arg: $kind)*) -> $ret;)*
            }
        }
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: $first,)? path: *const c_char $(, $arg: $kind)*
            ) -> $ret {
                let mut room: Room = [0; libc::PATH_MAX as usize];
                // SAFETY: the C library's function requires that `path` is a C string or null.
                let path = unsafe { replaced(path, &mut room) };
                // SAFETY: `path` is a C string or null, and the other arguments are passed on unchanged.
                let result = unsafe { with_path::$name($($before,)? path $(, $arg)*) };
                paths!(@ result path $($opens)?)
            }
        )*
    };
}

paths! {
    fn open[](flags: c_int, mode: c_uint) -> c_int, opens;
    fn open64[](flags: c_int, mode: c_uint) -> c_int, opens;
    fn __open_2[](flags: c_int) -> c_int, opens;
    fn __open64_2[](flags: c_int) -> c_int, opens;
    fn openat[dir: c_int](flags: c_int, mode: c_uint) -> c_int, opens;
    fn openat64[dir: c_int](flags: c_int, mode: c_uint) -> c_int, opens;
    fn fopen[](mode: *const c_char) -> *mut c_void;
    fn fopen64[](mode: *const c_char) -> *mut c_void;
    fn opendir[]() -> *mut c_void;
    fn scandir[](list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    fn scandir64[](list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    fn stat[](stat: *mut c_void) -> c_int;
    fn stat64[](stat: *mut c_void) -> c_int;
    fn lstat[](stat: *mut c_void) -> c_int;
    fn lstat64[](stat: *mut c_void) -> c_int;
    fn fstatat[dir: c_int](stat: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64[dir: c_int](stat: *mut c_void, flags: c_int) -> c_int;
    fn __xstat[version: c_int](stat: *mut c_void) -> c_int;
    fn __xstat64[version: c_int](stat: *mut c_void) -> c_int;
    fn __lxstat[version: c_int](stat: *mut c_void) -> c_int;
    fn __lxstat64[version: c_int](stat: *mut c_void) -> c_int;
    fn statx[dir: c_int](flags: c_int, mask: c_uint, stat: *mut c_void) -> c_int;
    fn access[](mode: c_int) -> c_int;
    fn faccessat[dir: c_int](mode: c_int, flags: c_int) -> c_int;
    fn readlink[](to: *mut c_char, len: size_t) -> ssize_t;
    fn readlinkat[dir: c_int](to: *mut c_char, len: size_t) -> ssize_t;
    fn getxattr[](name: *const c_char, to: *mut c_void, len: size_t) -> ssize_t;
    fn lgetxattr[](name: *const c_char, to: *mut c_void, len: size_t) -> ssize_t;
    fn realpath[](to: *mut c_char) -> *mut c_char;
    fn __realpath_chk[](to: *mut c_char, len: size_t) -> *mut c_char;
}

fn fail<T>(errno: Errno, answer: T) -> T {
    // SAFETY: the call accesses no memory of the program.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid, because it is to this thread's error number.
    unsafe { *place = errno.raw_os_error() };
    answer
}

/// Returns the work queue that a file descriptor has open.
fn opened(fd: c_int) -> Option<&'static Queue> {
    ROOT.get()?;
    with_link(format_args!("/proc/self/fd/{fd}"), queue_of)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    let queue = if len > 0 && len.is_multiple_of(64) { opened(fd) } else { None };
    let Some(queue) = queue else {
        // SAFETY: the arguments are those of the caller's `write`, and the caller meets its requirements.
        return unsafe { real::write(fd, bytes, len) };
    };
    // The kernel copies one descriptor after another, so a bad pointer is the error EFAULT.
    let mut descriptor = [0; SIZE];
    for at in (0..len).step_by(SIZE) {
        let from = (bytes.addr() as u64).wrapping_add(at as u64);
        // SAFETY: the trap handler is installed before the first work queue can be opened.
        let readable = unsafe { read(from, &mut descriptor) }.map_err(|_| Errno::FAULT);
        match readable.and_then(|()| queue.write(&descriptor, true)) {
            Ok(_) => {}
            Err(errno) if at == 0 => return fail(errno, -1),
            Err(_) => return at as ssize_t,
        }
    }
    len as ssize_t
}

unsafe fn map(
    at: *mut c_void,
    len: size_t,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    from: off_t,
) -> *mut c_void {
    let rights = match if fd >= 0 { opened(fd) } else { None } {
        None => rights,
        Some(queue) if !queue.config.mmap => return fail(Errno::PERM, libc::MAP_FAILED),
        Some(_) if len > 4096 => return fail(Errno::INVAL, libc::MAP_FAILED),
        // Stores trap with and without rights. Without rights, no store could reach the file even if it had a
        // page.
        Some(_) => libc::PROT_NONE,
    };
    // SAFETY: the arguments are those of the caller's `mmap`, with at most its rights.
    unsafe { real::mmap(at, len, rights, flags, fd, from) }
}

macro_rules! maps {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                at: *mut c_void, len: size_t, rights: c_int, flags: c_int, fd: c_int, from: off_t
            ) -> *mut c_void {
                // SAFETY: the arguments are those of the caller's `mmap`, unchanged.
                unsafe { map(at, len, rights, flags, fd, from) }
            }
        )*
    };
}

maps! { mmap mmap64 }

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const action, old: *mut action) -> c_int {
    // SAFETY: the arguments are those of the caller's `sigaction`, unchanged.
    match unsafe { change(signal, new, old) } {
        Some(()) => 0,
        // SAFETY: the arguments are those of the caller's `sigaction`, unchanged.
        None => unsafe { real::sigaction(signal, new, old) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: size_t) -> size_t {
    // SAFETY: a `sigaction` of zero bytes is valid.
    let (mut new, mut old): (action, action) = unsafe { mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (handler, libc::SA_RESTART);
    // SAFETY: both actions are valid.
    match unsafe { change(signal, &raw const new, &raw mut old) } {
        Some(()) => old.sa_sigaction,
        // SAFETY: the arguments are those of the caller's `signal`, unchanged.
        None => unsafe { real::signal(signal, handler) },
    }
}

macro_rules! masks {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
                // SAFETY: the C library's function requires that `new` is null or a valid set.
                let less = unsafe { new.as_ref() }.filter(|_| how != libc::SIG_UNBLOCK).map(without_traps);
                let new = less.as_ref().map_or(new, std::ptr::from_ref);
                // SAFETY: `new` is null or a valid set, and the other arguments are the caller's, unchanged.
                unsafe { real::$name(how, new, old) }
            }
        )*
    };
}

masks! { sigprocmask pthread_sigmask }
