//! Pools of elements of one size.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

use super::{map, memory};
use crate::c_abi::{Addr, Ptr, Text, c, c_calls};
use crate::lock;

type EachObject = Option<unsafe extern "C" fn(*mut Pool, *mut c_void, *mut c_void, c_uint)>;
type EachPart = Option<unsafe extern "C" fn(*mut Pool, *mut c_void, *mut c_void, u64, usize, c_uint)>;

/// `struct spdk_mempool`.
pub(crate) struct Pool {
    name: CString,
    first: Addr,
    count: usize,
    /// Distance between elements, in bytes.
    step: usize,
    free: Mutex<Vec<Addr>>,
}

static POOLS: Mutex<Vec<Ptr<Pool>>> = Mutex::new(Vec::new());

impl Pool {
    fn element(&self, i: usize) -> Addr {
        Addr::at(self.first.addr() + (i * self.step) as u64)
    }

    fn named(name: &CStr) -> Option<Ptr<Self>> {
        let is = |pool: &&Ptr<Self>| pool.get().is_some_and(|pool| pool.name.as_c_str() == name);
        lock(&POOLS).iter().find(is).copied()
    }

    fn new(name: &CStr, count: usize, size: usize) -> Option<Self> {
        let most = c::SPDK_MAX_MEMPOOL_NAME_LEN as usize;
        if name.to_bytes().len() >= most || count == 0 || Self::named(name).is_some() {
            return None;
        }
        let step = size.max(1).checked_next_multiple_of(64)?;
        let first = memory::allocate(step.checked_mul(count)?, 64)?;
        let pool = Self { name: name.to_owned(), first, count, step, free: Mutex::default() };
        // Reversed, so that the first element is on top of the stack.
        *lock(&pool.free) = (0..count).rev().map(|i| pool.element(i)).collect();
        Some(pool)
    }
}

c_calls! {
    fn spdk_mempool_create(
        name: Text,
        count: usize,
        ele_size: usize,
        cache_size: usize,
        numa_id: c_int,
    ) -> Ptr<Pool> {
        // SAFETY: this function's caller meets the requirements for these arguments, and there is no
        // constructor to call.
        unsafe { spdk_mempool_create_ctor(name, count, ele_size, cache_size, numa_id, None, Addr::NULL) }
    }

    fn spdk_mempool_create_ctor(
        name: Text,
        count: usize,
        ele_size: usize,
        _cache_size: usize,
        _numa_id: c_int,
        obj_init: EachObject,
        obj_init_arg: Addr,
    ) -> Ptr<Pool> {
        let made = name.get().and_then(|name| Pool::new(name, count, ele_size));
        // SAFETY: no code of this crate writes a whole object of this type.
        let Some(pool) = made.map(|pool| unsafe { Ptr::give(Box::new(pool)) }) else { return Ptr::NULL };
        lock(&POOLS).push(pool);
        // SAFETY: the pool is new, and C promises that `obj_init` may be called with its objects and
        // `obj_init_arg`.
        unsafe { spdk_mempool_obj_iter(pool, obj_init, obj_init_arg) };
        pool
    }

    fn spdk_mempool_lookup(name: Text) -> Ptr<Pool> { name.get().and_then(Pool::named).unwrap_or(Ptr::NULL) }

    fn spdk_mempool_get_name(pool: Ptr<Pool>) -> *const c_char {
        pool.get().map_or(std::ptr::null(), |pool| pool.name.as_ptr())
    }

    fn spdk_mempool_free(pool: Ptr<Pool>) {
        lock(&POOLS).retain(|known| known.raw() != pool.raw());
        // SAFETY: C promises that the pool is from `spdk_mempool_create`, and is freed once.
        if let Some(pool) = unsafe { pool.take() } {
            memory::free(pool.first);
        }
    }

    fn spdk_mempool_get(pool: Ptr<Pool>) -> Addr {
        pool.get().and_then(|pool| lock(&pool.free).pop()).unwrap_or(Addr::NULL)
    }

    fn spdk_mempool_get_bulk(pool: Ptr<Pool>, elements: Ptr<Addr>, count: usize) -> c_int {
        let Some(pool) = pool.get().filter(|_| !elements.is_null()) else { return -libc::EINVAL };
        let mut free = lock(&pool.free);
        let Some(left) = free.len().checked_sub(count) else { return -libc::ENOENT };
        for (i, element) in free.drain(left..).rev().enumerate() {
            // SAFETY: C promises room for `count` elements, and `i` is less than `count`.
            unsafe { elements.write(i, element) };
        }
        0
    }

    fn spdk_mempool_put(pool: Ptr<Pool>, element: Addr) {
        if let Some(pool) = pool.get() {
            lock(&pool.free).push(element);
        }
    }

    fn spdk_mempool_put_bulk(pool: Ptr<Pool>, elements: Ptr<Addr>, count: usize) {
        if let Some(pool) = pool.get() {
            // SAFETY: C passes an array of `count` elements, and does not change it during the call.
            lock(&pool.free).extend_from_slice(unsafe { elements.slice(count) });
        }
    }

    fn spdk_mempool_count(pool: Ptr<Pool>) -> usize { pool.get().map_or(0, |pool| lock(&pool.free).len()) }

    fn spdk_mempool_obj_iter(handle: Ptr<Pool>, each: EachObject, arg: Addr) -> u32 {
        let (Some(pool), Some(each)) = (handle.get(), each) else { return 0 };
        for i in 0..pool.count {
            // SAFETY: the program passed this function together with this argument, and the element belongs
            // to the pool.
            unsafe { each(handle.raw(), arg.raw(), pool.element(i).raw(), i as c_uint) };
        }
        pool.count as u32
    }

    fn spdk_mempool_mem_iter(handle: Ptr<Pool>, each: EachPart, arg: Addr) -> u32 {
        let (Some(pool), Some(each)) = (handle.get(), each) else { return 0 };
        let (mut at, end) = (pool.first.addr(), pool.first.addr() + (pool.count * pool.step) as u64);
        let mut parts = 0;
        while at < end {
            let (bus, len) = map::to_bus(at, end - at);
            // SAFETY: the program passed this callback together with its argument. The range is within the
            // memory of the pool.
            unsafe { each(handle.raw(), arg.raw(), Addr::at(at).raw(), bus, len as usize, parts) };
            parts += 1;
            at += len.max(1);
        }
        parts
    }
}
