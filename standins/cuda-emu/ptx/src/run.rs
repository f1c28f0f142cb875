//! Interprets kernels.
#![expect(unsafe_code, reason = "accesses memory that a kernel names")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::call_stack::{CallStack, Caller};
use super::code::{
    Address, AtomicOp, BinaryOp, Instruction, Kernel, Register, Space, Special, Src, Step, Type, mask,
};
use super::device::{GlobalMemory, Mapped, Progress, Traffic, Trap, TrapKind};
use super::eval;
use super::memory_map::{LOCAL_WINDOW, SHARED_WINDOW, STALE};

/// Length of the windows of shared memory and of the memory of a thread.
const WINDOW_LEN: u64 = 1 << 32;
/// Threads of a warp.
const WARP: u32 = 32;
/// Number of instructions after which the next thread of the block continues, so that threads that wait for
/// other threads of their block make progress.
const TURN: u32 = 1 << 14;
/// Instructions of all threads after which the driver continues with other work.
const SLICE: u64 = 1 << 20;

/// A kernel in execution.
#[derive(Debug)]
pub struct Launch {
    kernel: Arc<Kernel>,
    blocks: [u32; 3],
    threads: [u32; 3],
    parameters: Box<[u8]>,
    shared_len: usize,
    /// Number of the block that is executed now.
    block: u64,
    state: Block,
    /// Bytes that the kernel has moved so far.
    pub traffic: Traffic,
}

/// The block that is executed now.
#[derive(Debug, Default)]
struct Block {
    /// Registers of all threads.
    registers: Vec<u64>,
    threads: Vec<Thread>,
    shared: Vec<u64>,
    /// The call stacks of all threads.
    stacks: Vec<CallStack>,
    /// The thread whose turn it is.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Index of the function that is executed; `None` for the kernel.
    function: Option<u32>,
    next: u32,
    state: ThreadState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Running,
    AtBarrier,
    Ended,
}

impl Launch {
    /// Begins a launch of `blocks` blocks of `threads` threads in each dimension. `parameters` has the bytes
    /// of the kernel's parameters. `dynamic_shared` is added to the shared memory of each block, in bytes.
    pub fn new(
        kernel: &Arc<Kernel>,
        blocks: [u32; 3],
        threads: [u32; 3],
        parameters: Box<[u8]>,
        dynamic_shared: u32,
    ) -> Self {
        let shared_len = if dynamic_shared > 0 {
            kernel.shared.next_multiple_of(16) as usize + dynamic_shared as usize
        } else {
            kernel.shared as usize
        };
        let mut launch = Self {
            kernel: Arc::clone(kernel),
            blocks,
            threads,
            parameters,
            shared_len,
            block: 0,
            state: Block::default(),
            traffic: Traffic::default(),
        };
        launch.begin_block();
        launch
    }

    fn begin_block(&mut self) {
        let threads = self.threads.iter().product::<u32>() as usize;
        let state = &mut self.state;
        state.registers.clear();
        state.registers.resize(threads * usize::from(self.kernel.frame_registers()), 0);
        state.threads.clear();
        state.threads.resize(threads, Thread { function: None, next: 0, state: ThreadState::Running });
        state.shared.clear();
        state.shared.resize(self.shared_len.div_ceil(8), STALE);
        state.stacks.resize_with(threads, CallStack::default);
        state.stacks.iter_mut().for_each(|stack| stack.begin(&self.kernel.code));
        state.turn = 0;
    }

    /// Executes instructions until the kernel ends or has used its slice, 2^20 instructions of all threads.
    ///
    /// # Errors
    ///
    /// Returns a trap if an access or an instruction fails. The kernel has to be dropped then.
    pub fn run(&mut self, memory: &dyn GlobalMemory) -> Result<Progress, Trap> {
        let total = self.blocks.iter().map(|number| u64::from(*number)).product::<u64>();
        let mut left = SLICE;
        let mut reach = Reach { memory, recent: [None; 4], oldest: 0 };
        while self.block < total {
            while self.run_block(&mut reach, &mut left)? == Progress::Running {
                if left == 0 {
                    return Ok(Progress::Running);
                }
            }
            self.block += 1;
            if self.block < total {
                self.begin_block();
            }
        }
        Ok(Progress::Ended)
    }

