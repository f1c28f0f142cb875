//! The functions of `doca_mmap.h`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::dmabuf::DmaBuf;
use super::{ACCESS, Free, Mmap, PCI, Setup};
use crate::c_abi::{Handle, INVALID, In, Out, Outcome, c, c_calls, getters, require};
use crate::descriptor::Kind;
use crate::dev::Dev;

fn export(
    mmap: &Handle<Mmap>,
    dev: &Handle<Dev>,
    desc: &Out<*const c_void>,
    len: &Out<usize>,
    kind: Kind,
) -> Outcome {
    desc.check()?;
    len.check()?;
    let (mmap, dev) = (mmap.get()?, dev.get()?);
    let mut setup = mmap.setup();
    let bytes = setup.export(dev, kind)?;
    len.put(bytes.len())?;
    desc.put(bytes.as_ptr().cast())
}

pub(super) fn as_number(data: c::doca_data) -> u64 {
    // SAFETY: both fields of the union have 8 bytes, and any bytes are a valid number.
    unsafe { data.u64_ }
}

getters! {
    doca_mmap_get_user_data(mmap: Mmap) -> c::doca_data { c::doca_data { u64_: mmap.setup().user_data } }
    doca_mmap_get_max_num_devices(mmap: Mmap) -> u32 { mmap.setup().max_devs }
    /// Writes the number of the map's buffers. Writes 0 if the map does not count its buffers.
    doca_mmap_get_num_bufs(mmap: Mmap) -> u32 { mmap.setup().bufs.load(Ordering::Relaxed) }
    doca_mmap_get_exported(mmap: Mmap) -> u8 { (!mmap.setup().exports.is_empty()).into() }
    doca_mmap_get_from_export(mmap: Mmap) -> u8 { mmap.setup().imported.into() }
}

#[cfg(not(workq))]
c_calls! {
    fn doca_mmap_create(mmap: Out<Handle<Mmap>>) { mmap.make(|| Ok(Mmap::give(Setup::new()))) }
}

