//! A fake SPDK, as tables of calls. Tests choose its results, including results that a test cannot provoke
//! in the stand-in or in a real SPDK.
//!
//! `machine::<N>()` is the N-th machine. Each machine has its own calls, and so its own environment. A
//! channel executes descriptors when the doorbell rings, and reports them when it is polled. It splits
//! descriptors at pages of 4 KiB, and begins a fill's pattern again at each piece.
#![expect(unsafe_code, reason = "implements SPDK's calls")]
#![allow(dead_code, reason = "each test uses only a part of this module")]

use std::alloc::Layout;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use dma_ioat::spdk_sys::bindings::{
    spdk_env_opts, spdk_ioat_attach_cb, spdk_ioat_chan, spdk_ioat_probe_cb, spdk_ioat_req_cb, spdk_pci_addr,
    spdk_pci_device,
};
use dma_ioat::spdk_sys::{Env, Ioat, Library, Release};

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EACCES: i32 = 13;
const PAGE: usize = 4096;
pub(crate) const RING: usize = 512;

/// State of a machine.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The result of `spdk_env_init`.
    pub env_init: i32,
    /// Arguments of all calls of `spdk_env_init`.
    pub env_inits: Vec<EnvInit>,
    /// Number of CPUs of the environment. It is not 0 if the program itself has set up the environment.
    pub cores: u32,
    pub functions: Vec<Function>,
    pub no_fill: bool,
    /// Ranges of memory by their address: the length, and whether a device can reach the memory.
    memory: BTreeMap<usize, (usize, bool)>,
    /// Layouts of allocations, for freeing them.
    layouts: BTreeMap<usize, Layout>,
    pub untranslatable: bool,
    /// Number of descriptors that are executed before one halts its channel.
    pub halt_in: Option<usize>,
    /// If set, no descriptor completes any more.
    pub stuck: bool,
    /// If set, rings accept no descriptor.
    pub full: bool,
    /// If set, detached functions are not offered again.
    pub gone: bool,
    /// If set, the end of a detachment clears `gone`.
    pub comes_back: bool,
    pub detached: usize,
    pub doorbells: usize,
}

#[derive(Debug)]
pub(crate) struct EnvInit {
    pub core_mask: String,
    pub mem_size: i32,
    pub no_huge: bool,
    pub context: Option<String>,
    pub allowed: usize,
    pub opts_size: usize,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub number: u8,
    /// If set, another process has the function.
    pub claimed: bool,
    /// If set, the function cannot be started.
    pub broken: bool,
    /// Set if SPDK has offered the function. It is not offered again before its release.
    pub offered: bool,
}

struct Channel {
    machine: usize,
    function: usize,
    built: VecDeque<Piece>,
    rung: usize,
    finished: usize,
    halted: bool,
}

struct Piece {
    src: Option<usize>,
    pattern: u64,
    dst: usize,
    len: usize,
    callback: spdk_ioat_req_cb,
    arg: usize,
}

static MACHINES: [Mutex<Machine>; 24] = [const { Mutex::new(Machine::new()) }; 24];

impl Machine {
    const fn new() -> Self {
        Self {
            env_init: 0,
            env_inits: Vec::new(),
            cores: 0,
            functions: Vec::new(),
            no_fill: false,
            memory: BTreeMap::new(),
            layouts: BTreeMap::new(),
            untranslatable: false,
            halt_in: None,
            stuck: false,
            full: false,
            gone: false,
            comes_back: false,
            detached: 0,
            doorbells: 0,
        }
    }

    /// Returns the number of memory ranges that are known.
    pub(crate) fn memory(&self) -> usize {
        self.memory.len()
    }

    /// Makes devices reach only the first `len` bytes of the memory at `addr`.
    pub(crate) fn cut(&mut self, addr: usize, len: usize) {
        self.memory.get_mut(&addr).expect("the memory was allocated").0 = len;
    }

    fn contiguous(&self, addr: usize) -> Option<usize> {
        let (base, (len, reachable)) = self.memory.range(..=addr).next_back()?;
        (addr < base + len && *reachable).then(|| (base + len - addr).min(PAGE - addr % PAGE))
    }
}

pub(crate) fn machine<const N: usize>() -> MutexGuard<'static, Machine> {
    MACHINES[N].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sets up machine `N` with this number of functions, and returns its calls.
