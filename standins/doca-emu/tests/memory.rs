//! Memory maps: their states, rights and exports.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use rig::{Memory, Rig, as_number, c, number};

const READ_WRITE: u32 = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;

fn new_map() -> *mut c::doca_mmap {
    get!(doca_mmap_create())
}

#[test]
fn a_map_is_set_up_started_and_frozen() {
    rig::configure("");
    let (dev, other) = (rig::open("03:00.0"), rig::open("03:00.1"));
    let memory = Memory::new(4096);
    let mmap = new_map();
    let (mut addr, mut len) = (ptr::null_mut(), 0);
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_get_memrange(mmap, &mut addr, &mut len));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_start(mmap));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_memrange(mmap, ptr::null_mut(), 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_memrange(mmap, memory.at(0), 0));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_memrange(mmap, memory.at(0), usize::MAX));
    ok!(doca_mmap_set_memrange(mmap, memory.at(0), 4096));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_memrange(mmap, memory.at(0), 4096));
    ok!(doca_mmap_get_memrange(mmap, &mut addr, &mut len));
    assert_eq!((addr, len), (memory.at(0), 4096));

    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_start(mmap));
    ok!(doca_mmap_add_dev(mmap, dev));
    fails!(DOCA_ERROR_ALREADY_EXIST, doca_mmap_add_dev(mmap, dev));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_max_num_devices(mmap, 0));
    ok!(doca_mmap_set_max_num_devices(mmap, 1));
    assert_eq!(get!(doca_mmap_get_max_num_devices(mmap)), 1);
    fails!(DOCA_ERROR_NO_MEMORY, doca_mmap_add_dev(mmap, other));
    fails!(DOCA_ERROR_NOT_FOUND, doca_mmap_rm_dev(mmap, other));
    ok!(doca_mmap_rm_dev(mmap, dev));
    ok!(doca_mmap_add_dev(mmap, dev));
    fails!(DOCA_ERROR_IN_USE, doca_dev_close(dev));

    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_permissions(mmap, 128));
    let relaxed = c::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING;
    ok!(doca_mmap_set_permissions(mmap, READ_WRITE | relaxed));
    for pci in [c::DOCA_ACCESS_FLAG_PCI_READ_ONLY, c::DOCA_ACCESS_FLAG_PCI_READ_WRITE] {
        fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_permissions(mmap, READ_WRITE | pci | relaxed));
    }
    let both = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_permissions(mmap, both));
    ok!(doca_mmap_set_user_data(mmap, number(77)));
    assert_eq!(as_number(get!(doca_mmap_get_user_data(mmap))), 77);

    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_stop(mmap));
    ok!(doca_mmap_start(mmap));
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_start(mmap));
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_set_memrange(mmap, memory.at(0), 4096));
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_set_permissions(mmap, 0));
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_set_user_data(mmap, number(1)));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_enable_thread_safety(mmap));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_add_dev(mmap, other));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_rm_dev(mmap, dev));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_max_num_devices(mmap, 5));

    ok!(doca_mmap_stop(mmap));
    ok!(doca_mmap_set_permissions(mmap, READ_WRITE));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_max_num_devices(mmap, 5));
    ok!(doca_mmap_start(mmap));
    ok!(doca_mmap_destroy(mmap));
    ok!(doca_dev_close(dev));
    ok!(doca_dev_close(other));
}

thread_local! {
    static FREED: Cell<(usize, usize, usize)> = const { Cell::new((0, 0, 0)) };
}

unsafe extern "C" fn on_free(addr: *mut c_void, len: usize, cookie: *mut c_void) {
    FREED.set((addr.addr(), len, cookie.addr()));
}

#[test]
fn the_free_function_is_called_for_a_map_that_was_started_with_it() {
    rig::configure("");
    let dev = rig::open("03:00.0");
    let memory = Memory::new(4096);
    let cookie = ptr::without_provenance_mut(42);
    for (start, change, freed) in [(false, false, false), (true, false, true), (true, true, false)] {
        FREED.set((0, 0, 0));
        let mmap = new_map();
        ok!(doca_mmap_set_memrange(mmap, memory.at(0), 4096));
        ok!(doca_mmap_add_dev(mmap, dev));
        fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_free_cb(mmap, None, cookie));
        ok!(doca_mmap_set_free_cb(mmap, Some(on_free), cookie));
        if start {
            ok!(doca_mmap_start(mmap));
            fails!(DOCA_ERROR_BAD_STATE, doca_mmap_set_free_cb(mmap, Some(on_free), cookie));
        }
        if change {
            ok!(doca_mmap_stop(mmap));
            ok!(doca_mmap_set_free_cb(mmap, Some(on_free), cookie));
        }
        ok!(doca_mmap_destroy(mmap));
        let wanted = if freed { (memory.ptr.addr(), 4096, 42) } else { (0, 0, 0) };
        assert_eq!(FREED.get(), wanted);
    }
    ok!(doca_dev_close(dev));
}

