//! The functions of `doca_mmap.h`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::dmabuf::DmaBuf;
use super::export::Way;
use super::{ACCESS, Free, Mmap, PCI, Setup};
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, In, Out, Outcome, answer, c, require};

/// Makes a map of nothing yet.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_create(mmap: Out<Handle<Mmap>>) -> Code {
    answer(|| {
        mmap.check()?;
        mmap.put(Handle::give_arc(Arc::new(Mmap::new(Setup::new()))))
    })
}

/// Stops and destroys a map that no buffer is in, and calls its free function.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_destroy(mmap: Handle<Mmap>) -> Code {
    answer(|| Mmap::destroy(mmap))
}

/// Registers the memory with the devices.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_start(mmap: Handle<Mmap>) -> Code {
    answer(|| mmap.get()?.start())
}

/// Takes the memory away from the devices, and from whoever imported it.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_stop(mmap: Handle<Mmap>) -> Code {
    answer(|| mmap.get()?.stop())
}

/// Adds a device, which the memory will be registered with.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_add_dev(mmap: Handle<Mmap>, dev: Handle<Dev>) -> Code {
    answer(|| mmap.get()?.setup().add_dev(dev.arc()?))
}

/// Removes a device.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_rm_dev(mmap: Handle<Mmap>, dev: Handle<Dev>) -> Code {
    answer(|| mmap.get()?.setup().rm_dev(dev.get()?))
}

fn export(
    mmap: &Handle<Mmap>,
    dev: &Handle<Dev>,
    desc: &Out<*const c_void>,
    len: &Out<usize>,
    way: Way,
) -> Outcome {
    desc.check()?;
    len.check()?;
    let (mmap, dev) = (mmap.get()?, dev.get()?);
    let mut setup = mmap.setup();
    let bytes = setup.export(dev, way)?;
    len.put(bytes.len())?;
    desc.put(bytes.as_ptr().cast())
}

/// A descriptor by which the card's DPU reaches the memory, valid until the map is stopped.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_export_pci(
    mmap: Handle<Mmap>,
    dev: Handle<Dev>,
    export_desc: Out<*const c_void>,
    export_desc_len: Out<usize>,
) -> Code {
    answer(|| export(&mmap, &dev, &export_desc, &export_desc_len, Way::Pci))
}

