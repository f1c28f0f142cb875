//! `doca_buf.h`: windows onto memory maps, and lists of them.
#![expect(unsafe_code, reason = "functions that C calls by name")]

pub(crate) mod calls;

use std::cell::{Cell, RefCell};
use std::rc::Weak;
use std::sync::Arc;

use dma_sim::model::{DeviceAddr, RegionKey, Segment};

use crate::c_abi::{Handle, INVALID, Mark, Object, Outcome, c, object, require};
use crate::dev::Dev;
use crate::mmap::Registered;

/// Indexes of the buffers that were returned to their inventory.
pub(crate) type Returned = RefCell<Vec<u32>>;

/// A buffer: `struct doca_buf`. Its address is fixed while its inventory lives. The mark is set while the
/// program has the buffer.
pub(crate) struct Buf {
    mark: Mark,
    refs: Cell<u16>,
    /// Number of tasks in flight that use the buffer. If the program releases the buffer before these tasks
    /// end, it returns to its inventory when they end.
    pins: Cell<u32>,
    /// Set if another buffer precedes this one in a list.
    chained: Cell<bool>,
    head: Cell<usize>,
    len: Cell<usize>,
    data: Cell<usize>,
    data_len: Cell<usize>,
    next: Cell<Handle<Self>>,
    /// Number of buffers in the list. Valid only in the head of a list, as is `last`.
    count: Cell<u32>,
    last: Cell<Handle<Self>>,
    /// The device that last used the buffer, and the key of the buffer's memory on that device.
    key: Cell<(*const Dev, RegionKey)>,
    memory: RefCell<Option<Arc<Registered>>>,
    pub(crate) index: u32,
    home: Weak<Returned>,
}

object!(Buf, 0xb0_f0_00_01);

impl Buf {
    pub(crate) fn new(index: u32, home: Weak<Returned>) -> Self {
        Self {
            mark: Mark::new(0),
            refs: Cell::new(0),
            pins: Cell::new(0),
            chained: Cell::new(false),
            head: Cell::new(0),
            len: Cell::new(0),
            data: Cell::new(0),
            data_len: Cell::new(0),
            next: Cell::new(Handle::NULL),
            count: Cell::new(1),
            last: Cell::new(Handle::NULL),
            key: Cell::new((std::ptr::null(), RegionKey(usize::MAX))),
            memory: RefCell::new(None),
            index,
            home,
        }
    }

    /// Gives the buffer to the program, as a window of `len` bytes at `head` with `data_len` bytes of data at
    /// `data`.
    pub(crate) fn take(
        &self,
        memory: Arc<Registered>,
        head: usize,
        len: usize,
        data: usize,
        data_len: usize,
    ) {
        self.mark.set(<Self as Object>::MARK);
        self.refs.set(1);
        self.head.set(head);
        self.len.set(len);
        self.data.set(data);
        self.data_len.set(data_len);
        self.key.set((std::ptr::null(), RegionKey(usize::MAX)));
        memory.count_buf(true);
        *self.memory.borrow_mut() = Some(memory);
    }

    pub(crate) fn reuse(&self, head: usize, len: usize, data: usize, data_len: usize) -> Outcome {
        require(self.pins.get() == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let memory = self.memory.borrow().clone().ok_or(INVALID)?;
        require(memory.is_started(), c::DOCA_ERROR_BAD_STATE)?;
        memory.check_window(head, len, data, data_len)?;
        self.head.set(head);
        self.len.set(len);
        self.data.set(data);
        self.data_len.set(data_len);
        Ok(())
    }

    pub(crate) fn duplicate(&self, to: &Self) -> Outcome {
        let memory = self.memory.borrow().clone().ok_or(INVALID)?;
        to.take(memory, self.head.get(), self.len.get(), self.data.get(), self.data_len.get());
        Ok(())
    }

    fn is_in_list(&self) -> bool {
        self.chained.get() || !self.next.get().is_null()
    }

    pub(crate) fn is_chained(&self) -> bool {
        self.chained.get()
    }

    pub(crate) fn memory(&self) -> Option<Arc<Registered>> {
        self.memory.borrow().clone()
    }

    /// Returns the number of buffers in the list that this buffer heads, which is 1 for a single buffer.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<&Self> {
        // SAFETY: a pointer that is not null leads to a buffer of this list. The buffers of a list are
        // released together, and do not move.
        unsafe { self.next.get().cast::<Self>().as_ref() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |buf| buf.next())
    }

    #[inline]
    fn key(&self, dev: &Arc<Dev>) -> Outcome<RegionKey> {
        let (of, key) = self.key.get();
        if std::ptr::eq(of, Arc::as_ptr(dev)) {
            return Ok(key);
        }
        let key = self.memory.borrow().as_ref().and_then(|memory| memory.key(dev)).ok_or(INVALID)?;
        self.key.set((Arc::as_ptr(dev), key));
        Ok(key)
    }

    /// Returns the range of the buffer's data. The memory must be registered with the device.
    #[inline]
    pub(crate) fn source(&self, dev: &Arc<Dev>) -> Outcome<Segment> {
        let key = self.key(dev)?;
        Ok(Segment { key, addr: DeviceAddr(self.data.get() as u64), len: self.data_len.get() })
    }

    /// Returns the range that a device may write in a copy. The range begins after the buffer's data, or at
    /// the data if the card overwrites it. The memory must be registered with the device.
    #[inline]
    pub(crate) fn room(&self, dev: &Arc<Dev>) -> Outcome<Segment> {
        let key = self.key(dev)?;
        let (from, len) = self.room_on(dev);
        Ok(Segment { key, addr: DeviceAddr(from as u64), len: len as usize })
    }

