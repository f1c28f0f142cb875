//! `doca_mmap.h`: maps of chunks, of which each has a map of later versions.
#![expect(unsafe_code, reason = "functions that C calls by name, and its callbacks")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::FIRST;
use crate::c_abi::{Handle, INVALID, In, Mark, NO_DATA, Out, Outcome, c, c_calls, object, require};
use crate::dev::Dev;
use crate::mmap::Mmap;

/// Default limits of devices and chunks.
const DEVICES: u32 = 8;
const CHUNKS: u32 = 64;

/// All rights that a map of 2.2 can be given.
const ACCESS: u32 = (c::DOCA_ACCESS_FLAG_PCI_READ_WRITE << 1) - 1;
const PCI: u32 = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;

/// A memory map: `struct doca_mmap`.
pub(super) struct Map {
    mark: Mark,
    state: Mutex<State>,
}

object!(Map, 0x3a_91_00_01);

/// The function that frees a chunk, and what is passed to it.
type Free = (c::doca_mmap_memrange_free_cb_t, usize);

struct Chunk {
    addr: usize,
    len: usize,
    free: Free,
    /// Made when it is needed. There is always one while a buffer is in it.
    memory: Option<Arc<Mmap>>,
}

struct State {
    started: bool,
    was_started: bool,
    exported: bool,
    imported: bool,
    user_data: c::doca_data,
    devs: Vec<Arc<Dev>>,
    chunks: Vec<Chunk>,
    access: u32,
    /// Of 2.2, which sets it by a call of its own.
    free: Free,
    max_devs: u32,
    max_chunks: u32,
}

// SAFETY: the user data, and the address of the function, are the program's.
unsafe impl Send for State {}

impl State {
    fn new() -> Self {
        Self {
            started: false,
            was_started: false,
            exported: false,
            imported: false,
            user_data: NO_DATA,
            devs: Vec::new(),
            chunks: Vec::new(),
            access: c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
                | if FIRST { c::DOCA_ACCESS_FLAG_PCI_READ_WRITE } else { 0 },
            free: (None, 0),
            max_devs: DEVICES,
            max_chunks: CHUNKS,
        }
    }

    /// For calls that change devices and memory: 1.5 wants a started map, 2.2 one that is not.
    fn require_changeable(&self) -> Outcome {
        require(self.started == FIRST && !self.exported && !self.imported, c::DOCA_ERROR_NOT_PERMITTED)
    }

    /// For calls that configure: before the first start.
    fn require_new(&self) -> Outcome {
        require(!self.was_started && !self.imported, c::DOCA_ERROR_NOT_PERMITTED)
    }

    fn place(&self, dev: &Dev) -> Outcome<usize> {
        let place = self.devs.iter().position(|other| std::ptr::eq(&**other, dev));
        place.ok_or(if FIRST { INVALID } else { c::DOCA_ERROR_NOT_FOUND })
    }

    /// Registers a chunk with the devices.
    fn register(&mut self, index: usize) -> Outcome<Arc<Mmap>> {
        let (devs, access) = (&self.devs, self.access);
        let chunk = &mut self.chunks[index];
        if let Some(memory) = &chunk.memory {
            return Ok(Arc::clone(memory));
        }
        let addr = std::ptr::with_exposed_provenance_mut(chunk.addr);
        // SAFETY: the program keeps the memory until the map is destroyed, which releases it.
        let memory = Arc::new(unsafe { Mmap::chunk(addr, chunk.len, devs, access) }?);
        Ok(Arc::clone(chunk.memory.insert(memory)))
    }