#[test]
fn maps_with_buffers_cannot_be_stopped_unless_they_do_not_count_them() {
    rig::configure("");
    let dev = rig::open("03:00.0");
    let memory = Memory::new(4096);
    let inventory = rig::inventory(4);
    for thread_safe in [false, true] {
        let mmap = new_map();
        ok!(doca_mmap_set_memrange(mmap, memory.at(0), 4096));
        ok!(doca_mmap_add_dev(mmap, dev));
        let at = memory.at(0);
        let mut buf = ptr::null_mut();
        fails!(
            DOCA_ERROR_BAD_STATE,
            doca_buf_inventory_buf_get_by_args(inventory, mmap, at, 1, at, 1, &mut buf)
        );
        if thread_safe {
            ok!(doca_mmap_enable_thread_safety(mmap));
        }
        ok!(doca_mmap_start(mmap));
        let buf = get!(doca_buf_inventory_buf_get_by_args(inventory, mmap, at, 1, at, 1));
        assert_eq!(get!(doca_mmap_get_num_bufs(mmap)), u32::from(!thread_safe));
        if thread_safe {
            ok!(doca_mmap_stop(mmap));
            let mut copy = ptr::null_mut();
            fails!(DOCA_ERROR_BAD_STATE, doca_buf_inventory_buf_dup(inventory, buf, &mut copy));
            ok!(doca_mmap_destroy(mmap));
            ok!(doca_buf_dec_refcount(buf, ptr::null_mut()));
        } else {
            fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_stop(mmap));
            fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_destroy(mmap));
            ok!(doca_buf_dec_refcount(buf, ptr::null_mut()));
            assert_eq!(get!(doca_mmap_get_num_bufs(mmap)), 0);
            ok!(doca_mmap_destroy(mmap));
        }
    }
    ok!(doca_buf_inventory_destroy(inventory));
    ok!(doca_dev_close(dev));
}

#[test]
fn locked_memory_is_limited_if_the_configuration_says_so() {
    rig::configure("memlock = \"8K\"");
    let dev = rig::open("03:00.0");
    let memory = Memory::new(16 << 10);
    let make = |len| {
        let mmap = new_map();
        ok!(doca_mmap_set_memrange(mmap, memory.at(0), len));
        ok!(doca_mmap_add_dev(mmap, dev));
        mmap
    };
    let (first, second) = (make(5000), make(5000));
    ok!(doca_mmap_start(first));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_start(second));
    ok!(doca_mmap_stop(first));
    ok!(doca_mmap_start(second));
    ok!(doca_mmap_destroy(first));
    ok!(doca_mmap_destroy(second));
    let whole = make(8192);
    ok!(doca_mmap_start(whole));
    ok!(doca_mmap_destroy(whole));
    ok!(doca_dev_close(dev));
}

#[test]
fn memory_must_be_there() {
    rig::configure("");
    let dev = rig::open("03:00.0");
    let start = |addr: *mut c_void, len, access| {
        let mmap = new_map();
        ok!(doca_mmap_set_memrange(mmap, addr, len));
        ok!(doca_mmap_set_permissions(mmap, access));
        ok!(doca_mmap_add_dev(mmap, dev));
        let code = code!(doca_mmap_start(mmap));
        ok!(doca_mmap_destroy(mmap));
        rig::name(code)
    };
    assert_eq!(start(ptr::without_provenance_mut(8), 8, READ_WRITE), "DOCA_ERROR_INVALID_VALUE");
    static CONSTANT: [u8; 64] = [7; 64];
    let constant = CONSTANT.as_ptr().cast_mut().cast();
    assert_eq!(start(constant, 64, READ_WRITE), "DOCA_ERROR_NOT_PERMITTED");
    assert_eq!(start(constant, 64, c::DOCA_ACCESS_FLAG_LOCAL_READ_ONLY), "DOCA_SUCCESS");
    ok!(doca_dev_close(dev));
}

