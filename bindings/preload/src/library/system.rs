//! Calls of the C library and of the kernel, and instructions.
#![expect(unsafe_code, reason = "calls the C library")]

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};

#[link(name = "c")]
unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getauxval(kind: c_ulong) -> c_ulong;
    fn getenv(name: *const c_char) -> *const c_char;
    fn getpid() -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, to: *mut c_void, len: usize) -> isize;
    fn write(file: c_int, from: *const c_void, len: usize) -> isize;
    fn close(file: c_int) -> c_int;
    fn mmap(
        addr: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        at: c_long,
    ) -> *mut c_void;
    fn munmap(addr: *mut c_void, len: usize) -> c_int;
    fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int;
    fn sched_yield() -> c_int;
}

/// The libraries that the loader searches after this one.
const NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
/// All libraries.
const ALL: *mut c_void = core::ptr::null_mut();

/// Returns the address of a function of the next library, or NULL.
pub(super) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero byte.
    unsafe { dlsym(NEXT, name.as_ptr()) }
}

/// Returns true for the GNU C library.
pub(super) fn is_glibc() -> bool {
    // SAFETY: the name ends with a zero byte.
    !unsafe { dlsym(ALL, c"gnu_get_libc_version".as_ptr()) }.is_null()
}

/// Returns true for a program with more rights than its user, whose environment must not be trusted.
pub(super) fn is_privileged() -> bool {
    const SECURE: c_ulong = 23;
    // SAFETY: the call reads a vector of the process.
    unsafe { getauxval(SECURE) != 0 }
}

/// Returns the value of an environment variable. It stays valid as long as the program does not change the
/// variable, so the value may be used only while the library starts.
pub(super) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero byte.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: the value is NULL or ends with a zero byte; see above for its lifetime.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

pub(super) fn process_id() -> i32 {
    // SAFETY: the call has no requirements.
    unsafe { getpid() }
}

/// Access mode of an open file.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Read,
    ReadWrite,
    Append,
}

/// An open file.
pub(super) struct File(c_int);

impl File {
    pub(super) fn open(path: &CStr, mode: Mode) -> Option<Self> {
        const CLOSE_ON_EXEC: c_int = 0o2_000_000;
        let flags = match mode {
            Mode::Read => 0,
            Mode::ReadWrite => 2,
            Mode::Append => 0o1 | 0o100 | 0o2000,
        };
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { open(path.as_ptr(), flags | CLOSE_ON_EXEC, 0o644) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads up to the length of `to`. Returns the part that was read.
    pub(super) fn read<'a>(&self, to: &'a mut [u8]) -> &'a [u8] {
        // SAFETY: the slice is writable.
        let len = unsafe { read(self.0, to.as_mut_ptr().cast(), to.len()) };
        to.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default()
    }

    pub(super) fn write(&self, text: &[u8]) {
        write_all(self.0, text);
    }

    /// Maps the portal of a work queue. It stays mapped, but forked children do not have it. The kernel's
    /// driver ensures the same.
    pub(super) fn map_portal(&self) -> Option<*mut u8> {
        const DO_NOT_FORK: c_int = 10;
        let page = map(PROT_WRITE, MAP_SHARED, self.0)?;
        // SAFETY: the advice concerns this new page alone.
        unsafe { madvise(page.cast(), PAGE, DO_NOT_FORK) };
        Some(page)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { close(self.0) };
    }
}

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_ANONYMOUS: c_int = 0x20;

fn map(access: c_int, flags: c_int, file: c_int) -> Option<*mut u8> {
    // SAFETY: the kernel chooses unused addresses.
    let page = unsafe { mmap(core::ptr::null_mut(), PAGE, access, flags, file, 0) };
    (page.addr() != usize::MAX).then(|| page.cast())
}

const PAGE: usize = 4096;

/// Returns a page of zeros that the kernel clears in forked children, however they are forked.
pub(super) fn page_wiped_by_fork() -> Option<*mut u8> {
    const WIPE_ON_FORK: c_int = 18;
    let page = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1)?;
    // SAFETY: the advice concerns this new page alone.
    if unsafe { madvise(page.cast(), PAGE, WIPE_ON_FORK) } != 0 {
        // SAFETY: nothing uses the page.
        unsafe { munmap(page.cast(), PAGE) };
        return None;
    }
    Some(page)
}

pub(super) fn write_error(text: &[u8]) {
    write_all(2, text);
}

fn write_all(file: c_int, mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the slice is readable.
        let written = unsafe { write(file, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => text = text.get(written..).unwrap_or_default(),
            _ => return,
        }
    }
}

pub(super) fn give_way() {
    // SAFETY: the call has no requirements.
    unsafe { sched_yield() };
}

/// Blocks the signals of this thread, except those that faults of instructions raise, while the value lives.
/// The C library's own signals, by which it cancels threads, are blocked as well.
pub(super) struct SignalsBlocked(u64);

impl SignalsBlocked {
    pub(super) fn new() -> Self {
        /// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS.
        const FAULTS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;
        const BLOCK: usize = 0;
        let (new, mut old) = (!FAULTS, 0);
        set_signal_mask(BLOCK, &new, &mut old);
        Self(old)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        const SET: usize = 2;
        set_signal_mask(SET, &self.0, &mut 0);
    }
}

/// Makes the system call, because the C library's function never blocks the C library's own signals.
fn set_signal_mask(how: usize, new: &u64, old: &mut u64) {
    const RT_SIGPROCMASK: usize = 14;
    // SAFETY: both masks have the 8 bytes that the call is told.
    unsafe {
        asm!("syscall", inout("rax") RT_SIGPROCMASK => _, in("rdi") how, in("rsi") new, in("rdx") old,
            in("r10") 8_usize, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
}

/// Reads the time stamp counter.
pub(super) fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has a time stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ends the process by SIGILL.
pub(super) fn trap() -> ! {
    // SAFETY: the instruction raises a signal, and does not return.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// Returns the size of a core's second level cache in bytes, or 1 MiB if the CPU does not report it.
pub(super) fn own_cache() -> usize {
    use core::arch::x86_64::__cpuid_count;
    const USUAL: usize = 1 << 20;
    // Intel's leaf of caches; AMD's has the same format.
    for leaf in [4, 0x8000_001d] {
        if __cpuid_count(leaf & 0x8000_0000, 0).eax < leaf {
            continue;
        }
        for index in 0..8 {
            let cache = __cpuid_count(leaf, index);
            let (kind, level) = (cache.eax & 31, cache.eax >> 5 & 7);
            let [line, parts, ways] = [0, 12, 22].map(|bit| (cache.ebx >> bit) as usize);
            let (line, parts, ways) = ((line & 0xfff) + 1, (parts & 0x3ff) + 1, (ways & 0x3ff) + 1);
            if kind == 0 {
                break;
            }
            if level == 2 {
                return line * parts * ways * (cache.ecx as usize + 1);
            }
        }
    }
    USUAL
}