    /// Unregisters all chunks.
    ///
    /// # Errors
    ///
    /// `NOT_PERMITTED` while there are buffers.
    fn release(&mut self) -> Outcome {
        require(self.buffers() == 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        for chunk in &mut self.chunks {
            if let Some(memory) = &chunk.memory {
                memory.release()?;
                chunk.memory = None;
            }
        }
        self.exported = false;
        Ok(())
    }

    fn buffers(&self) -> u32 {
        self.chunks.iter().filter_map(|chunk| chunk.memory.as_ref()).map(|memory| memory.buffers()).sum()
    }

    fn add(&mut self, addr: *mut c_void, len: usize, free: Free) -> Outcome {
        let end = addr.addr().checked_add(len).filter(|_| len > 0 && !addr.is_null()).ok_or(INVALID)?;
        let apart = |chunk: &Chunk| end <= chunk.addr || chunk.addr + chunk.len <= addr.addr();
        require(self.chunks.iter().all(apart), c::DOCA_ERROR_NOT_PERMITTED)?;
        require((self.chunks.len() as u64) < u64::from(self.max_chunks), c::DOCA_ERROR_NO_MEMORY)?;
        self.chunks.push(Chunk { addr: addr.expose_provenance(), len, free, memory: None });
        Ok(())
    }

    /// The only chunk, for an export.
    fn export(&mut self, dev: &Handle<Dev>, rights: u32) -> Outcome<(Arc<Dev>, Arc<Mmap>)> {
        require(self.started && !self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        let dev = Arc::clone(&self.devs[self.place(dev.get()?)?]);
        require(self.chunks.len() == 1 && self.access & rights != 0, c::DOCA_ERROR_NOT_PERMITTED)?;
        Ok((dev, self.register(0)?))
    }
}

impl Map {
    fn give(state: State) -> Handle<Self> {
        Handle::give_arc(Arc::new(Self { mark: Mark::of::<Self>(), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registered chunk that has these bytes.
    pub(super) fn over(&self, addr: usize, len: usize) -> Outcome<Arc<Mmap>> {
        let mut state = self.state();
        require(state.started, c::DOCA_ERROR_BAD_STATE)?;
        let within =
            |chunk: &Chunk| addr >= chunk.addr && len <= chunk.len && addr - chunk.addr <= chunk.len - len;
        let index = state.chunks.iter().position(within).ok_or(INVALID)?;
        state.register(index)
    }
}

c_calls! {
    fn doca_mmap_create(user_data: In<c::doca_data>, mmap: Out<Handle<Map>>) {
        mmap.make(|| {
            let mut state = State::new();
            state.user_data = user_data.get().unwrap_or(NO_DATA);
            Ok(Map::give(state))
        })
    }
    /// Destroys a map that no buffer is in, and calls the function that frees its memory.
    fn doca_mmap_destroy(mmap: Handle<Map>) {
        let map = mmap.get()?;
        let (chunks, common) = {
            let mut state = map.state();
            state.release()?;
            (std::mem::take(&mut state.chunks), if state.was_started { state.free } else { (None, 0) })
        };
        drop(mmap.take_arc()?);
        for chunk in chunks {
            let (free, cookie) = if FIRST { chunk.free } else { common };
            if let Some(free) = free {
                let addr = std::ptr::with_exposed_provenance_mut(chunk.addr);
                // SAFETY: the program gave the function to be called with these.
                unsafe { free(addr, chunk.len, std::ptr::with_exposed_provenance_mut(cookie)) }
            }
        }
        Ok(())
    }
    /// Starts a map. 2.2 registers its memory, which it must have.
    fn doca_mmap_start(mmap: Handle<Map>) {
        let mut state = mmap.get()?.state();
        require(!state.imported && !state.exported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(!state.started || FIRST, c::DOCA_ERROR_BAD_STATE)?;
        if !FIRST {
            require(!state.chunks.is_empty(), INVALID)?;
            state.register(0)?;
        }
        state.started = true;
        state.was_started = true;
        Ok(())
    }
    /// Unregisters the memory, and revokes exports.
    fn doca_mmap_stop(mmap: Handle<Map>) {
        let mut state = mmap.get()?.state();
        require(!state.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(state.started, INVALID)?;
        state.release()?;
        state.started = false;
        Ok(())
    }
    fn doca_mmap_dev_add(mmap: Handle<Map>, dev: Handle<Dev>) {
        let mut state = mmap.get()?.state();
        let dev = dev.arc()?;
        state.require_changeable()?;
        require(!state.devs.iter().any(|other| Arc::ptr_eq(other, &dev)), c::DOCA_ERROR_IN_USE)?;
        require((state.devs.len() as u64) < u64::from(state.max_devs), c::DOCA_ERROR_NO_MEMORY)?;
        // Chunks are registered anew, with it.
        state.release()?;
        state.devs.push(dev);
        Ok(())
    }
    fn doca_mmap_dev_rm(mmap: Handle<Map>, dev: Handle<Dev>) {
        let mut state = mmap.get()?.state();
        state.require_changeable()?;
        let place = state.place(dev.get()?)?;
        state.release()?;
        state.devs.remove(place);
        Ok(())
    }
    /// Adds a chunk.
    fn doca_mmap_populate(
        mmap: Handle<Map>,
        addr: *mut c_void,
        len: usize,
        pg_sz: usize,
        free_cb: c::doca_mmap_memrange_free_cb_t,
        opaque: *mut c_void,
    ) {
        let mut state = mmap.get()?.state();
        require(pg_sz >= 4096 && pg_sz.is_power_of_two(), INVALID)?;
        state.require_changeable()?;
        state.add(addr, len, (free_cb, opaque.expose_provenance()))?;
        if state.devs.is_empty() {
            return Ok(());
        }
        // Its devices find out now if they cannot have it.
        let last = state.chunks.len() - 1;
        if let Err(code) = state.register(last) {
            state.chunks.pop();
            return Err(code);
        }
        Ok(())
    }
    /// Sets the memory, once.
    fn doca_mmap_set_memrange(mmap: Handle<Map>, addr: *mut c_void, len: usize) {
        let mut state = mmap.get()?.state();
        state.require_changeable()?;
        require(state.chunks.is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        state.add(addr, len, (None, 0))
    }
    fn doca_mmap_get_memrange(mmap: Handle<Map>, addr: Out<*mut c_void>, len: Out<usize>) {
        addr.check()?;
        len.check()?;
        let state = mmap.get()?.state();
        let chunk = state.chunks.first().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        len.put(chunk.len)?;
        addr.put(std::ptr::with_exposed_provenance_mut(chunk.addr))
    }
    fn doca_mmap_set_free_cb(
        mmap: Handle<Map>,
        free_cb: c::doca_mmap_memrange_free_cb_t,
        opaque: *mut c_void,
    ) {
        let mut state = mmap.get()?.state();
        state.require_changeable()?;
        require(free_cb.is_some(), INVALID)?;
        state.free = (free_cb, opaque.expose_provenance());
        Ok(())
    }
    fn doca_mmap_set_permissions(mmap: Handle<Map>, access_mask: u32) {
        let mut state = mmap.get()?.state();
        state.require_changeable()?;
        require(access_mask & !ACCESS == 0 && access_mask & PCI != PCI, INVALID)?;
        state.access = access_mask;
        Ok(())
    }
    /// A descriptor by which the card's DPU reaches the memory. The program frees it.
    fn doca_mmap_export(
        mmap: Handle<Map>,
        dev: Handle<Dev>,
        export_desc: Out<*mut c_void>,
        export_desc_len: Out<usize>,
    ) {
        export_desc.check()?;
        export_desc_len.check()?;
        let mut state = mmap.get()?.state();
        require(!state.exported, c::DOCA_ERROR_NOT_PERMITTED)?;
        let (dev, memory) = state.export(&dev, PCI)?;
        memory.exported(&dev, true, |bytes| {
            // SAFETY: allocates.
            let copy = unsafe { libc::malloc(bytes.len()) };
            require(!copy.is_null(), c::DOCA_ERROR_NO_MEMORY)?;
            // SAFETY: as many bytes were allocated.
            unsafe { copy.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            export_desc_len.put(bytes.len())?;
            export_desc.put(copy)
        })?;
        state.exported = true;
        Ok(())
    }
    /// A descriptor by which the card's DPU reaches the memory, valid until the map is stopped.
    fn doca_mmap_export_dpu(
        mmap: Handle<Map>,
        dev: Handle<Dev>,
        export_desc: Out<*const c_void>,
        export_desc_len: Out<usize>,
    ) {
        lend(mmap, dev, export_desc, export_desc_len, PCI)
    }
    /// A descriptor by which RDMA would reach the memory, valid until the map is stopped.
    fn doca_mmap_export_rdma(
        mmap: Handle<Map>,
        dev: Handle<Dev>,
        export_desc: Out<*const c_void>,
        export_desc_len: Out<usize>,
    ) {
        let rights = c::DOCA_ACCESS_FLAG_RDMA_READ | c::DOCA_ACCESS_FLAG_RDMA_WRITE;
        lend(mmap, dev, export_desc, export_desc_len, rights | c::DOCA_ACCESS_FLAG_RDMA_ATOMIC)
    }
    /// Imports the map of a descriptor. It is started.
    fn doca_mmap_create_from_export(
        user_data: In<c::doca_data>,
        export_desc: In<u8>,
        export_desc_len: usize,
        dev: Handle<Dev>,
        mmap: Out<Handle<Map>>,
    ) {
        mmap.check()?;
        // SAFETY: C passes the descriptor's length beside it.
        let bytes = unsafe { export_desc.slice(export_desc_len) }?;
        let dev = dev.arc()?;
        let memory = Mmap::imported(bytes, Arc::clone(&dev))?;
        let (addr, len) = memory.memory()?;
        let chunk = Chunk { addr, len, free: (None, 0), memory: Some(Arc::new(memory)) };
        mmap.put(Map::give(State {
            started: true,
            was_started: true,
            imported: true,
            user_data: user_data.get().unwrap_or(NO_DATA),
            devs: vec![dev],
            chunks: vec![chunk],
            ..State::new()
        }))
    }
    fn doca_mmap_get_user_data(mmap: Handle<Map>, user_data: Out<c::doca_data>) {
        user_data.put(mmap.get()?.state().user_data)
    }
    fn doca_mmap_get_max_num_chunks(mmap: Handle<Map>, count: Out<u32>) {
        count.put(mmap.get()?.state().max_chunks)
    }
    fn doca_mmap_set_max_num_chunks(mmap: Handle<Map>, max_num_chunks: u32) {
        let mut state = mmap.get()?.state();
        state.require_new()?;
        require(max_num_chunks > 0, INVALID)?;
        state.max_chunks = max_num_chunks;
        Ok(())
    }
    fn doca_mmap_get_max_num_devices(mmap: Handle<Map>, count: Out<u32>) {
        count.put(mmap.get()?.state().max_devs)
    }
    fn doca_mmap_set_max_num_devices(mmap: Handle<Map>, max_num_devices: u32) {
        let mut state = mmap.get()?.state();
        state.require_new()?;
        require(max_num_devices > 0 && state.devs.len() <= max_num_devices as usize, INVALID)?;
        state.max_devs = max_num_devices;
        Ok(())
    }
    fn doca_mmap_get_num_bufs(mmap: Handle<Map>, count: Out<u32>) { count.put(mmap.get()?.state().buffers()) }
    fn doca_mmap_get_exported(mmap: Handle<Map>, exported: Out<u8>) {
        exported.put(mmap.get()?.state().exported.into())
    }
    fn doca_mmap_get_from_export(mmap: Handle<Map>, from_export: Out<u8>) {
        from_export.put(mmap.get()?.state().imported.into())
    }
}

/// Exports a map, which keeps the descriptor.
fn lend(
    mmap: Handle<Map>,
    dev: Handle<Dev>,
    desc: Out<*const c_void>,
    len: Out<usize>,
    rights: u32,
) -> Outcome {
    desc.check()?;
    len.check()?;
    let mut state = mmap.get()?.state();
    let (dev, memory) = state.export(&dev, rights)?;
    memory.exported(&dev, rights == PCI, |bytes| {
        len.put(bytes.len())?;
        desc.put(bytes.as_ptr().cast())
    })?;
    state.exported = true;
    Ok(())
}