    /// Gives each thread of the block a turn.
    fn run_block(&mut self, reach: &mut Reach<'_>, left: &mut u64) -> Result<Progress, Trap> {
        let registers = usize::from(self.kernel.frame_registers());
        let [x, y, _] = self.blocks.map(u64::from);
        let block = [self.block % x, self.block / x % y, self.block / x / y].map(|at| at as u32);
        while let Some(thread) = self.state.threads.get_mut(self.state.turn) {
            if *left == 0 {
                return Ok(Progress::Running);
            }
            if thread.state == ThreadState::Running {
                let index = self.state.turn;
                let mut context = ThreadContext {
                    registers: &mut self.state.registers[index * registers..(index + 1) * registers],
                    shared: &mut self.state.shared,
                    stack: &mut self.state.stacks[index],
                    parameters: &self.parameters,
                    traffic: &mut self.traffic,
                    reach,
                    index: index as u32,
                    block,
                    blocks: self.blocks,
                    threads: self.threads,
                };
                let budget = TURN.min(u32::try_from(*left).unwrap_or(TURN));
                let used = context.run(&self.kernel, thread, budget).map_err(|(line, kind, what)| {
                    let name = &self.kernel.name;
                    Trap {
                        kind,
                        message: format!(
                            "kernel {name}, ptx line {line}, block {block:?}, thread {index}: {what}"
                        ),
                    }
                })?;
                *left -= u64::from(used).min(*left);
            }
            self.state.turn += 1;
        }
        self.state.turn = 0;
        let threads = &mut self.state.threads;
        if threads.iter().all(|thread| thread.state == ThreadState::Ended) {
            return Ok(Progress::Ended);
        }
        if threads.iter().all(|thread| thread.state != ThreadState::Running) {
            // All threads that have not ended are at the barrier.
            let waiting = threads.iter_mut().filter(|thread| thread.state == ThreadState::AtBarrier);
            waiting.for_each(|thread| thread.state = ThreadState::Running);
        }
        Ok(Progress::Running)
    }
}

/// Looks up memory, and remembers the last ranges. Ranges may change after the driver is unlocked, so this
/// value lives for one slice.
struct Reach<'a> {
    memory: &'a dyn GlobalMemory,
    recent: [Option<Mapped>; 4],
    oldest: usize,
}

impl Reach<'_> {
    #[inline]
    fn find(&mut self, addr: u64, len: u64) -> Option<Mapped> {
        let is_in = |range: &Mapped| range.start <= addr && addr < range.end && len <= range.end - addr;
        if let Some(range) = self.recent.iter().flatten().find(|range| is_in(range)) {
            return Some(*range);
        }
        let range = self.memory.find(addr).filter(is_in)?;
        self.recent[self.oldest] = Some(range);
        self.oldest = (self.oldest + 1) % self.recent.len();
        Some(range)
    }
}

/// A thread in execution.
struct ThreadContext<'a, 'r> {
    registers: &'a mut [u64],
    shared: &'a mut [u64],
    stack: &'a mut CallStack,
    parameters: &'a [u8],
    traffic: &'a mut Traffic,
    reach: &'a mut Reach<'r>,
    index: u32,
    block: [u32; 3],
    blocks: [u32; 3],
    threads: [u32; 3],
}

/// A failure: the kind, and a description.
type Failure = (TrapKind, String);

impl ThreadContext<'_, '_> {
    #[inline]
    fn get(&self, source: Src) -> u64 {
        match source {
            Src::Register(register) => self.registers[usize::from(register)],
            Src::Value(value) => value,
            Src::Local(offset) => self.stack.local_address(offset),
        }
    }

    #[inline]
    fn set(&mut self, register: Register, value: u64) {
        self.registers[usize::from(register)] = value;
    }

