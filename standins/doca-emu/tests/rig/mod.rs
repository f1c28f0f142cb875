//! The C interface for tests: macros that make calls without `unsafe` blocks in the tests, and a set of
//! common objects.

#![allow(dead_code, unused_macros, reason = "each test uses only a part of this module")]
#![allow(unreachable_pub, reason = "shared by several tests")]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;

use test_support::patience::Patience;

pub use doca_sys::bindings as c;

/// Makes a call, and returns its result.
macro_rules! code {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: pointer arguments are NULL or belong to live objects. If a test breaks a rule of the
        // interface, it is a rule that the library checks.
        unsafe { $crate::rig::c::$function($($argument),*) }
    };
}

/// Makes a call, and asserts that it succeeds.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::rig::name(code!($function($($argument),*))), "DOCA_SUCCESS", stringify!($function))
    };
}

/// Makes a call, and asserts that it fails with this code.
macro_rules! fails {
    ($code:ident, $function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::rig::name(code!($function($($argument),*))), stringify!($code), stringify!($function))
    };
}

/// Makes a call that must succeed, and returns the value that it writes through its last parameter.
macro_rules! get {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let mut value = $crate::rig::zeroed();
        ok!($function($($argument,)* &mut value));
        value
    }};
}

pub fn zeroed<T: Copy>() -> T {
    // SAFETY: this is only used for numbers, pointers and unions of both, for which all zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// Returns the name of a code.
pub fn name(code: c::doca_error_t) -> &'static str {
    // SAFETY: the call accepts any number.
    let name = unsafe { c::doca_error_get_name(code) };
    // SAFETY: the call returned a string that ends in NUL and is never freed.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    name.to_str().unwrap()
}

/// Makes this thread's devices from now on those of the configuration `text`.
pub fn configure(text: &str) {
    doca_emu::use_config(Some(text)).unwrap();
}

pub fn number(value: u64) -> c::doca_data {
    c::doca_data { u64_: value }
}

pub fn as_number(data: c::doca_data) -> u64 {
    // SAFETY: both fields of the union have 8 bytes, and any bytes are a valid number.
    unsafe { data.u64_ }
}

pub fn pointer<T>(value: &T) -> c::doca_data {
    c::doca_data { ptr: ptr::from_ref(value).cast_mut().cast() }
}

/// Opens the device at an address.
pub fn open(pci: &str) -> *mut c::doca_dev {
    let (mut list, mut count) = (ptr::null_mut(), 0);
    ok!(doca_devinfo_create_list(&mut list, &mut count));
    let address = std::ffi::CString::new(pci).unwrap();
    let mut dev = ptr::null_mut();
    for i in 0..count as usize {
        // SAFETY: the call returned a list of `count` entries, which is not destroyed yet.
        let info = unsafe { list.wrapping_add(i).read() };
        let mut equal = 0;
        ok!(doca_devinfo_is_equal_pci_addr(info, address.as_ptr(), &mut equal));
        if equal == 1 {
            ok!(doca_dev_open(info, &mut dev));
        }
    }
    ok!(doca_devinfo_destroy_list(list));
    assert!(!dev.is_null(), "no device {pci}");
    dev
}

/// Memory that only devices and these methods access.
pub struct Memory {
    pub ptr: *mut u8,
    pub len: usize,
}

impl Memory {
    pub fn new(len: usize) -> Self {
        // SAFETY: the layout's size is at least 1.
        Self { ptr: unsafe { std::alloc::alloc_zeroed(Self::layout(len)) }, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), 64).unwrap()
    }

    pub fn at(&self, offset: usize) -> *mut c_void {
        self.ptr.wrapping_add(offset).cast()
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: the range is within the memory, and tests write only while no device accesses it.
        unsafe { self.ptr.wrapping_add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: the range is within the memory, and tests read only while no device writes it.
        unsafe { std::slice::from_raw_parts(self.ptr.wrapping_add(offset), len) }.to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and no device uses it any more.
        unsafe { std::alloc::dealloc(self.ptr, Self::layout(self.len)) }
    }
}

