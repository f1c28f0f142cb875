//! `doca_buf_inventory.h`: inventories, which allocate buffers.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, OnceCell};
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use crate::buf::{Buf, Returned};
use crate::c_abi::{Handle, INVALID, Mark, NO_DATA, Out, Outcome, c, c_calls, getters, object, require};
use crate::mmap::Mmap;

const MAX: usize = 1 << 26;

/// An inventory: `struct doca_buf_inventory`.
pub(crate) struct Inventory {
    mark: Mark,
    started: Cell<bool>,
    user_data: Cell<c::doca_data>,
    arena: BufArena,
    total: Cell<u32>,
    /// Number of different buffers that were ever taken. Each of them is now in use, or in `back`.
    had: Cell<u32>,
    /// Indexes of released buffers. The vector has capacity for all buffers.
    back: Rc<Returned>,
}

/// Maximum number of blocks of an arena. Each block after the first is at least as large as all earlier ones
/// together, so `MAX` buffers fit.
const BLOCKS: usize = MAX.ilog2() as usize + 2;

/// Buffers that do not move when more are added.
#[derive(Default)]
struct BufArena {
    blocks: [OnceCell<Box<[Buf]>>; BLOCKS],
}

impl BufArena {
    fn blocks(&self) -> impl Iterator<Item = &[Buf]> {
        self.blocks.iter().map_while(OnceCell::get).map(AsRef::as_ref)
    }

    fn len(&self) -> usize {
        self.blocks().map(<[Buf]>::len).sum()
    }

    fn at(&self, index: u32) -> Option<&Buf> {
        let mut index = index as usize;
        for block in self.blocks() {
            match block.get(index) {
                Some(buf) => return Some(buf),
                None => index -= block.len(),
            }
        }
        None
    }

    /// Makes room for `total` buffers, at most [`MAX`]. An inventory that already has buffers gets some spare
    /// buffers too.
    fn grow(&self, total: usize, home: &Weak<Returned>) -> Outcome {
        let before = self.len();
        if total <= before {
            return Ok(());
        }
        let count = (total - before).max(before).min(MAX - before);
        let mut bufs = Vec::new();
        bufs.try_reserve_exact(count).map_err(|_| c::DOCA_ERROR_NO_MEMORY)?;
        bufs.extend((before..before + count).map(|index| Buf::new(index as u32, home.clone())));
        let block = self.blocks.iter().find(|block| block.get().is_none());
        let set = block.map(|block| block.set(bufs.into_boxed_slice()));
        set.and_then(Result::ok).ok_or(c::DOCA_ERROR_UNEXPECTED)
    }
}

object!(Inventory, 0xb1_00_00_01);

impl Inventory {
    fn grow(&self, total: u32) -> Outcome {
        self.arena.grow(total as usize, &Rc::downgrade(&self.back))?;
        let mut back = self.back.borrow_mut();
        let more = total as usize - back.len();
        back.try_reserve(more).map_err(|_| c::DOCA_ERROR_NO_MEMORY)?;
        self.total.set(total);
        Ok(())
    }

    pub(crate) fn new(num_elements: usize) -> Outcome<Rc<Self>> {
        require(num_elements > 0, INVALID)?;
        require(num_elements <= MAX, c::DOCA_ERROR_NO_MEMORY)?;
        let made = Self {
            mark: Mark::of::<Self>(),
            started: Cell::new(false),
            user_data: Cell::new(NO_DATA),
            arena: BufArena::default(),
            total: Cell::new(0),
            had: Cell::new(0),
            back: Rc::default(),
        };
        made.grow(num_elements as u32)?;
        Ok(Rc::new(made))
    }

    pub(crate) fn total(&self) -> u32 {
        self.total.get()
    }

    pub(crate) fn free_count(&self) -> usize {
        self.back.borrow().len() + (self.total.get() - self.had.get()) as usize
    }

    /// Takes a buffer, which has no window yet.
    pub(crate) fn next(&self) -> Outcome<&Buf> {
        let index = match self.back.borrow_mut().pop() {
            Some(index) => index,
            None => {
                let index = self.had.get();
                require(index < self.total.get(), c::DOCA_ERROR_NO_MEMORY)?;
                self.had.set(index + 1);
                index
            }
        };
        self.arena.at(index).ok_or(c::DOCA_ERROR_UNEXPECTED)
    }