    /// Executes instructions until the thread ends, waits, or has used its budget. Returns the number of
    /// executed instructions. An error has the line of the instruction.
    fn run(
        &mut self,
        kernel: &Kernel,
        thread: &mut Thread,
        budget: u32,
    ) -> Result<u32, (u32, TrapKind, String)> {
        let code_of = |function: Option<u32>| match function {
            Some(function) => &kernel.functions[function as usize],
            None => &kernel.code,
        };
        let mut code = code_of(thread.function);
        let mut steps = &code.steps[..];
        let mut next = thread.next;
        for used in 0..budget {
            let Step { guard, instruction, line } = &steps[next as usize];
            next += 1;
            if let Some(guard) = guard
                && (self.registers[usize::from(guard.register)] != 0) == guard.is_negated
            {
                continue;
            }
            match instruction {
                Instruction::Branch { target } => next = *target,
                Instruction::Call { call } => {
                    let call = &code.calls[*call as usize];
                    let callee = code_of(Some(call.function));
                    let caller = Caller { function: thread.function, next };
                    let entered = self.stack.enter(call, (code, caller), callee, self.registers);
                    entered.map_err(|what| (*line, TrapKind::StackOverflow, what))?;
                    (thread.function, code, next) = (Some(call.function), callee, 0);
                    steps = &code.steps;
                }
                Instruction::Return => {
                    let Caller { function, next: after } = self.stack.caller();
                    let caller = code_of(function);
                    // The call is the instruction before the one that continues.
                    if let Instruction::Call { call } = caller.steps[after as usize - 1].instruction {
                        self.stack.leave(&caller.calls[call as usize], caller, self.registers);
                    }
                    (thread.function, code, next) = (function, caller, after);
                    steps = &code.steps;
                }
                Instruction::Exit => {
                    thread.state = ThreadState::Ended;
                    thread.next = next;
                    return Ok(used + 1);
                }
                Instruction::Barrier => {
                    thread.state = ThreadState::AtBarrier;
                    thread.next = next;
                    return Ok(used + 1);
                }
                other => self.execute(other).map_err(|(kind, what)| (*line, kind, what))?,
            }
        }
        thread.next = next;
        Ok(budget)
    }

    #[inline]
    fn execute(&mut self, instruction: &Instruction) -> Result<(), Failure> {
        match *instruction {
            Instruction::Move { to, from } => self.set(to, self.get(from)),
            Instruction::ReadSpecial { to, special } => self.set(to, self.special(special)),
            Instruction::Binary { op, ty, to, a, b } => {
                self.set(to, eval::binary(op, ty, self.get(a), self.get(b)));
            }
            Instruction::MultiplyAdd { op, ty, to, a, b, c } => {
                self.set(to, eval::multiply_add(op, ty, self.get(a), self.get(b), self.get(c)));
            }
            Instruction::Unary { op, ty, to, a } => self.set(to, eval::unary(op, ty, self.get(a))),
            Instruction::Convert { from, ty, rounding, to, to_mask, a } => {
                self.set(to, eval::convert(from, ty, rounding, self.get(a), to_mask));
            }
            Instruction::Compare { compare, ty, to, not_to, a, b } => {
                let is = eval::compare(compare, ty, self.get(a), self.get(b));
                self.set(to, is.into());
                if let Some(not_to) = not_to {
                    self.set(not_to, (!is).into());
                }
            }
            Instruction::Combine { op, to, not_to, with } => {
                let with = self.get(with);
                for register in [Some(to), not_to].into_iter().flatten() {
                    let before = self.get(Src::Register(register));
                    self.set(
                        register,
                        match op {
                            BinaryOp::And => before & with,
                            BinaryOp::Or => before | with,
                            _ => before ^ with,
                        },
                    );
                }
            }
            Instruction::Select { to, a, b, by } => {
                let chosen = if self.registers[usize::from(by)] != 0 { a } else { b };
                self.set(to, self.get(chosen));
            }
            Instruction::Funnel { is_left, clamps, to, low, high, by } => {
                let both = self.get(high) << 32 | self.get(low);
                let by = if clamps { self.get(by).min(32) } else { self.get(by) & 31 };
                let shifted = if is_left { both << by >> 32 } else { both >> by };
                self.set(to, shifted & mask(32));
            }
            Instruction::Extract { ty, to, a, at, len } => {
                self.set(to, eval::extract(ty, self.get(a), self.get(at), self.get(len)));
            }
            Instruction::Insert { ty, to, a, b, at, len } => {
                self.set(to, eval::insert(ty, self.get(a), self.get(b), self.get(at), self.get(len)));
            }
            Instruction::Load { address, ty, number, to, to_mask } => {
                self.load(address, ty, number, to, to_mask)?
            }
            Instruction::Store { address, ty, number, from } => self.store(address, ty, number, from)?,
            Instruction::Atomic { address, op, ty, to, a, b } => {
                let (a, b) = (self.get(a), self.get(b));
                let before = self.atomic(address, op, ty, a, b)?;
                if let Some(to) = to {
                    self.set(to, before);
                }
            }
            Instruction::Trap => return Err((TrapKind::Failed, "`trap`".to_owned())),
            Instruction::Assertion => return Err((TrapKind::Assertion, "an `assert` failed".to_owned())),
            Instruction::Branch { .. }
            | Instruction::Call { .. }
            | Instruction::Return
            | Instruction::Exit
            | Instruction::Barrier => {}
        }
        Ok(())
    }

