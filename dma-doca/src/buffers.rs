//! Buffers of a queue. They are created once per region and task. Later copies only change their addresses.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::sync::{Arc, Mutex, Weak};

use dma_core::{ErrorKind, RegionKey, Result, Segment};
use dma_process::lock;
use doca_sys::bindings::*;

use crate::device::Device;
use crate::error::{check, error, failed, kind};
use crate::ffi::out;

/// Stands for "no region".
pub(crate) const NONE: usize = usize::MAX;

/// The regions of an engine by key, and the engine's queues, whose buffers refer to the regions.
#[derive(Debug, Default)]
pub(crate) struct RegionTable {
    regions: Mutex<Vec<Option<BufferSource>>>,
    queues: Mutex<Vec<Weak<Mutex<QueueBuffers>>>>,
}

/// The properties of a region that its buffers need.
#[derive(Clone, Debug)]
pub(crate) struct BufferSource {
    pub(crate) map: *mut doca_mmap,
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
    /// The descriptor that a peer's region was imported from.
    pub(crate) imported: Option<Arc<[u8]>>,
}

// SAFETY: the pointers are a handle and an address, neither of which belongs to a thread, and every use of
// the map holds the lock `Device::maps`.
unsafe impl Send for BufferSource {}

impl RegionTable {
    pub(crate) fn add(&self, entry: BufferSource) -> RegionKey {
        let mut regions = lock(&self.regions);
        let free = regions.iter().position(Option::is_none);
        let key = free.unwrap_or_else(|| {
            regions.push(None);
            regions.len() - 1
        });
        regions[key] = Some(entry);
        RegionKey(key)
    }

    /// Frees the key of a region, after every queue has released its buffers. No descriptor that names it may
    /// be in flight.
    pub(crate) fn remove(&self, key: RegionKey) {
        let queues: Vec<_> = lock(&self.queues).iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            // The queue's buffers are locked while it logs.
            dma_core::with_deferred_log(|| lock(&queue).forget(key.0));
        }
        lock(&self.regions)[key.0] = None;
    }

    fn get(&self, key: usize) -> Option<BufferSource> {
        lock(&self.regions).get(key).cloned().flatten()
    }

    fn join(&self, buffers: &Arc<Mutex<QueueBuffers>>) {
        let mut queues = lock(&self.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(buffers));
    }
}

/// The buffers of one queue. They are behind a lock, because any thread may drop a region.
#[derive(Debug)]
pub(crate) struct QueueBuffers {
    device: Arc<Device>,
    table: Arc<RegionTable>,
    inventory: *mut doca_buf_inventory,
    columns: Vec<Option<Column>>,
    pub(crate) slots: Box<[Bound]>,
}

// SAFETY: the inventory and its buffers are used only under the lock.
unsafe impl Send for QueueBuffers {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) src_key: usize,
    pub(crate) dst_key: usize,
    pub(crate) src: *mut doca_buf,
    pub(crate) dst: *mut doca_buf,
    /// The slot's task; null until its first use. It stays when the binding changes.
    pub(crate) task: *mut doca_task,
    /// Set if the buffers are lists. Lists are released after one operation.
    pub(crate) listed: bool,
    /// Key of an imported region of the operation, or `NONE`.
    pub(crate) imported: usize,
}

const UNBOUND: Bound = Bound {
    src_key: NONE,
    dst_key: NONE,
    src: std::ptr::null_mut(),
    dst: std::ptr::null_mut(),
    task: std::ptr::null_mut(),
    listed: false,
    imported: NONE,
};

#[derive(Debug)]
struct Column {
    entry: BufferSource,
    free: Vec<*mut doca_buf>,
    made: usize,
}

/// Reason why no buffer is available.
#[derive(Debug)]
pub(crate) enum Shortage {
    /// The inventory is empty until a task completes.
    Full,
    Error(dma_core::Error),
}

impl QueueBuffers {
    /// Creates the inventory of a queue of `depth` tasks, with lists of up to `list` buffers.
    pub(crate) fn new(
        device: &Arc<Device>,
        table: &Arc<RegionTable>,
        depth: usize,
        list: usize,
    ) -> Result<Arc<Mutex<Self>>> {
        // Two buffers per task, two more for previously used regions, and lists for some of the tasks, or the
        // longest list.
        let lists = if list > 1 { depth.saturating_mul(4).max(2 * list) } else { 0 };
        let count = depth.saturating_mul(4).saturating_add(lists);
        let sdk = &device.sdk;
        let create = sdk.common.doca_buf_inventory_create;
        // SAFETY: `out` passes a pointer that can be written.
        let inventory =
            out(sdk, "doca_buf_inventory_create", std::ptr::null_mut(), |p| unsafe { create(count, p) })?;
        let buffers = Self {
            device: Arc::clone(device),
            table: Arc::clone(table),
            inventory,
            columns: Vec::new(),
            slots: vec![UNBOUND; depth].into(),
        };
        // SAFETY: the inventory was created above, is not started, and is owned by `buffers`.
        check(sdk, "doca_buf_inventory_start", unsafe { (sdk.common.doca_buf_inventory_start)(inventory) })?;
        let buffers = Arc::new(Mutex::new(buffers));
        table.join(&buffers);
        Ok(buffers)
    }