pub(crate) fn library<const N: usize>(functions: u8) -> Library {
    {
        let mut machine = machine::<N>();
        if machine.functions.is_empty() {
            machine.functions = (0..functions)
                .map(|number| Function { number, claimed: false, broken: false, offered: false })
                .collect();
        }
    }
    // SAFETY: `call` returns functions of the types that these names have in `Env`.
    let env = unsafe { Env::load(call::<N>) }.expect("every required call");
    // SAFETY: `call` returns functions of the types that these names have in `Ioat`.
    let ioat = unsafe { Ioat::load(call::<N>) }.expect("every required call");
    // SAFETY: the machine's functions behave as SPDK's, or as a broken SPDK whose answers the engine has to
    // refuse.
    unsafe { Library::from_tables(env, ioat, None, Release::of_soname(Some(17))) }
}

fn call<const N: usize>(name: &'static CStr) -> Option<NonNull<c_void>> {
    let call = match name.to_str().ok()? {
        "spdk_env_opts_init" => opts_init as *mut c_void,
        "spdk_env_init" => env_init::<N> as *mut c_void,
        "spdk_env_get_core_count" => core_count::<N> as *mut c_void,
        "spdk_zmalloc" => zmalloc::<N> as *mut c_void,
        "spdk_free" => free::<N> as *mut c_void,
        "spdk_mem_register" => mem_register::<N> as *mut c_void,
        "spdk_mem_unregister" => mem_unregister::<N> as *mut c_void,
        "spdk_vtophys" => vtophys::<N> as *mut c_void,
        "spdk_pci_device_get_addr" => get_addr as *mut c_void,
        "spdk_pci_device_get_numa_id" => get_numa as *mut c_void,
        "spdk_pci_device_claim" => claim::<N> as *mut c_void,
        "spdk_pci_device_detach" => pci_detach::<N> as *mut c_void,
        "spdk_ioat_probe" => probe::<N> as *mut c_void,
        "spdk_ioat_detach" => detach::<N> as *mut c_void,
        "spdk_ioat_get_max_descriptors" => max_descriptors as *mut c_void,
        "spdk_ioat_get_dma_capabilities" => capabilities::<N> as *mut c_void,
        "spdk_ioat_build_copy" => build_copy as *mut c_void,
        "spdk_ioat_build_fill" => build_fill as *mut c_void,
        "spdk_ioat_flush" => flush as *mut c_void,
        "spdk_ioat_process_events" => process_events as *mut c_void,
        // A call that the library must have, but that is never called.
        "spdk_pci_addr_fmt" | "spdk_pci_device_get_device_id" | "spdk_pci_device_get_vendor_id" => {
            unused as *mut c_void
        }
        _ => return None,
    };
    NonNull::new(call)
}

extern "C" fn unused() {
    std::process::abort();
}

extern "C" fn opts_init(opts: *mut spdk_env_opts) {
    // SAFETY: the caller passes zeroed memory of at least the size of this struct, which no other code uses.
    let opts = unsafe { &mut *opts };
    let size = opts.opts_size;
    // SAFETY: the struct has pointers and numbers, for which all zeros are valid.
    *opts = unsafe { std::mem::zeroed() };
    opts.opts_size = size;
    opts.mem_size = -1;
    opts.shm_id = -1;
    opts.core_mask = c"0x1".as_ptr();
}

extern "C" fn env_init<const N: usize>(opts: *const spdk_env_opts) -> i32 {
    let mut machine = machine::<N>();
    let text = |text: *const std::ffi::c_char| {
        // SAFETY: the options' pointers are null, or to strings that end in NUL and outlive the call.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().expect("text").to_owned())
    };
    // SAFETY: the engine passes options that `opts_init` filled, and they outlive the call.
    let opts = unsafe { &*opts };
    let allowed = if opts.pci_allowed.is_null() { 0 } else { opts.num_pci_addr };
    machine.env_inits.push(EnvInit {
        core_mask: text(opts.core_mask).expect("a core mask"),
        mem_size: opts.mem_size,
        no_huge: opts.no_huge,
        context: text(opts.env_context.cast()),
        allowed,
        opts_size: opts.opts_size,
    });
    if machine.env_init == 0 {
        machine.cores = 1;
    }
    machine.env_init
}

extern "C" fn core_count<const N: usize>() -> u32 {
    machine::<N>().cores
}

extern "C" fn zmalloc<const N: usize>(
    size: usize,
    align: usize,
    _: *mut u64,
    _: i32,
    flags: u32,
) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(size, align.max(64)) else { return std::ptr::null_mut() };
    if flags == 0 || size == 0 || size > 1 << 32 {
        return std::ptr::null_mut();
    }
    // SAFETY: the size is not 0.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    let mut machine = machine::<N>();
    let reachable = !machine.untranslatable;
    machine.memory.insert(memory.addr(), (size, reachable));
    machine.layouts.insert(memory.addr(), layout);
    memory.cast()
}