/// Makes and starts a map of this memory.
pub fn map(dev: *mut c::doca_dev, memory: &Memory, access: u32) -> *mut c::doca_mmap {
    let mut mmap = ptr::null_mut();
    ok!(doca_mmap_create(&mut mmap));
    ok!(doca_mmap_set_memrange(mmap, memory.ptr.cast(), memory.len));
    ok!(doca_mmap_set_permissions(mmap, access));
    ok!(doca_mmap_add_dev(mmap, dev));
    ok!(doca_mmap_start(mmap));
    mmap
}

/// Makes and starts an inventory.
pub fn inventory(count: usize) -> *mut c::doca_buf_inventory {
    let mut inventory = ptr::null_mut();
    ok!(doca_buf_inventory_create(count, &mut inventory));
    ok!(doca_buf_inventory_start(inventory));
    inventory
}

/// Record of a context's callbacks.
#[derive(Default)]
pub struct Seen {
    /// User data and status of each ended task.
    pub ended: RefCell<Vec<(u64, c::doca_error_t)>>,
    /// States that the context entered.
    pub states: RefCell<Vec<u32>>,
    /// The context's state at each task's callback.
    pub state_at: RefCell<Vec<u32>>,
    /// If set, the callback frees each ended task.
    pub free: Cell<bool>,
}

impl Seen {
    pub fn take(&self) -> Vec<(u64, &'static str)> {
        self.ended.take().into_iter().map(|(task, status)| (task, name(status))).collect()
    }
}

/// # Safety
///
/// The user data is a pointer to a `T` that outlives the reference.
unsafe fn as_ref<'a, T>(data: c::doca_data) -> &'a T {
    // SAFETY: the caller promises that the user data holds a pointer.
    let ptr = unsafe { data.ptr };
    // SAFETY: the caller promises a pointer to a `T` that outlives the reference.
    unsafe { &*ptr.cast() }
}

pub unsafe extern "C" fn on_end(task: *mut c::doca_dma_task_memcpy, user: c::doca_data, ctx: c::doca_data) {
    // SAFETY: `Rig` set the context's user data to its `Seen`, which lives as long as the context.
    let seen = unsafe { as_ref::<Seen>(ctx) };
    let task = code!(doca_dma_task_memcpy_as_task(task));
    seen.ended.borrow_mut().push((as_number(user), code!(doca_task_get_status(task))));
    let ctx = code!(doca_task_get_ctx(task));
    seen.state_at.borrow_mut().push(get!(doca_ctx_get_state(ctx)));
    if seen.free.get() {
        code!(doca_task_free(task));
    }
}

pub unsafe extern "C" fn on_state(user: c::doca_data, _ctx: *mut c::doca_ctx, _before: u32, after: u32) {
    // SAFETY: `Rig` set the context's user data to its `Seen`, which lives as long as the context.
    let seen = unsafe { as_ref::<Seen>(user) };
    seen.states.borrow_mut().push(after);
}

/// A device, two maps of memory, buffers, a progress engine and a running context.
pub struct Rig {
    pub dev: *mut c::doca_dev,
    pub src: Memory,
    pub dst: Memory,
    pub src_map: *mut c::doca_mmap,
    pub dst_map: *mut c::doca_mmap,
    pub inventory: *mut c::doca_buf_inventory,
    pub pe: *mut c::doca_pe,
    pub dma: *mut c::doca_dma,
    pub ctx: *mut c::doca_ctx,
    pub seen: Box<Seen>,
}

impl Rig {
    /// Opens the DPU's first device of a card, and makes a running context with this number of tasks.
    pub fn new(config: &str, tasks: u32) -> Self {
        configure(config);
        Self::on(open("0000:03:00.0"), tasks)
    }

    pub fn on(dev: *mut c::doca_dev, tasks: u32) -> Self {
        let rig = Self::idle(dev, tasks);
        ok!(doca_ctx_start(rig.ctx));
        rig.seen.states.borrow_mut().clear();
        rig
    }