/// A descriptor by which RDMA would reach the memory, valid until the map is stopped.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_export_rdma(
    mmap: Handle<Mmap>,
    dev: Handle<Dev>,
    export_desc: Out<*const c_void>,
    export_desc_len: Out<usize>,
) -> Code {
    answer(|| export(&mmap, &dev, &export_desc, &export_desc_len, Way::Rdma))
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_dev_get_dpa_handle(mmap: Handle<Mmap>, dev: Handle<Dev>, handle: Out<u32>) -> Code {
    answer(|| {
        mmap.get()?;
        dev.get()?;
        handle.check()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// Makes the started map that a descriptor stands for.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_create_from_export(
    user_data: In<c::doca_data>,
    export_desc: In<u8>,
    export_desc_len: usize,
    dev: Handle<Dev>,
    mmap: Out<Handle<Mmap>>,
) -> Code {
    answer(|| {
        mmap.check()?;
        let bytes = export_desc.slice(export_desc_len)?;
        let user_data = user_data.get().map_or(0, as_number);
        mmap.put(Handle::give_arc(Arc::new(Mmap::import(bytes, dev.arc()?, user_data)?)))
    })
}

fn as_number(data: c::doca_data) -> u64 {
    // SAFETY: all bits of either field are a number.
    unsafe { data.u64_ }
}

/// Sets the memory that the map is of, once.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_memrange(mmap: Handle<Mmap>, addr: *mut c_void, len: usize) -> Code {
    answer(|| mmap.get()?.setup().set_range(addr, len, None))
}

/// Sets the memory that the map is of, once: of a DMA buffer, or of a memfd.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_dmabuf_memrange(
    mmap: Handle<Mmap>,
    dmabuf_fd: c_int,
    addr: *mut c_void,
    dmabuf_offset: usize,
    len: usize,
) -> Code {
    answer(|| {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        setup.set_range(addr, len, Some(DmaBuf::new(dmabuf_fd, dmabuf_offset, len)?))
    })
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_dpa_memrange(
    mmap: Handle<Mmap>,
    dpa: *const c::doca_dpa,
    _dpa_addr: u64,
    len: usize,
) -> Code {
    answer(|| {
        mmap.get()?.setup().require_settable()?;
        require(!dpa.is_null() && len > 0, INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// The memory that the map is of.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_memrange(mmap: Handle<Mmap>, addr: Out<*mut c_void>, len: Out<usize>) -> Code {
    answer(|| {
        addr.check()?;
        len.check()?;
        let setup = mmap.get()?.setup();
        let range = setup.range.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        len.put(range.len)?;
        addr.put(std::ptr::with_exposed_provenance_mut(range.addr))
    })
}

/// Sets the function that frees the memory when the map, having been started, is destroyed.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_free_cb(
    mmap: Handle<Mmap>,
    free_cb: c::doca_mmap_memrange_free_cb_t,
    opaque: *mut c_void,
) -> Code {
    answer(|| {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        let call = free_cb.ok_or(INVALID)?;
        setup.free = Some(Free { call, cookie: opaque.expose_provenance(), started: false });
        Ok(())
    })
}

/// The value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_user_data(mmap: Handle<Mmap>, user_data: Out<c::doca_data>) -> Code {
    answer(|| user_data.put(c::doca_data { u64_: mmap.get()?.setup().user_data }))
}

/// Sets a value for the program's own use.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_user_data(mmap: Handle<Mmap>, user_data: c::doca_data) -> Code {
    answer(|| {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        setup.user_data = as_number(user_data);
        Ok(())
    })
}

/// How many devices the map can have.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_max_num_devices(mmap: Handle<Mmap>, max_num_devices: Out<u32>) -> Code {
    answer(|| max_num_devices.put(mmap.get()?.setup().max_devs))
}

/// Sets how many devices the map can have, before it is started for the first time.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_max_num_devices(mmap: Handle<Mmap>, max_num_devices: u32) -> Code {
    answer(|| {
        let mut setup = mmap.get()?.setup();
        require(!setup.was_started, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(max_num_devices > 0 && setup.devs.len() <= max_num_devices as usize, INVALID)?;
        setup.max_devs = max_num_devices;
        Ok(())
    })
}

/// How many buffers are in the map; 0 if it does not count them.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_num_bufs(mmap: Handle<Mmap>, num_bufs: Out<u32>) -> Code {
    answer(|| num_bufs.put(mmap.get()?.bufs.load(Ordering::Relaxed)))
}

/// Whether the map is exported.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_exported(mmap: Handle<Mmap>, exported: Out<u8>) -> Code {
    answer(|| exported.put((!mmap.get()?.setup().exports.is_empty()).into()))
}

/// Whether the map is imported.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_get_from_export(mmap: Handle<Mmap>, from_export: Out<u8>) -> Code {
    answer(|| from_export.put(mmap.get()?.setup().imported.is_some().into()))
}

/// Sets what may be done with the memory.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_set_permissions(mmap: Handle<Mmap>, access_mask: u32) -> Code {
    answer(|| {
        let mut setup = mmap.get()?.setup();
        setup.require_settable()?;
        let relaxed_pci =
            access_mask & c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING != 0 && access_mask & PCI != 0;
        // One or the other.
        let both_pci = access_mask & PCI == PCI;
        require(access_mask & !ACCESS == 0 && !relaxed_pci && !both_pci, INVALID)?;
        setup.access = access_mask;
        Ok(())
    })
}

/// Whether a device can export memory over PCI.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_cap_is_export_pci_supported(devinfo: Handle<Info>, mmap_export: Out<u8>) -> Code {
    answer(|| mmap_export.put(devinfo.get()?.function().export.into()))
}

/// Whether a device can import memory over PCI.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_cap_is_create_from_export_pci_supported(
    devinfo: Handle<Info>,
    from_export: Out<u8>,
) -> Code {
    answer(|| from_export.put(devinfo.get()?.function().import.into()))
}

/// Lets several threads make and release buffers in the map, which then does not count them.
#[unsafe(no_mangle)]
extern "C" fn doca_mmap_enable_thread_safety(mmap: Handle<Mmap>) -> Code {
    answer(|| {
        let mmap = mmap.get()?;
        mmap.setup().require_settable()?;
        mmap.thread_safe.store(true, Ordering::Relaxed);
        Ok(())
    })
}