    /// Takes a buffer whose window is the `len` bytes at `addr`, with `data_len` bytes of data at `data`.
    pub(crate) fn window(
        &self,
        mmap: &Mmap,
        addr: *mut c_void,
        len: usize,
        data: *mut c_void,
        data_len: usize,
    ) -> Outcome<&Buf> {
        require(!addr.is_null() && !data.is_null(), INVALID)?;
        require(self.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let (addr, data) = (addr.addr(), data.addr());
        let memory = mmap.memory_at(addr, len)?;
        memory.check_window(addr, len, data, data_len)?;
        let made = self.next()?;
        made.take(memory, addr, len, data, data_len);
        Ok(made)
    }

    #[cfg(workq)]
    pub(crate) fn set_user_data(&self, user_data: c::doca_data) {
        self.user_data.set(user_data);
    }

    fn duplicate(&self, list: &Buf) -> Outcome<&Buf> {
        require(self.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        require(!list.is_chained(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(list.memory().is_some_and(|memory| memory.is_started()), c::DOCA_ERROR_BAD_STATE)?;
        require(self.free_count() >= list.count() as usize, c::DOCA_ERROR_NO_MEMORY)?;
        let mut made: Option<(&Buf, &Buf)> = None;
        for buf in list.iter() {
            let next = self.next()?;
            buf.duplicate(next)?;
            made = Some(match made {
                None => (next, next),
                Some((head, last)) => {
                    head.append(last, next);
                    (head, next)
                }
            });
        }
        made.map(|(head, _)| head).ok_or(INVALID)
    }
}

getters! {
    doca_buf_inventory_get_num_elements(inventory: Inventory) -> u32 { inventory.total.get() }
    doca_buf_inventory_get_num_free_elements(inventory: Inventory) -> u32 { inventory.free_count() as u32 }
    doca_buf_inventory_get_user_data(inventory: Inventory) -> c::doca_data { inventory.user_data.get() }
}

#[cfg(not(workq))]
c_calls! {
    fn doca_buf_inventory_create(num_elements: usize, inventory: Out<Handle<Inventory>>) {
        inventory.make(|| Ok(Handle::give_rc(Inventory::new(num_elements)?)))
    }
}

c_calls! {
    /// Destroys an inventory. Returns `IN_USE` unless all buffers were returned.
    fn doca_buf_inventory_destroy(inventory: Handle<Inventory>) {
        let it = inventory.get()?;
        require(it.free_count() == it.total.get() as usize, c::DOCA_ERROR_IN_USE)?;
        inventory.take_rc().map(drop)
    }
    fn doca_buf_inventory_start(it: Handle<Inventory>) { it.get().map(|it| it.started.set(true)) }
    fn doca_buf_inventory_stop(it: Handle<Inventory>) { it.get().map(|it| it.started.set(false)) }
    /// Takes a buffer. Its window is the `len` bytes at `addr`, with `data_len` bytes of data at `data`.
    fn doca_buf_inventory_buf_get_by_args | doca_buf_inventory_buf_by_args(
        inventory: Handle<Inventory>,
        mmap: Handle<Mmap>,
        addr: *mut c_void,
        len: usize,
        data: *mut c_void,
        data_len: usize,
        buf: Out<Handle<Buf>>,
    ) {
        buf.check()?;
        let window = inventory.get()?.window(mmap.get()?, addr, len, data, data_len)?;
        // SAFETY: C destroys an inventory only when it no longer uses the inventory's buffers, which do not
        // move.
        buf.put(unsafe { Handle::of(window) })
    }
    /// Changes the window of a buffer. No task may use the buffer.
    fn doca_buf_inventory_buf_reuse_by_args(
        buf: Handle<Buf>,
        addr: *mut c_void,
        len: usize,
        data: *mut c_void,
        data_len: usize,
    ) {
        require(!addr.is_null() && !data.is_null(), INVALID)?;
        buf.get()?.reuse(addr.addr(), len, data.addr(), data_len)
    }
    /// Duplicates a buffer, or a whole list if the buffer is its head. The duplicates have the same memory.
    fn doca_buf_inventory_buf_dup(
        inventory: Handle<Inventory>,
        src_buf: Handle<Buf>,
        dst_buf: Out<Handle<Buf>>,
    ) {
        dst_buf.make(|| {
            let copy = inventory.get()?.duplicate(src_buf.get()?)?;
            // SAFETY: C destroys an inventory only when it no longer uses the inventory's buffers, which do
            // not move.
            Ok(unsafe { Handle::of(copy) })
        })
    }
    fn doca_buf_inventory_set_user_data(inventory: Handle<Inventory>, user_data: c::doca_data) {
        let inventory = inventory.get()?;
        require(inventory.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        inventory.user_data.set(user_data);
        Ok(())
    }
    /// Adds buffers to an inventory. Returns `BAD_STATE` unless the inventory is started.
    fn doca_buf_inventory_expand(inventory: Handle<Inventory>, num_elements: u32) {
        let inventory = inventory.get()?;
        require(num_elements > 0, INVALID)?;
        require(inventory.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let before = inventory.total.get();
        require(num_elements as usize <= MAX - before as usize, c::DOCA_ERROR_NO_MEMORY)?;
        inventory.grow(before + num_elements)
    }
}
