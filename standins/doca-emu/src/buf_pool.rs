//! `doca_buf_pool.h`: buffers of one size, side by side in a memory map.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::buf::Buf;
use crate::c_abi::{Handle, INVALID, Mark, NO_DATA, Out, Outcome, c, c_calls, getters, object, require};
use crate::inventory::Inventory;
use crate::mmap::{Mmap, Registered};

/// A pool: `struct doca_buf_pool`.
pub(crate) struct BufPool {
    mark: Mark,
    inventory: Rc<Inventory>,
    mmap: Arc<Mmap>,
    size: usize,
    alignment: Cell<usize>,
    user_data: Cell<c::doca_data>,
    run: RefCell<Option<Run>>,
}

/// State of a started pool: its memory, and the positions of the buffers in it.
struct Run {
    memory: Arc<Registered>,
    first: usize,
    stride: usize,
}

object!(BufPool, 0xb2_00_00_01);

impl BufPool {
    fn require_stopped(&self) -> Outcome {
        require(self.run.borrow().is_none(), c::DOCA_ERROR_BAD_STATE)
    }

    fn require_whole(&self) -> Outcome {
        require(self.inventory.free_count() == self.inventory.total() as usize, c::DOCA_ERROR_IN_USE)
    }

    fn start(&self) -> Outcome {
        let memory = self.mmap.registered()?;
        if self.run.borrow().is_some() {
            return Ok(());
        }
        let (addr, len) = memory.range();
        let alignment = self.alignment.get();
        let small = c::DOCA_ERROR_INITIALIZATION;
        let first = addr.checked_next_multiple_of(alignment).ok_or(small)?;
        let stride = self.size.checked_next_multiple_of(alignment).ok_or(small)?;
        // No padding is needed after the last buffer.
        let before = stride.checked_mul(self.inventory.total() as usize - 1).ok_or(small)?;
        let needed = before.checked_add(self.size).and_then(|bytes| bytes.checked_add(first - addr));
        require(needed.is_some_and(|needed| needed <= len), small)?;
        self.run.replace(Some(Run { memory, first, stride }));
        Ok(())
    }

    fn alloc(&self) -> Outcome<Handle<Buf>> {
        let run = self.run.borrow();
        let run = run.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        require(run.memory.is_started(), c::DOCA_ERROR_BAD_STATE)?;
        let buf = self.inventory.next().map_err(|_| c::DOCA_ERROR_EMPTY)?;
        let addr = run.first + run.stride * buf.index as usize;
        buf.take(Arc::clone(&run.memory), addr, self.size, addr, 0);
        // SAFETY: C destroys a pool only when it no longer uses the pool's buffers, which do not move.
        Ok(unsafe { Handle::of(buf) })
    }
}

getters! {
    /// Takes a buffer, which has no data. Returns `EMPTY` if all buffers are in use.
    doca_buf_pool_buf_alloc(buf_pool: BufPool) -> Handle<Buf> { buf_pool.alloc()? }
    doca_buf_pool_get_num_elements(buf_pool: BufPool) -> u32 { buf_pool.inventory.total() }
    doca_buf_pool_get_num_free_elements(buf_pool: BufPool) -> u32 { buf_pool.inventory.free_count() as u32 }
    doca_buf_pool_get_user_data(buf_pool: BufPool) -> c::doca_data { buf_pool.user_data.get() }
    doca_buf_pool_get_element_alignment(buf_pool: BufPool) -> usize { buf_pool.alignment.get() }
}

c_calls! {
    fn doca_buf_pool_create(
        num_elements: usize,
        element_size: usize,
        mmap: Handle<Mmap>,
        buf_pool: Out<Handle<BufPool>>,
    ) {
        buf_pool.check()?;
        let mmap = mmap.arc()?;
        require(element_size > 0, INVALID)?;
        buf_pool.put(Handle::give_rc(Rc::new(BufPool {
            mark: Mark::of::<BufPool>(),
            inventory: Inventory::new(num_elements)?,
            mmap,
            size: element_size,
            alignment: Cell::new(1),
            user_data: Cell::new(NO_DATA),
            run: RefCell::new(None),
        })))
    }
    /// Destroys a pool. Returns `IN_USE` unless all buffers were returned.
    fn doca_buf_pool_destroy(buf_pool: Handle<BufPool>) {
        buf_pool.get()?.require_whole()?;
        buf_pool.take_rc().map(drop)
    }
    /// Starts a pool. Returns `BAD_STATE` if its map is not started, `INITIALIZATION` if the map is too
    /// small.
    fn doca_buf_pool_start(buf_pool: Handle<BufPool>) { buf_pool.get()?.start() }
    /// Stops a pool. Returns `IN_USE` unless all buffers were returned.
    fn doca_buf_pool_stop(buf_pool: Handle<BufPool>) {
        let pool = buf_pool.get()?;
        pool.require_whole()?;
        pool.run.replace(None);
        Ok(())
    }
    fn doca_buf_pool_set_user_data(buf_pool: Handle<BufPool>, user_data: c::doca_data) {
        let pool = buf_pool.get()?;
        pool.require_stopped()?;
        pool.user_data.set(user_data);
        Ok(())
    }
    /// Sets the alignment of all buffers. Returns `INVALID_VALUE` unless `alignment` is a power of two.
    fn doca_buf_pool_set_element_alignment(buf_pool: Handle<BufPool>, alignment: usize) {
        let pool = buf_pool.get()?;
        require(alignment.is_power_of_two(), INVALID)?;
        pool.require_stopped()?;
        pool.alignment.set(alignment);
        Ok(())
    }
}