c_calls! {
    /// Stops and destroys a map that has no buffers, and calls its free function.
    fn doca_mmap_destroy(mmap: Handle<Mmap>) { Mmap::destroy(mmap) }
    /// Starts a map: registers its memory with its devices.
    fn doca_mmap_start(mmap: Handle<Mmap>) { mmap.get()?.setup().start() }
    /// Stops a map: unregisters its memory, and revokes its exports.
    fn doca_mmap_stop(mmap: Handle<Mmap>) { mmap.get()?.setup().stop() }
    fn doca_mmap_add_dev
        | doca_mmap_dev_add(mmap: Handle<Mmap>, dev: Handle<Dev>) { mmap.get()?.setup().add_dev(dev.arc()?) }
    fn doca_mmap_rm_dev
        | doca_mmap_dev_rm(mmap: Handle<Mmap>, dev: Handle<Dev>) { mmap.get()?.setup().rm_dev(dev.get()?) }
    /// Exports the memory to the card's other side. The descriptor is valid until the map is stopped.
    fn doca_mmap_export_pci | doca_mmap_export_dpu(
        mmap: Handle<Mmap>,
        dev: Handle<Dev>,
        export_desc: Out<*const c_void>,
        export_desc_len: Out<usize>,
    ) {
        export(&mmap, &dev, &export_desc, &export_desc_len, Kind::Pci)
    }
    /// Makes a descriptor for RDMA, which is valid until the map is stopped.
    fn doca_mmap_export_rdma(
        mmap: Handle<Mmap>,
        dev: Handle<Dev>,
        export_desc: Out<*const c_void>,
        export_desc_len: Out<usize>,
    ) {
        export(&mmap, &dev, &export_desc, &export_desc_len, Kind::Rdma)
    }
    /// Checks that the map is started and has the device, and then returns `NOT_SUPPORTED`, because the
    /// stand-in has no data path accelerator.
    fn doca_mmap_dev_get_dpa_handle(mmap: Handle<Mmap>, dev: Handle<Dev>, handle: Out<u32>) {
        handle.check()?;
        let (mmap, dev) = (mmap.get()?, dev.get()?);
        let setup = mmap.setup();
        require(setup.started, c::DOCA_ERROR_NOT_PERMITTED)?;
        setup.place(dev)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
    /// Writes the memory key of a started map on one of its devices, in the byte order of the CPU. The
    /// stand-in has no queues that use it.
    fn doca_mmap_get_mkey(mmap: Handle<Mmap>, dev: Handle<Dev>, mkey: Out<u32>) {
        mkey.check()?;
        let (mmap, dev) = (mmap.get()?, dev.get()?);
        mkey.put(mmap.setup().mkey(dev)?)
    }
    /// Makes a started map of the memory that a descriptor names.
    fn doca_mmap_create_from_export(
        user_data: In<c::doca_data>,
        export_desc: In<u8>,
        export_desc_len: usize,
        dev: Handle<Dev>,
        mmap: Out<Handle<Mmap>>,
    ) {
        mmap.check()?;
        // SAFETY: C passes the descriptor's length beside it, and does not change the descriptor during the
        // call.
        let bytes = unsafe { export_desc.slice(export_desc_len) }?;
        let user_data = user_data.get().map_or(0, as_number);
        mmap.put(Mmap::import(bytes, dev.arc()?, user_data)?)
    }
    /// Sets the map's memory. This is possible only once.
    fn doca_mmap_set_memrange(mmap: Handle<Mmap>, addr: *mut c_void, len: usize) {
        let mut setup = mmap.get()?.setup();
        setup.require_no_range()?;
        // SAFETY: the program promises that the memory exists from the start of the map until its stop.
        unsafe { setup.add_memory(addr, len, None, None) }
    }
    /// Sets the map's memory to that of a dma-buf or a memfd. This is possible only once.
    fn doca_mmap_set_dmabuf_memrange(
        mmap: Handle<Mmap>,
        dmabuf_fd: c_int,
        addr: *mut c_void,
        dmabuf_offset: usize,
        len: usize,
    ) {
        let mut setup = mmap.get()?.setup();
        setup.require_no_range()?;
        let dmabuf = DmaBuf::new(dmabuf_fd, dmabuf_offset, len)?;
        // SAFETY: the device accesses the bytes of the dma-buf. The address only names them, and is never
        // dereferenced.
        unsafe { setup.add_memory(addr, len, Some(dmabuf), None) }
    }
    /// Checks that the map has no memory yet, and then returns `NOT_SUPPORTED`, because the stand-in has
    /// no data path accelerator.
    fn doca_mmap_set_dpa_memrange(mmap: Handle<Mmap>, dpa: *const c::doca_dpa, dpa_addr: u64, len: usize) {
        mmap.get()?.setup().require_no_range()?;
        require(!dpa.is_null() && len > 0 && dpa_addr.checked_add(len as u64).is_some(), INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
    fn doca_mmap_get_memrange(mmap: Handle<Mmap>, addr: Out<*mut c_void>, len: Out<usize>) {
        addr.check()?;
        len.check()?;
        let setup = mmap.get()?.setup();
        let chunk = setup.chunks.first().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        len.put(chunk.len)?;
        addr.put(std::ptr::with_exposed_provenance_mut(chunk.addr))
    }
    /// Sets the function that frees the memory when the map is destroyed. The function is not called if the
    /// map was never started.
    fn doca_mmap_set_free_cb(
        mmap: Handle<Mmap>,
        free_cb: c::doca_mmap_memrange_free_cb_t,
        opaque: *mut c_void,
    ) {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        let call = free_cb.ok_or(INVALID)?;
        setup.free = Some(Free { call, cookie: opaque.expose_provenance(), started: false });
        Ok(())
    }
    /// Sets the maximum number of devices. Returns `NOT_PERMITTED` if the map was ever started.
    fn doca_mmap_set_max_num_devices(mmap: Handle<Mmap>, max_num_devices: u32) {
        let mut setup = mmap.get()?.setup();
        setup.require_new()?;
        require(max_num_devices > 0 && setup.devs.len() <= max_num_devices as usize, INVALID)?;
        setup.max_devs = max_num_devices;
        Ok(())
    }
    /// Sets the access rights.
    fn doca_mmap_set_permissions(mmap: Handle<Mmap>, access_mask: u32) {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        let relaxed_pci =
            access_mask & c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING != 0 && access_mask & PCI != 0;
        // Only one of the two rights over PCI may be set.
        let both_pci = access_mask & PCI == PCI;
        require(access_mask & !ACCESS == 0 && !relaxed_pci && !both_pci, INVALID)?;
        setup.access = access_mask;
        Ok(())
    }
    fn doca_mmap_set_user_data(mmap: Handle<Mmap>, user_data: c::doca_data) {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        setup.user_data = as_number(user_data);
        Ok(())
    }
    /// Allows several threads to use buffers of the map. The map then does not count its buffers.
    fn doca_mmap_enable_thread_safety(mmap: Handle<Mmap>) {
        let mut setup = mmap.get()?.setup();
        // On a started map, this call does not return BAD_STATE, unlike all other calls that configure a
        // map.
        setup.require_changeable()?;
        setup.thread_safe = true;
        Ok(())
    }
}