    /// Binds a slot to buffers that span these regions.
    pub(crate) fn bind(&mut self, slot: usize, src: RegionKey, dst: RegionKey) -> Result<(), Shortage> {
        self.unbind(slot);
        let from = self.take(src.0)?;
        let to = match self.take(dst.0) {
            Ok(to) => to,
            Err(e) => {
                self.give(src.0, from);
                return Err(e);
            }
        };
        let imported = [src.0, dst.0].into_iter().find(|key| self.is_imported(*key)).unwrap_or(NONE);
        let task = self.slots[slot].task;
        self.slots[slot] =
            Bound { src_key: src.0, dst_key: dst.0, src: from, dst: to, task, listed: false, imported };
        Ok(())
    }

    /// Binds a slot to lists of buffers, one buffer per segment.
    pub(crate) fn bind_lists(
        &mut self,
        slot: usize,
        src: &[Segment],
        dst: &[Segment],
    ) -> Result<(), Shortage> {
        self.unbind(slot);
        let from = self.list(src, true)?;
        let to = match self.list(dst, false) {
            Ok(to) => to,
            Err(e) => {
                self.release(from);
                return Err(e);
            }
        };
        let mut all = src.iter().chain(dst).map(|segment| segment.key.0);
        let imported = all.find(|key| self.is_imported(*key)).unwrap_or(NONE);
        let task = self.slots[slot].task;
        self.slots[slot] =
            Bound { src_key: NONE, dst_key: NONE, src: from, dst: to, task, listed: true, imported };
        Ok(())
    }

    /// Takes a slot's buffers: releases lists, and keeps other buffers for later slots. The task stays.
    pub(crate) fn unbind(&mut self, slot: usize) {
        let task = self.slots[slot].task;
        let bound = std::mem::replace(&mut self.slots[slot], Bound { task, ..UNBOUND });
        if bound.listed {
            self.release(bound.src);
            self.release(bound.dst);
        } else if bound.src_key != NONE {
            self.give(bound.src_key, bound.src);
            self.give(bound.dst_key, bound.dst);
        }
    }

    fn is_imported(&self, key: usize) -> bool {
        self.blob(key).is_some()
    }

    /// Returns the descriptor that a region was imported from. `None` if the region is not imported, or not
    /// used by this queue.
    pub(crate) fn blob(&self, key: usize) -> Option<&Arc<[u8]>> {
        self.columns.get(key)?.as_ref()?.entry.imported.as_ref()
    }

    /// Returns the queue's buffers of a region. The entry is created on first use.
    fn column(&mut self, key: usize) -> Result<&mut Column, Shortage> {
        if key >= self.columns.len() {
            self.columns.resize_with(key + 1, || None);
        }
        if self.columns[key].is_none() {
            let unknown =
                || Shortage::Error(error(ErrorKind::WrongEngine, "the region belongs to another engine"));
            let entry = self.table.get(key).ok_or_else(unknown)?;
            self.columns[key] = Some(Column { entry, free: Vec::new(), made: 0 });
        }
        self.columns[key].as_mut().ok_or(Shortage::Full)
    }

    /// Takes a free buffer that spans a whole region, or makes one.
    fn take(&mut self, key: usize) -> Result<*mut doca_buf, Shortage> {
        let column = self.column(key)?;
        if let Some(buf) = column.free.pop() {
            return Ok(buf);
        }
        let entry = column.entry.clone();
        let buf = self.make(&entry, entry.base, entry.len, 0)?;
        let column = self.column(key)?;
        column.made += 1;
        // Reserve room here, because `give` must not allocate.
        column.free.reserve(column.made);
        Ok(buf)
    }

    fn give(&mut self, key: usize, buf: *mut doca_buf) {
        match self.columns.get_mut(key) {
            Some(Some(column)) => column.free.push(buf),
            _ => self.release(buf),
        }
    }

    /// Creates a list of buffers over `segments`. The buffers of a source have `content`; those of a
    /// destination are empty.
    fn list(&mut self, segments: &[Segment], content: bool) -> Result<*mut doca_buf, Shortage> {
        let mut head: *mut doca_buf = std::ptr::null_mut();
        for segment in segments {
            let entry = self.column(segment.key.0)?.entry.clone();
            let made =
                self.make(&entry, segment.addr.as_ptr(), segment.len, if content { segment.len } else { 0 });
            let added = made.and_then(|buf| {
                if head.is_null() {
                    head = buf;
                    return Ok(());
                }
                self.chain(head, buf).map_err(|e| {
                    self.release(buf);
                    Shortage::Error(e)
                })
            });
            if let Err(e) = added {
                self.release(head);
                return Err(e);
            }
        }
        Ok(head)
    }