    fn special(&self, special: Special) -> u64 {
        let [x, y, _] = self.threads;
        let of = |values: [u32; 3], dimension: u8| values[usize::from(dimension)];
        match special {
            Special::Thread(dimension) => {
                of([self.index % x, self.index / x % y, self.index / x / y], dimension).into()
            }
            Special::Threads(dimension) => of(self.threads, dimension).into(),
            Special::Block(dimension) => of(self.block, dimension).into(),
            Special::Blocks(dimension) => of(self.blocks, dimension).into(),
            Special::Lane => (self.index % WARP).into(),
            Special::Warp => (self.index / WARP).into(),
            Special::Multiprocessor => 0,
            Special::Clock => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.map_or(0, |now| now.as_nanos() as u64)
            }
        }
    }

    /// Returns a pointer to `len` bytes of an address. The address is a multiple of `align`.
    #[inline]
    fn pointer(
        &mut self,
        address: Address,
        len: u32,
        align: u32,
        is_write: bool,
    ) -> Result<*mut u8, Failure> {
        let addr = self.get(address.base).wrapping_add(address.offset);
        let what = if is_write { "a store" } else { "a load" };
        if !addr.is_multiple_of(align.into()) {
            let message = format!("{what} of {len} bytes at {addr:#x}, which is not a multiple of {align}");
            return Err((TrapKind::Misaligned, message));
        }
        let in_window = |start: u64| addr.checked_sub(start).filter(|offset| *offset <= WINDOW_LEN);
        let offset = match address.space {
            Space::Shared | Space::Local | Space::Argument => Some((addr, address.space)),
            Space::Generic if addr >= LOCAL_WINDOW => {
                let shared = in_window(SHARED_WINDOW).map(|offset| (offset, Space::Shared));
                shared.or_else(|| in_window(LOCAL_WINDOW).map(|offset| (offset, Space::Local)))
            }
            _ => None,
        };
        if let Some((offset, space)) = offset {
            let (memory, name) = match space {
                Space::Shared => (&mut *self.shared, "shared"),
                Space::Local => (&mut self.stack.local[..], "the thread's"),
                _ => (self.stack.arguments(), "parameter"),
            };
            let end = offset.checked_add(len.into());
            if end.is_none_or(|end| end > memory.len() as u64 * 8) {
                let message = format!("{what} of {len} bytes at {offset:#x} of {name} memory");
                return Err((TrapKind::IllegalAddress, message));
            }
            return Ok(memory.as_mut_ptr().cast::<u8>().wrapping_add(offset as usize));
        }
        let Some(range) = self.reach.find(addr, len.into()) else {
            let message = format!("{what} of {len} bytes at {addr:#x}, outside all memory of the context");
            return Err((TrapKind::IllegalAddress, message));
        };
        if is_write && !range.is_writable {
            let message = format!("{what} of {len} bytes at {addr:#x}, which is registered for reading");
            return Err((TrapKind::IllegalAddress, message));
        }
        let moved = match (range.is_host, is_write) {
            (true, false) => &mut self.traffic.from_host,
            (true, true) => &mut self.traffic.to_host,
            (false, _) => &mut self.traffic.on_device,
        };
        *moved += u64::from(len);
        Ok(std::ptr::with_exposed_provenance_mut((range.bytes + (addr - range.start)) as usize))
    }

    #[inline]
    fn load(
        &mut self,
        address: Address,
        ty: Type,
        number: u8,
        to: [Register; 4],
        to_mask: u64,
    ) -> Result<(), Failure> {
        let (bytes, all) = (ty.bytes(), ty.bytes() * u32::from(number));
        let extend =
            |value: u64| if ty.is_signed() { eval::signed(value, ty.bits) as u64 & to_mask } else { value };
        if address.space == Space::Parameter {
            let mut at = self.get(address.base).wrapping_add(address.offset) as usize;
            for register in &to[..usize::from(number)] {
                let found = self.parameters.get(at..at.wrapping_add(bytes as usize));
                let found =
                    found.ok_or_else(|| (TrapKind::Failed, "a load beyond the parameters".to_owned()))?;
                let mut word = [0; 8];
                word[..bytes as usize].copy_from_slice(found);
                self.set(*register, extend(u64::from_le_bytes(word)));
                at += bytes as usize;
            }
            return Ok(());
        }
        let from = self.pointer(address, all, all, false)?;
        let mut words = [0; 4];
        for (at, word) in words.iter_mut().enumerate().take(usize::from(number)) {
            // SAFETY: `pointer` returned an aligned pointer to `all` bytes of shared memory, of the thread's,
            // or of memory that the driver knows. CUDA requires that the program keeps it, and does not
            // write it meanwhile.
            *word = unsafe { read(from.wrapping_add(at * bytes as usize), bytes) };
        }
        for (register, word) in to.iter().zip(words).take(usize::from(number)) {
            self.set(*register, extend(word));
        }
        Ok(())
    }

    #[inline]
    fn store(&mut self, address: Address, ty: Type, number: u8, from: [Src; 4]) -> Result<(), Failure> {
        let (bytes, all) = (ty.bytes(), ty.bytes() * u32::from(number));
        let to = self.pointer(address, all, all, true)?;
        for (at, source) in from.iter().enumerate().take(usize::from(number)) {
            let value = self.get(*source);
            // SAFETY: `pointer` returned an aligned pointer to `all` bytes of shared memory, of the thread's,
            // or of memory that the driver knows. CUDA requires that the program keeps it, and does not
            // access it meanwhile.
            unsafe { write(to.wrapping_add(at * bytes as usize), bytes, value) };
        }
        Ok(())
    }

    /// Changes a value in memory, and returns the value before.
    fn atomic(&mut self, address: Address, op: AtomicOp, ty: Type, a: u64, b: u64) -> Result<u64, Failure> {
        let at = self.pointer(address, ty.bytes(), ty.bytes(), true)?;
        let change = |before: u64| match op {
            AtomicOp::Binary(op) => eval::binary(op, ty, before, a),
            AtomicOp::Exchange => a,
            AtomicOp::CompareAndSwap if before == a => b,
            AtomicOp::CompareAndSwap => before,
            AtomicOp::Increment if before >= a => 0,
            AtomicOp::Increment => before + 1,
            AtomicOp::Decrement if before == 0 || before > a => a,
            AtomicOp::Decrement => before - 1,
        };
        let order = Ordering::SeqCst;
        Ok(if ty.bits == 32 {
            // SAFETY: `pointer` returned an aligned pointer to 4 bytes, which stay mapped during this call.
            let word = unsafe { AtomicU32::from_ptr(at.cast()) };
            let mut before = word.load(order);
            while let Err(now) = word.compare_exchange(before, change(before.into()) as u32, order, order) {
                before = now;
            }
            before.into()
        } else {
            // SAFETY: `pointer` returned an aligned pointer to 8 bytes, which stay mapped during this call.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            let mut before = word.load(order);
            while let Err(now) = word.compare_exchange(before, change(before), order, order) {
                before = now;
            }
            before
        })
    }
}