#[test]
fn accelerator_and_gpu_calls_are_not_supported() {
    let rig = Rig::new("", 1);
    let mmap = new_map();
    let dpa = ptr::without_provenance_mut::<c::doca_dpa>(8);
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_set_dpa_memrange(mmap, dpa, 0, 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_dpa_memrange(mmap, ptr::null_mut(), 0, 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_dpa_memrange(mmap, dpa, u64::MAX, 1));
    fails!(DOCA_ERROR_BAD_STATE, doca_mmap_set_dpa_memrange(rig.src_map, dpa, 0, 1));
    let mut handle = 0;
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_dev_get_dpa_handle(rig.src_map, rig.dev, &mut handle));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_dev_get_dpa_handle(mmap, rig.dev, &mut handle));
    let other = rig::open("03:00.1");
    fails!(DOCA_ERROR_NOT_FOUND, doca_mmap_dev_get_dpa_handle(rig.src_map, other, &mut handle));
    ok!(doca_dev_close(other));
    let memory = Memory::new(4096);
    ok!(doca_mmap_set_memrange(mmap, memory.at(0), 4096));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_dpa_memrange(mmap, dpa, 0, 1));
    // No context of the stand-in has its data path on a GPU.
    let mut gpu = ptr::null_mut();
    fails!(DOCA_ERROR_BAD_STATE, doca_dma_get_gpu_handle(rig.dma, &mut gpu));
    let gpu = ptr::without_provenance_mut::<c::doca_gpu>(8);
    fails!(DOCA_ERROR_BAD_STATE, doca_ctx_set_datapath_on_gpu(rig.ctx, gpu));
    ok!(doca_ctx_stop(rig.ctx));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_set_datapath_on_gpu(rig.ctx, gpu));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_set_datapath_on_dpa(rig.ctx, dpa));
    ok!(doca_mmap_destroy(mmap));
    rig.close();
}

#[test]
fn a_memfd_stands_in_for_a_dma_buffer() {
    use std::os::fd::AsRawFd;
    let rig = Rig::new("", 2);
    let fd = rustix::fs::memfd_create("buffer", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 12_288).unwrap();
    rustix::io::pwrite(&fd, &[9; 100], 5000).unwrap();
    // The address only names the memory. The file descriptor determines its bytes.
    let addr = ptr::without_provenance_mut::<c_void>(0x7000_0000_0000);
    let mmap = new_map();
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_dmabuf_memrange(mmap, -1, addr, 0, 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_dmabuf_memrange(mmap, 9999, addr, 0, 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_dmabuf_memrange(mmap, fd.as_raw_fd(), addr, 4096, 8193));
    fails!(
        DOCA_ERROR_INVALID_VALUE,
        doca_mmap_set_dmabuf_memrange(mmap, fd.as_raw_fd(), addr, usize::MAX, 8)
    );
    ok!(doca_mmap_set_dmabuf_memrange(mmap, fd.as_raw_fd(), addr, 5000, 7000));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_dmabuf_memrange(mmap, fd.as_raw_fd(), addr, 0, 8));
    ok!(doca_mmap_set_permissions(mmap, READ_WRITE));
    ok!(doca_mmap_add_dev(mmap, rig.dev));
    ok!(doca_mmap_start(mmap));
    let src = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, mmap, addr, 100, addr, 100));
    let task = rig.task(src, rig.to(0, 100), 1);
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.dst.read(0, 100), [9; 100]);
    let end = addr.wrapping_byte_add(6990);
    let dst = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, mmap, end, 10, end, 0));
    rig.src.write(0, &[4; 10]);
    let back = rig.task(rig.from(0, 10), dst, 2);
    ok!(doca_task_submit(back));
    rig.until(2);
    let mut bytes = [0; 12];
    rustix::io::pread(&fd, &mut bytes, 11_989).unwrap();
    assert_eq!(bytes, [0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0]);
    rig.free(task);
    rig.free(back);
    ok!(doca_mmap_destroy(mmap));
    rig.close();
}

fn descriptor(mmap: *mut c::doca_mmap, dev: *mut c::doca_dev, rdma: bool) -> Vec<u8> {
    let (mut desc, mut len) = (ptr::null(), 0);
    if rdma {
        ok!(doca_mmap_export_rdma(mmap, dev, &mut desc, &mut len));
    } else {
        ok!(doca_mmap_export_pci(mmap, dev, &mut desc, &mut len));
    }
    // SAFETY: the call returned the descriptor's address and length, and the map stays exported.
    unsafe { std::slice::from_raw_parts(desc.cast::<u8>(), len) }.to_vec()
}

