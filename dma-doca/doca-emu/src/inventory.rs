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
    /// Places on the shelf.
    free: RefCell<Vec<u32>>,
    this: Weak<Self>,
}

/// Buffers, and more of them added later, all staying where they are.
struct Shelf {
    bufs: Box<[Buf]>,
    more: OnceCell<Box<Self>>,
}

impl Shelf {
    fn at(&self, index: u32) -> Option<&Buf> {
        match self.bufs.get(index as usize) {
            Some(buf) => Some(buf),
            None => self.more.get()?.at(index - self.bufs.len() as u32),
        }
    }

    fn add(&self, more: Box<[Buf]>) {
        match self.more.get() {
            Some(next) => next.add(more),
            None => {
                self.more.get_or_init(|| Box::new(Self { bufs: more, more: OnceCell::new() }));
            }
        }
    }
}

impl Object for Inventory {
    const MARK: u32 = 0xb1_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Inventory {
    fn make(from: u32, count: u32, home: &Weak<Self>) -> Outcome<Box<[Buf]>> {
        let mut bufs = Vec::new();
        bufs.try_reserve_exact(count as usize).map_err(|_| c::DOCA_ERROR_NO_MEMORY)?;
        bufs.extend((from..from + count).map(|index| Buf::new(index, home.clone())));
        Ok(bufs.into_boxed_slice())
    }

    /// A buffer that is back.
    pub(crate) fn take_back(&self, buf: &Buf) {
        self.free.borrow_mut().push(buf.index);
    }

    /// An inventory of so many buffers.
    pub(crate) fn new(num_elements: usize) -> Outcome<Rc<Self>> {
        require(num_elements > 0, INVALID)?;
        require(num_elements <= MAX, c::DOCA_ERROR_NO_MEMORY)?;
        let count = num_elements as u32;
        let mut failed = None;
        let made = Rc::new_cyclic(|this| {
            let bufs = Self::make(0, count, this).unwrap_or_else(|code| {
                failed = Some(code);
                Box::default()
            });
            Self {
                mark: Mark::new(Self::MARK),
                started: Cell::new(false),
                user_data: Cell::new(c::doca_data { u64_: 0 }),
                free: RefCell::new((0..bufs.len() as u32).rev().collect()),
                shelf: Shelf { bufs, more: OnceCell::new() },
                total: Cell::new(count),
                this: this.clone(),
            }
        });
        failed.map_or(Ok(made), Err)
    }

    /// How many buffers there are.
    pub(crate) fn total(&self) -> u32 {
        self.total.get()
    }

    /// How many can still be had.
    pub(crate) fn free_count(&self) -> usize {
        self.free.borrow().len()
    }

    /// A buffer, which is no window of anything yet.
    pub(crate) fn next(&self) -> Outcome<&Buf> {
        let index = self.free.borrow_mut().pop().ok_or(c::DOCA_ERROR_NO_MEMORY)?;
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
        require(memory.contains(addr, len), INVALID)?;
        require(data >= addr && data - addr <= len && data_len <= len - (data - addr), INVALID)?;
        let made = inventory.next()?;
        made.take(memory, addr, len, data, data_len);
        buf.put(Handle::of(made))
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

/// Adds buffers.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inventory_expand(inventory: Handle<Inventory>, num_elements: u32) -> Code {
    answer(|| {
        let inventory = inventory.get()?;
        require(num_elements > 0, INVALID)?;
        let before = inventory.total.get();
        require(num_elements as usize <= MAX - before as usize, c::DOCA_ERROR_NO_MEMORY)?;
        inventory.shelf.add(Inventory::make(before, num_elements, &inventory.this)?);
        inventory.total.set(before + num_elements);
        inventory.free.borrow_mut().splice(0..0, (before..before + num_elements).rev());
        Ok(())
    })
}