    fn chain(&self, head: *mut doca_buf, tail: *mut doca_buf) -> Result<()> {
        let sdk = &self.device.sdk;
        let Some(chain) = sdk.common.doca_buf_chain_list else {
            return Err(error(ErrorKind::Unsupported, "the library has no doca_buf_chain_list"));
        };
        // SAFETY: both are heads of lists of this inventory that no task uses.
        check(sdk, "doca_buf_chain_list", unsafe { chain(head, tail) })
    }

    /// Creates a buffer over `len` bytes at `addr`, whose content is the first `data` bytes.
    fn make(
        &mut self,
        entry: &BufferSource,
        addr: *mut u8,
        len: usize,
        data: usize,
    ) -> Result<*mut doca_buf, Shortage> {
        let device = Arc::clone(&self.device);
        let sdk = &device.sdk;
        let get = sdk.common.doca_buf_inventory_buf_get_by_args;
        let mut buf = std::ptr::null_mut();
        for attempt in 0..3 {
            let code = {
                let _serial = lock(&device.maps);
                // SAFETY: the inventory and the map are started, and the region keeps the map while a
                // descriptor names the region. The range is within the region, and `buf` can be written.
                unsafe { get(self.inventory, entry.map, addr.cast(), len, addr.cast(), data, &raw mut buf) }
            };
            match code {
                DOCA_SUCCESS => return Ok(buf),
                DOCA_ERROR_NO_MEMORY if attempt == 0 => self.shrink(),
                DOCA_ERROR_NO_MEMORY if attempt == 1 && self.expand() => {}
                DOCA_ERROR_NO_MEMORY => return Err(Shortage::Full),
                _ => return Err(Shortage::Error(failed(sdk, "doca_buf_inventory_buf_get_by_args", code))),
            }
        }
        Err(Shortage::Full)
    }

    fn shrink(&mut self) {
        for key in 0..self.columns.len() {
            let Some(column) = &mut self.columns[key] else { continue };
            column.made -= column.free.len();
            for buf in std::mem::take(&mut column.free) {
                self.release(buf);
            }
        }
    }

    fn expand(&self) -> bool {
        let Some(expand) = self.device.sdk.common.doca_buf_inventory_expand else { return false };
        let more = u32::try_from(self.slots.len()).unwrap_or(u32::MAX).max(64);
        // SAFETY: the inventory is started, and exists as long as this value.
        unsafe { expand(self.inventory, more) == DOCA_SUCCESS }
    }

    /// Returns a buffer or list to the inventory. Ignores null.
    fn release(&self, buf: *mut doca_buf) {
        if buf.is_null() {
            return;
        }
        let serial = lock(&self.device.maps);
        // SAFETY: `buf` is a buffer of this inventory or the head of a list, and no task uses it. The pointer
        // for the count may be NULL.
        let code = unsafe { (self.device.sdk.common.doca_buf_dec_refcount)(buf, std::ptr::null_mut()) };
        drop(serial);
        if code != DOCA_SUCCESS {
            let error = failed(&self.device.sdk, "doca_buf_dec_refcount", code);
            dma_core::deferred_log!(error, target: "doca", %error, "a buffer is leaked");
        }
    }

    /// Releases all buffers of a region. No task that uses the region may be in flight.
    fn forget(&mut self, key: usize) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].src_key == key || self.slots[slot].dst_key == key {
                self.unbind(slot);
            }
        }
        if let Some(column) = self.columns.get_mut(key).and_then(Option::take) {
            for buf in column.free {
                self.release(buf);
            }
        }
    }

    /// Releases all buffers and destroys the inventory. All tasks that use the buffers must be freed.
    pub(crate) fn close(&mut self) -> Result<()> {
        for slot in 0..self.slots.len() {
            self.unbind(slot);
        }
        self.shrink();
        let inventory = std::mem::replace(&mut self.inventory, std::ptr::null_mut());
        if inventory.is_null() {
            return Ok(());
        }
        let sdk = &self.device.sdk;
        // SAFETY: `new` created the inventory, all its buffers were returned, and the queue's pointer to it
        // was cleared above.
        let code = unsafe { (sdk.common.doca_buf_inventory_destroy)(inventory) };
        check(sdk, "doca_buf_inventory_destroy", code)
    }
}

impl Drop for QueueBuffers {
    fn drop(&mut self) {
        // The inventory is closed already, unless opening the queue failed before any buffer was created.
        if let Err(e) = self.close() {
            dma_core::deferred_log!(error, target: "doca", error = %e, "an inventory of buffers is leaked");
        }
    }
}

/// Returns true for codes that mean a full queue.
pub(crate) const fn is_full(code: doca_error_t) -> bool {
    matches!(kind(code), ErrorKind::QueueFull)
}