#[test]
fn exports_need_rights_and_a_device_that_can() {
    let cards = "card = [{ function = [\
        { pci = \"0000:03:00.0\", side = \"dpu\" }, \
        { pci = \"0000:3b:00.0\", side = \"host\" }, \
        { pci = \"0000:3b:00.1\", side = \"host\", export = false, import = false }] }, \
        { serial = \"OTHER\", function = [{ pci = \"0000:c3:00.0\", side = \"dpu\" }] }]";
    rig::configure(cards);
    let [dpu, host, mute, other] = ["03:00.0", "3b:00.0", "3b:00.1", "c3:00.0"].map(rig::open);
    let cap = |dev: *mut c::doca_dev| {
        let info = code!(doca_dev_as_devinfo(dev));
        let export: u8 = get!(doca_mmap_cap_is_export_pci_supported(info));
        let import: u8 = get!(doca_mmap_cap_is_create_from_export_pci_supported(info));
        (export, import)
    };
    assert_eq!([dpu, host, mute].map(cap), [(1, 1), (1, 1), (0, 0)]);
    let memory = Memory::new(4096);
    let (mut desc, mut len) = (ptr::null(), 0);
    let plain = rig::map(host, &memory, READ_WRITE);
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(plain, host, &mut desc, &mut len));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_rdma(plain, host, &mut desc, &mut len));
    ok!(doca_mmap_stop(plain));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(plain, host, &mut desc, &mut len));
    let access = c::DOCA_ACCESS_FLAG_PCI_READ_WRITE | c::DOCA_ACCESS_FLAG_RDMA_READ | READ_WRITE;
    ok!(doca_mmap_set_permissions(plain, access));
    ok!(doca_mmap_add_dev(plain, mute));
    ok!(doca_mmap_start(plain));
    fails!(DOCA_ERROR_NOT_FOUND, doca_mmap_export_pci(plain, dpu, &mut desc, &mut len));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_mmap_export_pci(plain, mute, &mut desc, &mut len));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_mmap_export_pci(plain, host, ptr::null_mut(), &mut len));
    assert_eq!(get!(doca_mmap_get_exported(plain)), 0);

    let good = descriptor(plain, host, false);
    // An exported map cannot be started again.
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_start(plain));
    let mut mmap = ptr::null_mut();
    let bytes = |desc: &[u8]| desc.as_ptr().cast::<c_void>();
    fails!(
        DOCA_ERROR_NOT_SUPPORTED,
        doca_mmap_create_from_export(ptr::null(), bytes(&good), good.len(), mute, &mut mmap)
    );
    fails!(
        DOCA_ERROR_INVALID_VALUE,
        doca_mmap_create_from_export(ptr::null(), bytes(&good), good.len(), other, &mut mmap)
    );
    for at in 0..good.len() {
        let mut altered = good.clone();
        altered[at] ^= 0x10;
        let len = good.len();
        fails!(
            DOCA_ERROR_INVALID_VALUE,
            doca_mmap_create_from_export(ptr::null(), bytes(&altered), len, dpu, &mut mmap)
        );
        fails!(
            DOCA_ERROR_INVALID_VALUE,
            doca_mmap_create_from_export(ptr::null(), bytes(&good), at, dpu, &mut mmap)
        );
    }
    assert!(mmap.is_null());

    let user = number(5);
    ok!(doca_mmap_create_from_export(&user, bytes(&good), good.len(), dpu, &mut mmap));
    assert_eq!(as_number(get!(doca_mmap_get_user_data(mmap))), 5);
    assert_eq!((get!(doca_mmap_get_from_export(mmap)), get!(doca_mmap_get_from_export(plain))), (1_u8, 0_u8));
    assert_eq!((get!(doca_mmap_get_exported(mmap)), get!(doca_mmap_get_exported(plain))), (0_u8, 1_u8));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_permissions(mmap, READ_WRITE));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_memrange(mmap, memory.at(0), 8));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_add_dev(mmap, other));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_rm_dev(mmap, dpu));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_start(mmap));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_stop(mmap));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_enable_thread_safety(mmap));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(mmap, dpu, &mut desc, &mut len));
    ok!(doca_mmap_destroy(mmap));

    // A map that was exported over a network can be imported, but DMA cannot access it.
    let rdma = descriptor(plain, host, true);
    ok!(doca_mmap_create_from_export(ptr::null(), bytes(&rdma), rdma.len(), dpu, &mut mmap));
    let rig = Rig::on(dpu, 1);
    let at = memory.at(0);
    let src = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, mmap, at, 8, at, 8));
    let task = rig.task(src, rig.to(0, 8), 1);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    rig.free(task);
    ok!(doca_mmap_destroy(mmap));
    ok!(doca_mmap_destroy(plain));
    rig.close();
    [host, mute, other].into_iter().for_each(|dev| ok!(doca_dev_close(dev)));
}
