//! `doca_buf_inventory.h`: where buffers come from.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use crate::buf::Buf;
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, answer, c, require};
use crate::mmap::Mmap;

/// The most buffers in one inventory.
const MAX: usize = 1 << 26;

/// An inventory: `struct doca_buf_inventory`.
pub(crate) struct Inventory {
    mark: Mark,
    started: Cell<bool>,
    user_data: Cell<c::doca_data>,
    shelf: Shelf,
    total: Cell<u32>,
    /// How many were ever had: those before are out or in `back`.
    had: Cell<u32>,
    /// Places on the shelf of buffers that came back. It has room for all.
    back: RefCell<Vec<u32>>,
    this: Weak<Self>,
}

/// Blocks of a shelf, of which each but the first is at least as large as all before it: `MAX` buffers fit.
const BLOCKS: usize = MAX.ilog2() as usize + 2;

/// Buffers, and more of them added later, all staying where they are.
#[derive(Default)]
struct Shelf {
    blocks: [OnceCell<Box<[Buf]>>; BLOCKS],
}

impl Shelf {
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

    /// Makes room for `total` buffers, at most [`MAX`], and for some more if there were any before.
    fn grow(&self, total: usize, home: &Weak<Inventory>) -> Outcome {
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

impl Object for Inventory {
    const MARK: u32 = 0xb1_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Inventory {
    /// Has `total` buffers, of which no more than [`MAX`] are.
    fn grow(&self, total: u32) -> Outcome {
        self.shelf.grow(total as usize, &self.this)?;
        let mut back = self.back.borrow_mut();
        let more = total as usize - back.len();
        back.try_reserve(more).map_err(|_| c::DOCA_ERROR_NO_MEMORY)?;
        self.total.set(total);
        Ok(())
    }

    /// A buffer that is back.
    pub(crate) fn take_back(&self, buf: &Buf) {
        self.back.borrow_mut().push(buf.index);
    }

    /// An inventory of so many buffers.
    pub(crate) fn new(num_elements: usize) -> Outcome<Rc<Self>> {
        require(num_elements > 0, INVALID)?;
        require(num_elements <= MAX, c::DOCA_ERROR_NO_MEMORY)?;
        let made = Rc::new_cyclic(|this| Self {
            mark: Mark::new(Self::MARK),
            started: Cell::new(false),
            user_data: Cell::new(c::doca_data { u64_: 0 }),
            shelf: Shelf::default(),
            total: Cell::new(0),
            had: Cell::new(0),
            back: RefCell::default(),
            this: this.clone(),
        });
        made.grow(num_elements as u32)?;
        Ok(made)
    }

    /// How many buffers there are.
    pub(crate) fn total(&self) -> u32 {
        self.total.get()
    }

    /// How many can still be had.
    pub(crate) fn free_count(&self) -> usize {
        self.back.borrow().len() + (self.total.get() - self.had.get()) as usize
    }

    /// A buffer, which is no window of anything yet.
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
        self.shelf.at(index).ok_or(c::DOCA_ERROR_UNEXPECTED)
    }

    /// A duplicate of a list.
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

/// Makes an inventory of so many buffers.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_create(num_elements: usize, inventory: Out<Handle<Inventory>>) -> Code {
    answer(|| {
        inventory.check()?;
        inventory.put(Handle::give_rc(Inventory::new(num_elements)?))
    })
}

/// Destroys an inventory that all buffers are back in; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_destroy(inventory: Handle<Inventory>) -> Code {
    answer(|| {
        let it = inventory.get()?;
        require(it.free_count() == it.total.get() as usize, c::DOCA_ERROR_IN_USE)?;
        inventory.take_rc().map(drop)
    })
}

/// Lets buffers be had.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_start(inventory: Handle<Inventory>) -> Code {
    answer(|| {
        inventory.get()?.started.set(true);
        Ok(())
    })
}

/// Lets no more buffers be had.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_stop(inventory: Handle<Inventory>) -> Code {
    answer(|| {
        inventory.get()?.started.set(false);
        Ok(())
    })
}

/// A buffer: a window of `len` bytes at `addr` of a memory map, with `data_len` bytes of data at `data`.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_buf_get_by_args(
    inventory: Handle<Inventory>,
    mmap: Handle<Mmap>,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
    buf: Out<Handle<Buf>>,
) -> Code {
    answer(|| {
        buf.check()?;
        let (inventory, mmap) = (inventory.get()?, mmap.get()?);
        require(!addr.is_null() && !data.is_null(), INVALID)?;
        require(inventory.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let memory = mmap.registered().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let (addr, data) = (addr.addr(), data.addr());
        memory.check_window(addr, len, data, data_len)?;
        let made = inventory.next()?;
        made.take(memory, addr, len, data, data_len);
        buf.put(Handle::of(made))
    })
}

/// Makes a buffer, which no task has, another window of its memory map, as `doca_buf_inventory_buf_get_by_args` does.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_buf_reuse_by_args(
    buf: Handle<Buf>,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
) -> Code {
    answer(|| {
        require(!addr.is_null() && !data.is_null(), INVALID)?;
        buf.get()?.reuse(addr.addr(), len, data.addr(), data_len)
    })
}

/// A duplicate of a buffer, or of a list by its head: other windows onto the same memory.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_buf_dup(
    inventory: Handle<Inventory>,
    src_buf: Handle<Buf>,
    dst_buf: Out<Handle<Buf>>,
) -> Code {
    answer(|| {
        dst_buf.check()?;
        dst_buf.put(Handle::of(inventory.get()?.duplicate(src_buf.get()?)?))
    })
}

/// Sets a value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_set_user_data(
    inventory: Handle<Inventory>,
    user_data: c::doca_data,
) -> Code {
    answer(|| {
        inventory.get()?.user_data.set(user_data);
        Ok(())
    })
}

/// The value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_get_user_data(
    inventory: Handle<Inventory>,
    user_data: Out<c::doca_data>,
) -> Code {
    answer(|| user_data.put(inventory.get()?.user_data.get()))
}

/// How many buffers there are.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_get_num_elements(
    inventory: Handle<Inventory>,
    num_of_elements: Out<u32>,
) -> Code {
    answer(|| num_of_elements.put(inventory.get()?.total.get()))
}

/// How many buffers can still be had.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_get_num_free_elements(
    inventory: Handle<Inventory>,
    num_of_free_elements: Out<u32>,
) -> Code {
    answer(|| num_of_free_elements.put(inventory.get()?.free_count() as u32))
}

/// Adds buffers to an inventory that is started; otherwise `BAD_STATE`.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_expand(inventory: Handle<Inventory>, num_elements: u32) -> Code {
    answer(|| {
        let inventory = inventory.get()?;
        require(num_elements > 0, INVALID)?;
        require(inventory.started.get(), c::DOCA_ERROR_BAD_STATE)?;
        let before = inventory.total.get();
        require(num_elements as usize <= MAX - before as usize, c::DOCA_ERROR_NO_MEMORY)?;
        inventory.grow(before + num_elements)
    })
}