extern "C" fn free<const N: usize>(memory: *mut c_void) {
    let mut machine = machine::<N>();
    machine.memory.remove(&memory.addr()).expect("the memory was allocated");
    let layout = machine.layouts.remove(&memory.addr()).expect("with a layout");
    // SAFETY: `zmalloc` allocated the memory with this layout, and it is freed only once.
    unsafe { std::alloc::dealloc(memory.cast(), layout) };
}

extern "C" fn mem_register<const N: usize>(memory: *mut c_void, len: usize) -> i32 {
    let mut machine = machine::<N>();
    let (start, end) = (memory.addr(), memory.addr() + len);
    if !start.is_multiple_of(2 << 20) || !len.is_multiple_of(2 << 20) {
        return -EINVAL;
    }
    if machine.memory.range(..end).next_back().is_some_and(|(base, (len, _))| base + len > start) {
        return -EBUSY;
    }
    let reachable = !machine.untranslatable;
    // If the memory is not reachable, only its first half is recorded, so that the second half has no
    // translation.
    machine.memory.insert(start, (if reachable { len } else { len / 2 }, true));
    0
}

extern "C" fn mem_unregister<const N: usize>(memory: *mut c_void, len: usize) -> i32 {
    let mut machine = machine::<N>();
    // Only a whole range can be unregistered. Of a range that cannot be reached, only the first half is
    // recorded.
    match machine.memory.get(&memory.addr()) {
        Some((known, _)) if len == *known || len == 2 * known => {}
        _ => return -EINVAL,
    }
    machine.memory.remove(&memory.addr());
    0
}

extern "C" fn vtophys<const N: usize>(buf: *const c_void, size: *mut u64) -> u64 {
    let Some(len) = machine::<N>().contiguous(buf.addr()) else { return u64::MAX };
    // SAFETY: the pointer is null, or to the caller's number.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = (*size).min(len as u64);
    }
    buf.addr() as u64
}

/// Returns the handle of a function: its index plus one, because null is invalid.
fn name_of(index: usize) -> *mut spdk_pci_device {
    std::ptr::without_provenance_mut(index + 1)
}

extern "C" fn get_addr(function: *mut spdk_pci_device) -> spdk_pci_addr {
    let number = function.addr() - 1;
    spdk_pci_addr { domain: 0, bus: 0, dev: 4 + number as u8 / 8, func: number as u8 % 8 }
}

extern "C" fn get_numa(_: *mut spdk_pci_device) -> i32 {
    0
}

extern "C" fn claim<const N: usize>(function: *mut spdk_pci_device) -> i32 {
    if machine::<N>().functions[function.addr() - 1].claimed { -EACCES } else { 0 }
}

extern "C" fn pci_detach<const N: usize>(function: *mut spdk_pci_device) {
    let mut machine = machine::<N>();
    let function = &mut machine.functions[function.addr() - 1];
    assert!(function.offered, "only an offered function can be released");
    function.offered = false;
}

extern "C" fn probe<const N: usize>(
    context: *mut c_void,
    probe_cb: spdk_ioat_probe_cb,
    attach_cb: spdk_ioat_attach_cb,
) -> i32 {
    let count = machine::<N>().functions.len();
    for index in 0..count {
        if machine::<N>().functions[index].offered || machine::<N>().gone {
            continue;
        }
        // SAFETY: the engine passes this context for its callback, and both live during the call.
        if unsafe { probe_cb.expect("given")(context, name_of(index)) } {
            if machine::<N>().functions[index].broken {
                return -1;
            }
            let channel = Channel {
                machine: N,
                function: index,
                built: VecDeque::new(),
                rung: 0,
                finished: 0,
                halted: false,
            };
            let channel: *mut Channel = Box::into_raw(Box::new(channel));
            // SAFETY: the engine passes its callback and context, and the channel lives until
            // `spdk_ioat_detach`.
            unsafe { attach_cb.expect("given")(context, name_of(index), channel.cast()) };
        }
        machine::<N>().functions[index].offered = true;
    }
    0
}

extern "C" fn detach<const N: usize>(channel: *mut spdk_ioat_chan) {
    // SAFETY: `probe` boxed the channel, and it is detached only once.
    let channel = unsafe { Box::from_raw(channel.cast::<Channel>()) };
    assert!(channel.halted || channel.built.is_empty(), "drain before detaching");
    let mut machine = machine::<N>();
    machine.detached += 1;
    machine.gone &= !machine.comes_back;
}

extern "C" fn max_descriptors(_: *mut spdk_ioat_chan) -> u32 {
    RING as u32
}

extern "C" fn capabilities<const N: usize>(_: *mut spdk_ioat_chan) -> u32 {
    if machine::<N>().no_fill { 1 } else { 3 }
}