    /// Makes a context that is configured, but not started.
    pub fn idle(dev: *mut c::doca_dev, tasks: u32) -> Self {
        let (src, dst) = (Memory::new(1 << 20), Memory::new(1 << 20));
        let src_map = map(dev, &src, c::DOCA_ACCESS_FLAG_LOCAL_READ_ONLY);
        let dst_map = map(dev, &dst, c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
        let pe = get!(doca_pe_create());
        let dma = get!(doca_dma_create(dev));
        let ctx = code!(doca_dma_as_ctx(dma));
        let seen = Box::<Seen>::default();
        ok!(doca_pe_connect_ctx(pe, ctx));
        ok!(doca_ctx_set_user_data(ctx, pointer(&*seen)));
        ok!(doca_ctx_set_state_changed_cb(ctx, Some(on_state)));
        ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), tasks));
        Self { dev, src, dst, src_map, dst_map, inventory: inventory(1024), pe, dma, ctx, seen }
    }

    /// Makes a buffer in the source memory. All of the buffer's bytes are data.
    pub fn from(&self, offset: usize, len: usize) -> *mut c::doca_buf {
        let at = self.src.at(offset);
        get!(doca_buf_inventory_buf_get_by_args(self.inventory, self.src_map, at, len, at, len))
    }

    /// Makes an empty buffer in the destination memory.
    pub fn to(&self, offset: usize, len: usize) -> *mut c::doca_buf {
        let at = self.dst.at(offset);
        get!(doca_buf_inventory_buf_get_by_args(self.inventory, self.dst_map, at, len, at, 0))
    }

    /// Makes a task that copies between two buffers.
    pub fn task(&self, src: *mut c::doca_buf, dst: *mut c::doca_buf, user: u64) -> *mut c::doca_task {
        let task = get!(doca_dma_task_memcpy_alloc_init(self.dma, src, dst, number(user)));
        code!(doca_dma_task_memcpy_as_task(task))
    }

    /// Makes a task that copies `len` bytes at the same offset of both memories.
    pub fn copy(&self, offset: usize, len: usize, user: u64) -> *mut c::doca_task {
        self.task(self.from(offset, len), self.to(offset, len), user)
    }

    /// Makes progress until no work is left.
    pub fn drain(&self) {
        while code!(doca_pe_progress(self.pe)) == 1 {}
    }

    /// Makes progress until this number of ended tasks is recorded.
    pub fn until(&self, ended: usize) {
        let mut patience = Patience::new();
        while self.seen.ended.borrow().len() < ended {
            code!(doca_pe_progress(self.pe));
            patience.check(format_args!("{ended} tasks end, but only {:?}", self.seen.ended));
        }
    }

    pub fn state(&self) -> u32 {
        get!(doca_ctx_get_state(self.ctx))
    }

    pub fn in_flight(&self) -> usize {
        get!(doca_ctx_get_num_inflight_tasks(self.ctx))
    }

    /// Frees a task and its buffers.
    pub fn free(&self, task: *mut c::doca_task) {
        let memcpy = task.cast::<c::doca_dma_task_memcpy>();
        let src = code!(doca_dma_task_memcpy_get_src(memcpy)).cast_mut();
        let dst = code!(doca_dma_task_memcpy_get_dst(memcpy));
        code!(doca_task_free(task));
        ok!(doca_buf_dec_refcount(src, ptr::null_mut()));
        ok!(doca_buf_dec_refcount(dst, ptr::null_mut()));
    }

    /// Destroys all objects. Tasks and buffers must be freed before.
    pub fn close(self) {
        if self.state() != c::DOCA_CTX_STATE_IDLE {
            let code = code!(doca_ctx_stop(self.ctx));
            assert!(code == c::DOCA_SUCCESS || code == c::DOCA_ERROR_IN_PROGRESS, "{}", name(code));
        }
        self.drain();
        assert_eq!(self.state(), c::DOCA_CTX_STATE_IDLE);
        ok!(doca_dma_destroy(self.dma));
        ok!(doca_pe_destroy(self.pe));
        ok!(doca_buf_inventory_destroy(self.inventory));
        ok!(doca_mmap_destroy(self.src_map));
        ok!(doca_mmap_destroy(self.dst_map));
        ok!(doca_dev_close(self.dev));
    }
}