/// # Safety
///
/// `from` is valid for a read of `bytes` bytes, and is a multiple of `bytes`: 1, 2, 4 or 8.
#[inline]
unsafe fn read(from: *mut u8, bytes: u32) -> u64 {
    match bytes {
        // SAFETY: the caller guarantees the bytes.
        1 => unsafe { from.read_volatile() }.into(),
        // SAFETY: the caller guarantees the bytes and their alignment.
        2 => unsafe { from.cast::<u16>().read_volatile() }.into(),
        // SAFETY: the caller guarantees the bytes and their alignment.
        4 => unsafe { from.cast::<u32>().read_volatile() }.into(),
        // SAFETY: the caller guarantees the bytes and their alignment.
        _ => unsafe { from.cast::<u64>().read_volatile() },
    }
}

/// # Safety
///
/// `to` is valid for a write of `bytes` bytes, and is a multiple of `bytes`: 1, 2, 4 or 8.
#[inline]
unsafe fn write(to: *mut u8, bytes: u32, value: u64) {
    match bytes {
        // SAFETY: the caller guarantees the bytes.
        1 => unsafe { to.write_volatile(value as u8) },
        // SAFETY: the caller guarantees the bytes and their alignment.
        2 => unsafe { to.cast::<u16>().write_volatile(value as u16) },
        // SAFETY: the caller guarantees the bytes and their alignment.
        4 => unsafe { to.cast::<u32>().write_volatile(value as u32) },
        // SAFETY: the caller guarantees the bytes and their alignment.
        _ => unsafe { to.cast::<u64>().write_volatile(value) },
    }
}
