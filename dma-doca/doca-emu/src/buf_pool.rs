//! `doca_buf_pool.h`: buffers of one size, side by side in a memory map.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::buf::Buf;
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, answer, c, require};
use crate::inventory::Inventory;
use crate::mmap::{Mmap, Registered};

/// A pool: `struct doca_buf_pool`.
pub(crate) struct BufPool {
    mark: Mark,
    shelf: Rc<Inventory>,
    mmap: Arc<Mmap>,
    /// Bytes of a buffer.
    size: usize,
    alignment: Cell<usize>,
    user_data: Cell<c::doca_data>,
    run: RefCell<Option<Run>>,
}

/// From a start to the next stop: the memory, the first buffer's address, and how far each is from the next.
struct Run {
    memory: Arc<Registered>,
    first: usize,
    stride: usize,
}

impl Object for BufPool {
    const MARK: u32 = 0xb2_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl BufPool {
    fn require_stopped(&self) -> Outcome {
        require(self.run.borrow().is_none(), c::DOCA_ERROR_BAD_STATE)
    }

    fn require_whole(&self) -> Outcome {
        require(self.shelf.free_count() == self.shelf.total() as usize, c::DOCA_ERROR_IN_USE)
    }

    fn start(&self) -> Outcome {
        let memory = self.mmap.registered().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        if self.run.borrow().is_some() {
            return Ok(());
        }
        let (addr, len) = memory.range();
        let alignment = self.alignment.get();
        let small = c::DOCA_ERROR_INITIALIZATION;
        let first = addr.checked_next_multiple_of(alignment).ok_or(small)?;
        let stride = self.size.checked_next_multiple_of(alignment).ok_or(small)?;
        // The last one needs no room behind it.
        let before = stride.checked_mul(self.shelf.total() as usize - 1).ok_or(small)?;
        let needed = before.checked_add(self.size).and_then(|bytes| bytes.checked_add(first - addr));
        require(needed.is_some_and(|needed| needed <= len), small)?;
        self.run.replace(Some(Run { memory, first, stride }));
        Ok(())
    }

    fn alloc(&self) -> Outcome<Handle<Buf>> {
        let run = self.run.borrow();
        let run = run.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        require(run.memory.is_started(), c::DOCA_ERROR_BAD_STATE)?;
        let buf = self.shelf.next().map_err(|_| c::DOCA_ERROR_EMPTY)?;
        let addr = run.first + run.stride * buf.index as usize;
        buf.take(Arc::clone(&run.memory), addr, self.size, addr, 0);
        Ok(Handle::of(buf))
    }
}

/// Makes a pool of so many buffers, of `element_size` bytes each, in the memory of a map.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_create(
    num_elements: usize,
    element_size: usize,
    mmap: Handle<Mmap>,
    buf_pool: Out<Handle<BufPool>>,
) -> Code {
    answer(|| {
        buf_pool.check()?;
        let mmap = mmap.arc()?;
        require(element_size > 0, INVALID)?;
        buf_pool.put(Handle::give_rc(Rc::new(BufPool {
            mark: Mark::new(BufPool::MARK),
            shelf: Inventory::new(num_elements)?,
            mmap,
            size: element_size,
            alignment: Cell::new(1),
            user_data: Cell::new(c::doca_data { u64_: 0 }),
            run: RefCell::new(None),
        })))
    })
}

/// Destroys a pool that all buffers are back in; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_destroy(buf_pool: Handle<BufPool>) -> Code {
    answer(|| {
        buf_pool.get()?.require_whole()?;
        buf_pool.take_rc().map(drop)
    })
}

/// Lets buffers be had. `BAD_STATE` if the map is not started, `INITIALIZATION` if it is too small.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_start(buf_pool: Handle<BufPool>) -> Code {
    answer(|| buf_pool.get()?.start())
}

/// Lets no more buffers be had; all are back, otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_stop(buf_pool: Handle<BufPool>) -> Code {
    answer(|| {
        let pool = buf_pool.get()?;
        pool.require_whole()?;
        pool.run.replace(None);
        Ok(())
    })
}

/// A buffer without data; `EMPTY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_buf_alloc(buf_pool: Handle<BufPool>, buf: Out<Handle<Buf>>) -> Code {
    answer(|| {
        buf.check()?;
        buf.put(buf_pool.get()?.alloc()?)
    })
}

/// Sets a value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_set_user_data(buf_pool: Handle<BufPool>, user_data: c::doca_data) -> Code {
    answer(|| {
        let pool = buf_pool.get()?;
        pool.require_stopped()?;
        pool.user_data.set(user_data);
        Ok(())
    })
}

/// The value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_get_user_data(buf_pool: Handle<BufPool>, user_data: Out<c::doca_data>) -> Code {
    answer(|| user_data.put(buf_pool.get()?.user_data.get()))
}

/// Has every buffer begin at a multiple of `alignment`, a power of two.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_set_element_alignment(buf_pool: Handle<BufPool>, alignment: usize) -> Code {
    answer(|| {
        let pool = buf_pool.get()?;
        require(alignment.is_power_of_two(), INVALID)?;
        pool.require_stopped()?;
        pool.alignment.set(alignment);
        Ok(())
    })
}

/// What every buffer's address is a multiple of.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_get_element_alignment(buf_pool: Handle<BufPool>, alignment: Out<usize>) -> Code {
    answer(|| alignment.put(buf_pool.get()?.alignment.get()))
}

/// How many buffers there are.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_get_num_elements(buf_pool: Handle<BufPool>, num_of_elements: Out<u32>) -> Code {
    answer(|| num_of_elements.put(buf_pool.get()?.shelf.total()))
}

/// How many buffers can still be had.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_pool_get_num_free_elements(
    buf_pool: Handle<BufPool>,
    num_of_free_elements: Out<u32>,
) -> Code {
    answer(|| num_of_free_elements.put(buf_pool.get()?.shelf.free_count() as u32))
}