    /// Returns the address and length of [`room`](Self::room).
    #[inline]
    pub(crate) fn room_on(&self, dev: &Dev) -> (usize, u64) {
        let kept = if dev.card().limits.replaces { 0 } else { self.data_len.get() };
        let from = self.data.get().wrapping_add(kept);
        let end = self.head.get().wrapping_add(self.len.get());
        (from, end.saturating_sub(from) as u64)
    }

    /// Adds the `len` bytes that `dev` has copied to this list to the list's data.
    #[inline]
    pub(crate) fn copied(&self, dev: &Dev, len: u64) {
        if dev.card().limits.replaces {
            self.iter().for_each(|buf| buf.data_len.set(0));
        }
        self.grow_list(len);
    }

    #[inline]
    pub(crate) fn room_len(&self) -> u64 {
        let from = self.data.get().wrapping_add(self.data_len.get());
        let end = self.head.get().wrapping_add(self.len.get());
        end.saturating_sub(from) as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    #[inline]
    pub(crate) fn data_len(&self) -> u64 {
        self.data_len.get() as u64
    }

    /// Returns the address of the buffer's data, if the data is memory of this process.
    pub(crate) fn local_data(&self) -> Option<usize> {
        self.memory.borrow().as_ref().is_some_and(|memory| memory.is_local).then(|| self.data.get())
    }

    /// Returns true if the data is within the window.
    pub(crate) fn is_sound(&self) -> bool {
        let (head, data) = (self.head.get(), self.data.get());
        data >= head && self.data_len.get() <= self.len.get().saturating_sub(data - head)
    }

    pub(crate) fn data_range(&self) -> (usize, usize) {
        (self.data.get(), self.data_len.get())
    }

    /// Returns the address and length of the free space after the buffer's data.
    pub(crate) fn room_range(&self) -> (usize, usize) {
        (self.data.get().wrapping_add(self.data_len.get()), self.room_len() as usize)
    }

    /// Adds `len` bytes that the device wrote to the data of its list.
    #[inline]
    pub(crate) fn grow_list(&self, len: u64) {
        if self.next().is_none() {
            return self.grow(len);
        }
        let mut left = len;
        for buf in self.iter() {
            let part = left.min(buf.room_len());
            buf.grow(part);
            left -= part;
        }
    }

    #[inline]
    fn grow(&self, by: u64) {
        self.data_len.set(self.data_len.get().wrapping_add(by as usize));
    }

    /// Counts a task that uses the list and is now in flight.
    #[inline]
    pub(crate) fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
    }

    #[inline]
    pub(crate) fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
        if self.refs.get() == 0 && self.pins.get() == 0 {
            self.go_home();
        }
    }

    /// Returns this buffer and all later buffers of its list to their inventories.
    #[cold]
    fn go_home(&self) {
        let mut at = Some(self);
        while let Some(buf) = at {
            at = buf.next();
            buf.next.set(Handle::NULL);
            buf.last.set(Handle::NULL);
            buf.count.set(1);
            buf.chained.set(false);
            buf.refs.set(0);
            buf.mark.wipe();
            if let Some(memory) = buf.memory.take() {
                memory.count_buf(false);
            }
            if let Some(home) = buf.home.upgrade() {
                home.borrow_mut().push(buf.index);
            }
        }
    }

    fn last(&self) -> &Self {
        // SAFETY: a pointer that is not null leads to a buffer of this list. The buffers of a list are
        // released together, and do not move.
        let known = unsafe { self.last.get().cast::<Self>().as_ref() };
        let from = known.filter(|_| !self.chained.get()).unwrap_or(self);
        from.iter().last().unwrap_or(from)
    }

    /// Appends the list that begins with `second` after `last`, the last buffer of this list.
    pub(crate) fn append(&self, last: &Self, second: &Self) {
        // SAFETY: C does not release the buffers of a list while it uses the list, and buffers do not move.
        self.last.set(unsafe { Handle::of(second.last()) });
        self.count.set(self.count.get() + second.count.get());
        // SAFETY: C does not release the buffers of a list while it uses the list, and buffers do not move.
        last.next.set(unsafe { Handle::of(second) });
        second.chained.set(true);
        second.last.set(Handle::NULL);
        second.count.set(1);
    }

    fn chain(&self, tail: Option<&Self>, second: &Self) -> Outcome {
        require(!self.chained.get() && !second.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        require(second.refs.get() == 1, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!std::ptr::eq(self, second), INVALID)?;
        require(self.pins.get() == 0 && second.pins.get() == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let last = self.last();
        require(tail.is_none_or(|tail| std::ptr::eq(tail, last)), INVALID)?;
        require(self.count.get().checked_add(second.count.get()).is_some(), c::DOCA_ERROR_TOO_BIG)?;
        self.append(last, second);
        Ok(())
    }

    /// Cuts the list before `second`.
    fn unchain(&self, second: &Self) -> Outcome {
        require(!self.chained.get() && self.pins.get() == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        let before = |buf: &&Self| buf.next().is_some_and(|next| std::ptr::eq(next, second));
        let (place, last) = self.iter().enumerate().find(|(_, buf)| before(buf)).ok_or(INVALID)?;
        let whole = self.count.get();
        let kept = place as u32 + 1;
        second.last.set(self.last.get());
        second.count.set(whole - kept);
        second.chained.set(false);
        second.refs.set(1);
        last.next.set(Handle::NULL);
        // SAFETY: C does not release the buffers of a list while it uses the list, and buffers do not move.
        self.last.set(unsafe { Handle::of(last) });
        self.count.set(kept);
        Ok(())
    }
}

/// Counts the end of a task that used the buffer.
#[inline]
pub(crate) fn unpin(buf: Handle<Buf>) {
    // The buffer is pinned, so it exists even if the program has released it.
    if let Some(buf) = buf.get_unmarked() {
        buf.unpin();
    }
}