fn channel_of<'a>(channel: *mut spdk_ioat_chan) -> &'a mut Channel {
    // SAFETY: `probe` boxed the channel, and one thread at a time uses it. Callbacks of copies do not use
    // it.
    unsafe { &mut *channel.cast() }
}

impl Channel {
    /// Splits an operation into pieces that end at page boundaries. Pieces that were built before an invalid
    /// address stay in the ring.
    fn build(
        &mut self,
        callback: spdk_ioat_req_cb,
        arg: *mut c_void,
        dst: usize,
        src: Result<usize, u64>,
        len: usize,
    ) -> i32 {
        let machine = MACHINES[self.machine].lock().expect("not poisoned");
        if machine.full {
            return -ENOMEM;
        }
        let before = self.built.len();
        let mut at = 0;
        while at < len || (len == 0 && self.built.len() == before) {
            let mut piece = len - at;
            if piece > 0 {
                let Some(to) = machine.contiguous(dst + at) else { return -EINVAL };
                let Some(from) = src.map_or(Some(to), |src| machine.contiguous(src + at)) else {
                    return -EINVAL;
                };
                piece = piece.min(to).min(from);
            }
            if self.built.len() == RING - 1 {
                self.built.truncate(before);
                return -ENOMEM;
            }
            let last = at + piece == len;
            self.built.push_back(Piece {
                src: src.ok().map(|src| src + at),
                pattern: src.err().unwrap_or(0),
                dst: dst + at,
                len: piece,
                callback: if last { callback } else { None },
                arg: arg.addr(),
            });
            at += piece;
        }
        0
    }
}

extern "C" fn build_copy(
    channel: *mut spdk_ioat_chan,
    arg: *mut c_void,
    callback: spdk_ioat_req_cb,
    dst: *mut c_void,
    src: *const c_void,
    len: u64,
) -> i32 {
    let channel = channel_of(channel);
    let arg_exposed = arg.expose_provenance();
    channel.build(
        callback,
        std::ptr::without_provenance_mut(arg_exposed),
        dst.expose_provenance(),
        Ok(src.expose_provenance()),
        len as usize,
    )
}

extern "C" fn build_fill(
    channel: *mut spdk_ioat_chan,
    arg: *mut c_void,
    callback: spdk_ioat_req_cb,
    dst: *mut c_void,
    pattern: u64,
    len: u64,
) -> i32 {
    assert!(len > 0, "a fill of 0 bytes would never end");
    let channel = channel_of(channel);
    let arg_exposed = arg.expose_provenance();
    channel.build(
        callback,
        std::ptr::without_provenance_mut(arg_exposed),
        dst.expose_provenance(),
        Err(pattern),
        len as usize,
    )
}

extern "C" fn flush(channel: *mut spdk_ioat_chan) {
    let channel = channel_of(channel);
    MACHINES[channel.machine].lock().expect("not poisoned").doorbells += 1;
    channel.rung = channel.built.len();
    work(channel);
}

/// Executes the descriptors that were built before the last doorbell.
fn work(channel: &mut Channel) {
    let mut machine = MACHINES[channel.machine].lock().expect("not poisoned");
    while channel.finished < channel.rung && !channel.halted && !machine.stuck {
        match &mut machine.halt_in {
            Some(0) => {
                machine.halt_in = None;
                channel.halted = true;
                return;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let piece = &channel.built[channel.finished];
        let dst = std::ptr::with_exposed_provenance_mut::<u8>(piece.dst);
        match piece.src {
            Some(src) => {
                let src = std::ptr::with_exposed_provenance::<u8>(src);
                // SAFETY: both ranges belong to a descriptor in flight, whose memory is valid until the
                // completion, and do not overlap.
                unsafe { src.copy_to_nonoverlapping(dst, piece.len) };
            }
            None => {
                for (at, byte) in piece.pattern.to_le_bytes().iter().cycle().take(piece.len).enumerate() {
                    // SAFETY: `at` is less than the length of the destination, which is valid until the
                    // completion.
                    unsafe { dst.wrapping_add(at).write(*byte) };
                }
            }
        }
        channel.finished += 1;
    }
}

extern "C" fn process_events(channel: *mut spdk_ioat_chan) -> i32 {
    let channel = channel_of(channel);
    if channel.built.is_empty() {
        return 0;
    }
    work(channel);
    if channel.halted {
        return -1;
    }
    let mut events = 0;
    while channel.finished > 0 {
        let piece = channel.built.pop_front().expect("built");
        channel.finished -= 1;
        channel.rung -= 1;
        events += 1;
        if let Some(callback) = piece.callback {
            // SAFETY: each callback is called once, with its own argument, which the engine keeps until then.
            unsafe { callback(std::ptr::with_exposed_provenance_mut(piece.arg)) };
        }
    }
    events
}
