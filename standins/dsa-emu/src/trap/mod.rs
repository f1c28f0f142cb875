//! Signal handlers that emulate stores to portals: they decode the instruction, read the 64 bytes that it
//! would store, and skip it. Other signals are forwarded to the handler that was installed before.
//!
//! A portal is a mapping of an empty file, so every store to it raises SIGBUS, or SIGSEGV if it is mapped
//! without rights. A processor that lacks the instruction, or may not run it, raises SIGILL or SIGSEGV
//! without an address. So all three signals have the same handler, which examines only the instruction.
//!
//! An instruction that the processor lacks has the same effect as on a processor that has it, including
//! faults: such a fault reaches the program's handler for SIGSEGV or SIGBUS, not the handler for SIGILL.
//!
//! The handlers run on the program's alternate stack, which may have room for only two frames. Therefore all
//! other signals are blocked while a trap is handled, and are delivered when it ends. The emulation of an
//! instruction runs on the program's own stack, below the bytes in use.
#![expect(unsafe_code, reason = "installs signal handlers, which change registers")]

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::mem::{self, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{REG_EFL, REG_ERR, REG_RDX, REG_RIP, sigaction, siginfo_t, ucontext_t};

use crate::config::Config;
use crate::decode::{self, Instruction, LONGEST, Operation, Registers, Store};
use crate::descriptor::{Descriptor, SIZE};
use crate::memory::{self, Fault, SI_KERNEL};
use crate::queue::Queue;
use crate::signals::{SIGNALS, bit_of, bits_of, bits_of_traps, change_mask, real_sigaction, signal_set};

/// Work queues whose files may be mapped. A work queue is never freed, because a handler may hold it.
static QUEUES: [AtomicPtr<Queue>; Config::MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; Config::MOST];

/// The program's own action for each of [`SIGNALS`]; null for the default action. Actions are never freed,
/// because a handler may be reading one.
static PREVIOUS: [AtomicPtr<sigaction>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

/// Makes stores to mappings of the work queue's file reach this work queue. Returns false if there are too
/// many work queues.
pub(crate) fn add(queue: &'static Queue) -> bool {
    let queue = ptr::from_ref(queue).cast_mut();
    QUEUES.iter().any(|place| {
        place.compare_exchange(ptr::null_mut(), queue, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Removes a work queue that [`add`] added.
pub(crate) fn remove(queue: &'static Queue) {
    let queue = ptr::from_ref(queue).cast_mut();
    for place in &QUEUES {
        let _ = place.compare_exchange(queue, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Returns all work queues of this process.
pub fn queues() -> impl Iterator<Item = &'static Queue> {
    // SAFETY: work queues that were added are never freed.
    QUEUES.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Suffix of a link to a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// Returns the work queue whose file has this path, or had it before it was removed.
pub fn queue_of(path: &[u8]) -> Option<&'static Queue> {
    let path = path.strip_suffix(REMOVED).unwrap_or(path);
    queues().find(|queue| queue.file.as_os_str().as_bytes() == path)
}

/// Calls `then` with the path that a symbolic link of `/proc/self` names. Async-signal-safe.
pub fn with_link<T>(link: std::fmt::Arguments<'_>, then: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let (mut name, mut path) = ([0_u8; 80], [MaybeUninit::<u8>::uninit(); 1024]);
    (&mut name[..79]).write_fmt(link).ok()?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    then(rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut path[..]).ok()?.0)
}

/// Returns the work queue whose portal has this address, and true if the work queue's file was removed after
/// the portal was mapped.
fn portal(address: u64) -> Option<(&'static Queue, bool)> {
    let page = address & !0xfff;
    let end = page.checked_add(0x1000)?;
    with_link(format_args!("/proc/self/map_files/{page:x}-{end:x}"), |path| {
        queue_of(path).map(|queue| (queue, path.ends_with(REMOVED)))
    })
}

/// Completed once the handlers are installed.
static INSTALLED: Once = Once::new();

/// Installs the handlers, once.
pub(crate) fn install() {
    INSTALLED.call_once(|| {
        // This call blocks no signals, but looks up the symbol of the C library's function, which a handler
        // must not do.
        change_mask(libc::SIG_BLOCK, 0);
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            let mut old = MaybeUninit::zeroed();
            // SAFETY: a `sigaction` of zero bytes is valid.
            let mut action: sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            // SA_NODEFER, because the handler itself can fault while it reads a descriptor.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
            action.sa_mask = signal_set(!bits_of_traps());
            // SAFETY: the handler makes only calls that are allowed in a signal handler, and `old` has room
            // for the old action.
            if unsafe { real_sigaction(signal, &raw const action, old.as_mut_ptr()) } == 0 {
                // SAFETY: the call succeeded, so it has written the old action.
                previous.store(Box::into_raw(Box::new(unsafe { old.assume_init() })), Ordering::Release);
            }
        }
    });
}

/// Handles the program's call of `sigaction` for a signal that this crate traps: reads and replaces the
/// action to which our handler forwards. Returns `None` for other signals.
///
/// # Safety
///
/// The requirements are those of `sigaction`.
pub unsafe fn change(signal: c_int, new: *const sigaction, old: *mut sigaction) -> Option<()> {
    let previous = SIGNALS.iter().position(|of_trap| *of_trap == signal).map(|n| &PREVIOUS[n])?;
    if !INSTALLED.is_completed() {
        return None;
    }
    // SAFETY: `sigaction` requires that the pointer is null or points to a valid action.
    let new = unsafe { new.as_ref() };
    let was = match new {
        Some(new) => previous.swap(Box::into_raw(Box::new(*new)), Ordering::AcqRel),
        None => previous.load(Ordering::Acquire),
    };
    // SAFETY: `sigaction` requires that the pointer is null or has room for an action.
    if let Some(old) = unsafe { old.as_mut() } {
        // SAFETY: the pointer is null or points to an action that is never freed.
        *old = match unsafe { was.as_ref() } {
            Some(was) => *was,
            // SAFETY: a `sigaction` of zero bytes is valid: the default action.
            None => unsafe { mem::zeroed() },
        };
    }
    Some(())
}

/// Indices of the general registers in `ucontext_t`, in the order of their numbers in x86-64 instructions.
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
    /// Among the flags carry, parity, adjust, zero, sign and overflow, sets those in `flags` and clears the
    /// others.
    const fn set_flags(&mut self, flags: u64) {
        const ALL: u64 = 0x8d5;
        self.set(REG_EFL, self.get(REG_EFL) & !ALL | flags);
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
        // SAFETY: by the ABI of x86-64, FS points to a word that holds its own address.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) base, options(nostack, readonly, preserves_flags))
        };
        base
    }
}

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let registers = context.cast::<ucontext_t>();
    // SAFETY: the system passes a valid context, which only this handler accesses.
    let registers = unsafe { &mut *registers };
    // SAFETY: the system passes a valid description.
    let described = unsafe { &*info };
    if recovered(described, registers) {
        return;
    }
    match emulate(described, registers) {
        Trap::Emulated => {}
        Trap::Other => {
            let was_sent = described.si_code <= 0;
            // SAFETY: the arguments are those of this handler, unchanged.
            unsafe { forward(signal, info, context, !was_sent) };
        }
        Trap::Faulted(fault) => fault_in_program(fault, registers),
    }
}

/// Ends an access of [`memory`] that faulted. This function does no more, because it may run on top of
/// another handler, whose stack may be short.
fn recovered(info: &siginfo_t, context: &mut ucontext_t) -> bool {
    let mut context = Context(context);
    let Some(goes_on) = memory::recover(context.rip()) else { return false };
    // SAFETY: signals of memory faults have an address.
    let address = unsafe { info.si_addr() }.addr() as u64;
    let write = context.get(REG_ERR) & 2 != 0;
    let fault = Fault { done: 0, address, write, signal: info.si_signo, code: info.si_code };
    let place = ptr::with_exposed_provenance_mut::<Fault>(context.get(libc::REG_R8) as usize);
    // SAFETY: the code at this address holds in R8 a pointer to room for a fault.
    unsafe { place.write(fault) };
    context.set(REG_RIP, goes_on);
    true
}

/// The outcome of a trap.
#[derive(Debug, PartialEq, Eq)]
enum Trap {
    /// The instruction was emulated, and the program continues after it.
    Emulated,
    /// The instruction is not one that is emulated here, or a processor that has it would raise the same
    /// signal.
    Other,
    /// The emulated instruction faults, as it would on a processor that has it.
    Faulted(Fault),
}

impl From<Fault> for Trap {
    fn from(fault: Fault) -> Self {
        Self::Faulted(fault)
    }
}

/// Emulates the instruction that raised a signal, if it is one that is emulated here.
#[inline(never)]
fn emulate(info: &siginfo_t, context: &mut ucontext_t) -> Trap {
    let alternate = context.uc_stack;
    let context = Context(context);
    let mut code = [0; LONGEST];
    // SAFETY: the trap handler is installed.
    let len = unsafe { memory::read(context.rip(), &mut code) }.map_or_else(|fault| fault.done, |()| LONGEST);
    let Some(instruction) = decode::decode(&code[..len], &context) else { return Trap::Other };
    let program_stack = context.get(libc::REG_RSP);
    let mut emulation = Emulation { instruction, info, context, end: Trap::Other };
    let is_on = |address: u64| address.wrapping_sub(alternate.ss_sp.addr() as u64) < alternate.ss_size as u64;
    if is_on(ptr::from_ref(&emulation).addr() as u64) && !is_on(program_stack) {
        // SAFETY: the stack is free below the red zone, the 128 bytes below the stack pointer that the ABI
        // reserves for the interrupted function. The address is rounded down to a multiple of 16.
        unsafe { call_on(program_stack.wrapping_sub(128) & !15, &mut emulation) };
    } else {
        emulation.run();
    }
    emulation.end
}

/// Calls [`Emulation::run`] on a stack that is not the alternate one.
///
/// # Safety
///
/// The stack below this address is free, and the address is a multiple of 16.
unsafe fn call_on(stack: u64, emulation: &mut Emulation<'_>) {
    extern "C" fn run(emulation: &mut Emulation<'_>) {
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        let mut alternate = MaybeUninit::uninit();
        // Without this, the frame of a fault on this stack would overwrite our frames on the alternate stack.
        // SAFETY: `alternate` has room for the description of a stack, and this thread no longer runs on the
        // alternate stack.
        let is_off = unsafe { libc::sigaltstack(&raw const off, alternate.as_mut_ptr()) } == 0;
        emulation.run();
        if is_off {
            // SAFETY: this restores the alternate stack that was set before.
            unsafe { libc::sigaltstack(alternate.as_ptr(), ptr::null_mut()) };
        }
    }
    // SAFETY: this calls a function with its argument on a stack that the caller guarantees is free, and
    // returns to the present stack. C functions preserve R12, which holds its stack pointer.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, rsi",
            "call {run}",
            "mov rsp, r12",
            run = sym run,
            inout("rdi") emulation => _,
            inout("rsi") stack => _,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// An instruction that is being emulated.
struct Emulation<'a> {
    instruction: Instruction,
    info: &'a siginfo_t,
    context: Context<'a>,
    end: Trap,
}

impl Emulation<'_> {
    /// Emulates the instruction, and sets the outcome of the trap.
    fn run(&mut self) {
        self.end = perform(self.instruction, self.info, &mut self.context);
    }
}

/// Emulates an instruction, and makes the program continue after it.
fn perform(instruction: Instruction, info: &siginfo_t, context: &mut Context<'_>) -> Trap {
    let is_lacking = info.si_signo == libc::SIGILL;
    let done = match instruction.operation {
        Operation::Store { store, source, destination } => {
            let may_not = info.si_signo == libc::SIGSEGV && info.si_code == SI_KERNEL;
            emulate_store(store, source, destination, is_lacking, may_not, context)
        }
        _ if !is_lacking => return Trap::Other,
        Operation::Monitor { address } => {
            // SAFETY: the trap handler is installed. One byte is read, as the instruction does.
            unsafe { memory::read(address, &mut [0]) }.map_err(Trap::from)
        }
        Operation::Wait { state } | Operation::Pause { state } if state > 1 => {
            Err(Fault::protection().into())
        }
        // UMWAIT may return early, because programs check their condition again.
        Operation::Wait { .. } => {
            rustix::thread::sched_yield();
            context.set_flags(0);
            Ok(())
        }
        Operation::Pause { .. } => {
            pause(context);
            Ok(())
        }
    };
    match done {
        Ok(()) => {
            context.set(REG_RIP, context.rip() + u64::from(instruction.len));
            Trap::Emulated
        }
        Err(trap) => trap,
    }
}

/// Emulates a store of 64 bytes. `is_lacking`: the processor lacks the instruction. `may_not`: the kernel
/// does not allow the process to run it, or its operands are invalid.
fn emulate_store(
    store: Store,
    source: u64,
    destination: u64,
    is_lacking: bool,
    may_not: bool,
    context: &mut Context<'_>,
) -> Result<(), Trap> {
    // ENQCMDS in user mode, and a destination that is not aligned, raise a protection fault.
    if store == Store::Enqcmds || !destination.is_multiple_of(SIZE as u64) {
        return Err(if is_lacking { Fault::protection().into() } else { Trap::Other });
    }
    let portal = portal(destination);
    if portal.is_none() && !is_lacking && !(store == Store::Enqcmd && may_not) {
        return Err(Trap::Other);
    }
    let mut bytes = [0; SIZE];
    // SAFETY: the trap handler is installed.
    unsafe { memory::read(source, &mut bytes) }?;
    let refused = match portal {
        Some((queue, stale)) => queue.store(store, &Descriptor::from_bytes(&bytes), stale),
        None if store == Store::Movdir64b => {
            // SAFETY: the trap handler is installed, and the program itself asked for this store.
            unsafe { memory::write(destination, &bytes) }?;
            false
        }
        None => {
            // SAFETY: the trap handler is installed.
            unsafe { memory::touch(destination) }?;
            true
        }
    };
    if store == Store::Enqcmd {
        const ZERO: u64 = 0x40;
        context.set_flags(if refused { ZERO } else { 0 });
    }
    Ok(())
}

/// Waits as TPAUSE does: until the time-stamp counter reaches the value in EDX and EAX, but no longer than
/// the system's limit. The carry flag is set if the limit ended the wait.
fn pause(context: &mut Context<'_>) {
    /// The kernel's default, in cycles of the time-stamp counter (`umwait_control/max_time` in Linux's
    /// `Documentation/ABI/testing/sysfs-devices-system-cpu`).
    const LIMIT: u64 = 100_000;
    const CARRY: u64 = 1;
    const LOW: u64 = u32::MAX as u64;
    let counter = || {
        // SAFETY: every x86-64 processor has RDTSC.
        unsafe { std::arch::x86_64::_rdtsc() }
    };
    let deadline = (context.get(REG_RDX) & LOW) << 32 | context.get(libc::REG_RAX) & LOW;
    let limit = counter().saturating_add(LIMIT);
    while counter() < deadline.min(limit) {
        rustix::thread::sched_yield();
    }
    context.set_flags(if deadline > limit { CARRY } else { 0 });
}

/// Delivers the fault of an emulated instruction to the program.
#[inline(never)]
fn fault_in_program(fault: Fault, context: &mut ucontext_t) {
    /// The first fields of `siginfo_t` for a fault.
    #[repr(C)]
    struct Described {
        signal: c_int,
        errno: c_int,
        code: c_int,
        _gap: c_int,
        address: u64,
    }
    let described =
        Described { signal: fault.signal, errno: 0, code: fault.code, _gap: 0, address: fault.address };
    // SAFETY: a `siginfo_t` of zero bytes is valid.
    let mut info: siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: `siginfo_t` is longer, and for a fault its first fields are these (`asm-generic/siginfo.h`).
    unsafe { (&raw mut info).cast::<Described>().write(described) };
    // Exception number and the processor's error code of an access in user mode: 13 for a protection fault,
    // 14 for a page that is not mapped or lacks the right.
    const SEGV_ACCERR: c_int = 2;
    let error = 4 | u64::from(fault.write) << 1 | u64::from(fault.code == SEGV_ACCERR);
    let (exception, error) = if fault.code == SI_KERNEL { (13, 0) } else { (14, error) };
    let mut registers = Context(context);
    registers.set(libc::REG_TRAPNO, exception);
    registers.set(REG_ERR, error);
    registers.set(libc::REG_CR2, fault.address);
    // SAFETY: `info` is a valid description, and the context is the one that the system passed.
    unsafe { forward(fault.signal, &raw mut info, ptr::from_mut(context).cast(), false) };
}

/// Forwards the signal to the program's own action. `is_repeatable`: repeating the program's instruction
/// would raise the signal again.
///
/// # Safety
///
/// `info` and `context` must be the arguments of a signal handler.
unsafe fn forward(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_repeatable: bool) {
    let Some(n) = SIGNALS.iter().position(|of_trap| *of_trap == signal) else { return };
    let set = PREVIOUS[n].load(Ordering::Acquire);
    // SAFETY: the pointer is null or points to an action that is never freed.
    let action = unsafe { set.as_ref() };
    let handler = action.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    let Some(action) = action.filter(|_| ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler)) else {
        // SAFETY: the caller passes a valid description.
        let was_sent = unsafe { (*info).si_code } <= 0;
        // A fault ends the process even if the signal is ignored.
        if handler == libc::SIG_DFL || !was_sent {
            end(signal, is_repeatable);
        }
        return;
    };
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        // If another thread has set a new action since, the new action stays.
        let _ = PREVIOUS[n].compare_exchange(set, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
    let mask = context.wrapping_byte_add(mem::offset_of!(ucontext_t, uc_sigmask));
    // SAFETY: the caller's context contains a mask of 64 bits.
    let mut blocked = unsafe { bits_of(mask.cast()) };
    // SAFETY: a set of the C library begins with the kernel's 64 bits.
    blocked |= unsafe { bits_of(&raw const action.sa_mask) };
    if action.sa_flags & libc::SA_NODEFER == 0 {
        blocked |= bit_of(signal);
    }
    // The system restores the mask of the context when our handler returns.
    change_mask(libc::SIG_SETMASK, blocked);
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with the flag `SA_SIGINFO`, the action is a function with these three arguments.
        let handler = unsafe {
            mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(action.sa_sigaction)
        };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag `SA_SIGINFO`, the action is a function with this one argument.
        let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(action.sa_sigaction) };
        handler(signal);
    }
}

/// Ends the process by the default action of a signal: at once, or when the program's instruction is
/// repeated.
fn end(signal: c_int, is_repeatable: bool) {
    // SAFETY: a `sigaction` of zero bytes is valid: the default action.
    let default: sigaction = unsafe { mem::zeroed() };
    // SAFETY: `default` is a valid action.
    unsafe { real_sigaction(signal, &raw const default, ptr::null_mut()) };
    if is_repeatable {
        return;
    }
    change_mask(libc::SIG_UNBLOCK, bit_of(signal));
    // SAFETY: the call accesses no memory of the program.
    unsafe { libc::raise(signal) };
}

#[cfg(test)]
mod tests;
