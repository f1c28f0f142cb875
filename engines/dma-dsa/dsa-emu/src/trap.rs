//! Signal handlers that take the stores to portals: the instruction's bytes, the 64 bytes that it would
//! store, and a step over it. Other signals go to the handler that was there before.
//!
//! A portal is a mapping of an empty file, so that every store to it raises SIGBUS, or SIGSEGV where it is
//! mapped without rights. A processor that lacks the instruction, or may not run it, raises SIGILL or SIGSEGV
//! without an address. So all three signals are handled alike, and only the instruction decides.
#![expect(unsafe_code, reason = "signal handlers, and the registers that they change")]

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::mem::{self, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{REG_EFL, REG_ERR, REG_RDX, REG_RIP, sigaction, siginfo_t, sigset_t, ucontext_t};

use crate::config::Config;
use crate::decode::{self, LONGEST, Registers, Store};
use crate::descriptor::{Descriptor, SIZE};
use crate::memory;
use crate::queue::Queue;

/// The signals of traps.
pub(crate) const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL];

/// Work queues whose files may be mapped. A work queue is never freed, because a handler may hold it.
static QUEUES: [AtomicPtr<Queue>; Config::MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; Config::MOST];

/// The program's own action for each of [`SIGNALS`], or the one before. Never freed, as above.
static PREVIOUS: [AtomicPtr<sigaction>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

/// Lets stores to mappings of the work queue's file reach it; `false` if there is no room for more.
pub(crate) fn add(queue: &'static Queue) -> bool {
    let queue = ptr::from_ref(queue).cast_mut();
    QUEUES.iter().any(|place| {
        place.compare_exchange(ptr::null_mut(), queue, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Undoes [`add`].
pub(crate) fn remove(queue: &'static Queue) {
    let queue = ptr::from_ref(queue).cast_mut();
    for place in &QUEUES {
        let _ = place.compare_exchange(queue, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

pub(crate) fn queues() -> impl Iterator<Item = &'static Queue> {
    // SAFETY: work queues that were added live for ever.
    QUEUES.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// The end of a link to a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// The work queue whose file has this path, or had it.
pub(crate) fn queue_of(path: &[u8]) -> Option<&'static Queue> {
    let path = path.strip_suffix(REMOVED).unwrap_or(path);
    queues().find(|queue| queue.file.as_os_str().as_bytes() == path)
}

/// The path that a symbolic link of `/proc/self` names. Safe in a signal handler.
pub(crate) fn with_link<T>(
    link: std::fmt::Arguments<'_>,
    then: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    let (mut name, mut path) = ([0_u8; 80], [MaybeUninit::<u8>::uninit(); 1024]);
    (&mut name[..79]).write_fmt(link).ok()?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    then(rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut path[..]).ok()?.0)
}

/// The work queue whose portal has this address, and whether its file was removed since.
fn portal(address: u64) -> Option<(&'static Queue, bool)> {
    let page = address & !0xfff;
    let end = page.checked_add(0x1000)?;
    with_link(format_args!("/proc/self/map_files/{page:x}-{end:x}"), |path| {
        queue_of(path).map(|queue| (queue, path.ends_with(REMOVED)))
    })
}

/// Installs the handlers, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            let mut old = MaybeUninit::zeroed();
            // SAFETY: all zeroes is an action.
            let mut action: sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            // A fault while a descriptor is read comes from within the handler.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
            // SAFETY: a handler that does what handlers may, and room for the old action.
            if unsafe { real_sigaction(signal, &raw const action, old.as_mut_ptr()) } == 0 {
                // SAFETY: written by the call.
                previous.store(Box::into_raw(Box::new(unsafe { old.assume_init() })), Ordering::Release);
            }
        }
    });
}

/// The C library's `sigaction`, whatever this library exports.
unsafe fn real_sigaction(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    #[cfg(feature = "preload")]
    // SAFETY: the caller's promise.
    return unsafe { crate::preload::real::sigaction(signal, new, old) };
    #[cfg(not(feature = "preload"))]
    // SAFETY: the caller's promise.
    return unsafe { libc::sigaction(signal, new, old) };
}

/// The place of a signal of ours in [`PREVIOUS`], once the handlers are installed.
#[cfg(feature = "preload")]
fn previous(signal: c_int) -> Option<&'static AtomicPtr<sigaction>> {
    let previous = SIGNALS.iter().position(|of_trap| *of_trap == signal).map(|n| &PREVIOUS[n])?;
    (!previous.load(Ordering::Acquire).is_null()).then_some(previous)
}

/// Does for a signal of ours what `sigaction` does, on the action that is behind our handler. `None`: it is
/// another signal.
///
/// # Safety
///
/// As for `sigaction`.
#[cfg(feature = "preload")]
pub(crate) unsafe fn change(signal: c_int, new: *const sigaction, old: *mut sigaction) -> Option<()> {
    let previous = previous(signal)?;
    // SAFETY: the caller's promise.
    let new = unsafe { new.as_ref() };
    let was = match new {
        Some(new) => previous.swap(Box::into_raw(Box::new(*new)), Ordering::AcqRel),
        None => previous.load(Ordering::Acquire),
    };
    if !old.is_null() {
        // SAFETY: the caller's promise.
        let old = unsafe { &mut *old };
        // SAFETY: actions are never freed.
        *old = unsafe { *was };
    }
    Some(())
}

/// Blocks all signals but those of traps on this thread, which is ours: the program's handlers run on its
/// own.
pub(crate) fn block_signals() {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: room for a set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in SIGNALS {
        // SAFETY: initialised above.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) };
}

/// General registers by their numbers in `ucontext_t`, in the order of the machine's encoding.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

struct Context<'a>(&'a mut ucontext_t);

impl Context<'_> {
    const fn get(&self, register: c_int) -> u64 {
        self.0.uc_mcontext.gregs[register as usize].cast_unsigned()
    }
    const fn set(&mut self, register: c_int, value: u64) {
        self.0.uc_mcontext.gregs[register as usize] = value.cast_signed();
    }
}

