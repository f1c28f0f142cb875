//! `doca_mmap.h` of DOCA 1.5 to 2.2: the calls that later versions lack, or have with other arguments.

use std::ffi::c_void;

use super::calls::as_number;
use super::{Free, Mmap, Setup};
use crate::c_abi::{Handle, INVALID, In, Out, c, c_calls, getters, require};
use crate::descriptor::Kind;
use crate::dev::Dev;

getters! {
    doca_mmap_get_max_num_chunks(mmap: Mmap) -> u32 { mmap.setup().max_chunks }
}

c_calls! {
    fn doca_mmap_create(user_data: In<c::doca_data>, mmap: Out<Handle<Mmap>>) {
        let user_data = user_data.get().map_or(0, as_number);
        mmap.make(|| Ok(Mmap::give(Setup { user_data, ..Setup::new() })))
    }
    /// Adds a chunk of memory to the map.
    fn doca_mmap_populate(
        mmap: Handle<Mmap>,
        addr: *mut c_void,
        len: usize,
        pg_sz: usize,
        free_cb: c::doca_mmap_memrange_free_cb_t,
        opaque: *mut c_void,
    ) {
        let mut setup = mmap.get()?.setup();
        require(pg_sz >= 4096 && pg_sz.is_power_of_two(), INVALID)?;
        setup.require_changeable()?;
        let free = free_cb.map(|call| Free { call, cookie: opaque.expose_provenance(), started: true });
        // SAFETY: the program promises that the memory exists until the map is destroyed.
        unsafe { setup.add_memory(addr, len, None, free) }?;
        if setup.devs.is_empty() {
            return Ok(());
        }
        // Register the chunk with the map's devices now, so that an error is returned here.
        let last = setup.chunks.len() - 1;
        setup.register(last).map(drop).inspect_err(|_| _ = setup.chunks.pop())
    }
    /// Exports the memory to the card's other side. The program frees the descriptor.
    fn doca_mmap_export(
        mmap: Handle<Mmap>,
        dev: Handle<Dev>,
        export_desc: Out<*mut c_void>,
        export_desc_len: Out<usize>,
    ) {
        export_desc.check()?;
        export_desc_len.check()?;
        let mut setup = mmap.get()?.setup();
        require(setup.exports.is_empty(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let bytes = setup.export(dev.get()?, Kind::Pci)?;
        // SAFETY: `malloc` accepts every size. A null result is checked below.
        let copy = unsafe { libc::malloc(bytes.len()) };
        require(!copy.is_null(), c::DOCA_ERROR_NO_MEMORY)?;
        // SAFETY: `copy` has `bytes.len()` bytes, and was allocated just now, so it does not overlap
        // `bytes`.
        unsafe { copy.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        export_desc_len.put(bytes.len())?;
        export_desc.put(copy)
    }
    fn doca_mmap_set_max_num_chunks(mmap: Handle<Mmap>, max_num_chunks: u32) {
        let mut setup = mmap.get()?.setup();
        setup.require_new()?;
        require(max_num_chunks > 0, INVALID)?;
        setup.max_chunks = max_num_chunks;
        Ok(())
    }
}