impl Registers for Context<'_> {
    fn general(&self, number: u8) -> u64 {
        self.get(GENERAL[usize::from(number & 15)])
    }
    fn rip(&self) -> u64 {
        self.get(REG_RIP)
    }
    fn fs_base(&self) -> u64 {
        let base: u64;
        // SAFETY: the first word there is its own address, by the ABI of x86-64.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) base, options(nostack, readonly, preserves_flags))
        };
        base
    }
}

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid context,
    let registers = unsafe { &mut *context.cast::<ucontext_t>() };
    // SAFETY: and a valid description.
    let described = unsafe { &*info };
    if !taken(described, registers) {
        // SAFETY: the arguments of this very call.
        unsafe { forward(signal, info, context) };
    }
}

/// Handles a signal, if it is one of the stand-in's own, and changes the registers accordingly.
pub(crate) fn taken(info: &siginfo_t, context: &mut ucontext_t) -> bool {
    let mut context = Context(context);
    // SAFETY: signals of memory have an address. It means nothing with others, which come from elsewhere.
    let address = unsafe { info.si_addr() }.addr() as u64;
    if let Some((rip, rdx)) = memory::recover(context.rip(), address, context.get(REG_ERR) & 2 != 0) {
        context.set(REG_RIP, rip);
        context.set(REG_RDX, rdx);
        return true;
    }
    let mut code = [0; LONGEST];
    // SAFETY: the handler is installed.
    let len = unsafe { memory::read(context.rip(), &mut code) }.map_or_else(|fault| fault.done, |()| LONGEST);
    let Some(instruction) = decode::decode(&code[..len], &context) else { return false };
    // For programs, ENQCMDS is a protection fault. So is a destination that is not aligned.
    if instruction.store == Store::Enqcmds || !instruction.destination.is_multiple_of(SIZE as u64) {
        return false;
    }
    let Some((queue, stale)) = portal(instruction.destination) else { return false };
    let mut bytes = [0; SIZE];
    // SAFETY: as above.
    if unsafe { memory::read(instruction.source, &mut bytes) }.is_err() {
        return false;
    }
    let refused = queue.store(instruction.store, &Descriptor::from_bytes(&bytes), stale);
    if instruction.store == Store::Enqcmd {
        /// Carry, parity, adjust, zero, sign and overflow.
        const FLAGS: u64 = 0x8d5;
        const ZERO: u64 = 0x40;
        context.set(REG_EFL, context.get(REG_EFL) & !FLAGS | if refused { ZERO } else { 0 });
    }
    context.set(REG_RIP, context.rip() + u64::from(instruction.len));
    true
}

/// Lets the action that is behind our handler have the signal.
///
/// # Safety
///
/// The arguments are those of a handler.
unsafe fn forward(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(n) = SIGNALS.iter().position(|of_trap| *of_trap == signal) else { return };
    // SAFETY: actions are never freed.
    let action = unsafe { PREVIOUS[n].load(Ordering::Acquire).as_ref() };
    let action = action.filter(|action| ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction));
    let Some(action) = action else {
        // SAFETY: all zeroes is the default action.
        let default: sigaction = unsafe { mem::zeroed() };
        // The instruction is repeated, and ends the process as it would have without us. One who sent the
        // signal sends it once more.
        // SAFETY: a valid action.
        unsafe { real_sigaction(signal, &raw const default, ptr::null_mut()) };
        // SAFETY: a description by the system.
        if unsafe { (*info).si_code } <= 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::raise(signal) };
        }
        return;
    };
    let mut mask = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a set that is initialised.
        unsafe { libc::sigaddset(&raw mut mask, signal) };
    }
    // The system restores the mask when our handler returns.
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, ptr::null_mut()) };
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flag says that it is such a function.
        let handler = unsafe {
            mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(action.sa_sigaction)
        };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it is such a one.
        let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(action.sa_sigaction) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests;
