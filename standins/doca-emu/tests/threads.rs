//! Several threads, each with progress engines and contexts of its own, on devices and a memory map that they
//! share.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::ptr;

use rig::{Memory, Seen, c, number, on_end};

const THREADS: usize = 4;
const LEN: usize = 512;

#[test]
fn each_thread_copies_its_own() {
    for config in ["", "profile = \"bluefield3\"\nclock = \"virtual\"\nfaults = \"fail:p=0.01\""] {
        rig::configure(config);
        let memory = Memory::new(2 * THREADS * LEN);
        let dev = rig::open("03:00.0");
        let mut mmap = ptr::null_mut();
        ok!(doca_mmap_create(&mut mmap));
        ok!(doca_mmap_set_memrange(mmap, memory.at(0), memory.len));
        ok!(doca_mmap_set_permissions(mmap, c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
        ok!(doca_mmap_add_dev(mmap, dev));
        ok!(doca_mmap_enable_thread_safety(mmap));
        ok!(doca_mmap_start(mmap));
        let (dev_at, map_at, base) =
            (dev.expose_provenance(), mmap.expose_provenance(), memory.ptr.expose_provenance());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || copy(thread, dev_at, map_at, base));
            }
        });
        ok!(doca_mmap_destroy(mmap));
        ok!(doca_dev_close(dev));
    }
}

fn copy(thread: usize, dev: usize, mmap: usize, base: usize) {
    let dev = ptr::with_exposed_provenance_mut::<c::doca_dev>(dev);
    let mmap = ptr::with_exposed_provenance_mut::<c::doca_mmap>(mmap);
    let at = |place: usize| ptr::with_exposed_provenance_mut::<u8>(base).wrapping_add(place * LEN);
    let (from, to) = (at(thread), at(THREADS + thread));
    let (pe, dma) = (get!(doca_pe_create()), get!(doca_dma_create(dev)));
    let ctx = code!(doca_dma_as_ctx(dma));
    let seen = Seen::default();
    ok!(doca_pe_connect_ctx(pe, ctx));
    ok!(doca_ctx_set_user_data(ctx, rig::pointer(&seen)));
    ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 1));
    let inventory = rig::inventory(2);
    let buf = |at: *mut u8, data: usize| {
        let at = at.cast();
        get!(doca_buf_inventory_buf_get_by_args(inventory, mmap, at, LEN, at, data))
    };
    let (src, dst) = (buf(from, LEN), buf(to, 0));
    let start = || {
        ok!(doca_ctx_start(ctx));
        let task = get!(doca_dma_task_memcpy_alloc_init(dma, src, dst, number(0)));
        code!(doca_dma_task_memcpy_as_task(task))
    };
    let mut task = start();
    for round in 0..500 {
        let byte = (round * 7 + thread) as u8;
        // SAFETY: only this thread uses these `LEN` bytes of the source, and its task is not in flight.
        unsafe { from.write_bytes(byte, LEN) };
        ok!(doca_buf_reset_data_len(dst));
        ok!(doca_task_submit(task));
        while seen.ended.borrow().is_empty() {
            code!(doca_pe_progress(pe));
        }
        if seen.take()[0].1 == "DOCA_SUCCESS" {
            // SAFETY: these are the `LEN` bytes of this thread's destination, and its copy has ended, so no
            // device writes them.
            let copied = unsafe { std::slice::from_raw_parts(to, LEN) };
            assert!(copied.iter().all(|got| *got == byte));
        } else {
            code!(doca_task_free(task));
            while code!(doca_pe_progress(pe)) == 1 {}
            task = start();
        }
    }
    code!(doca_task_free(task));
    ok!(doca_ctx_stop(ctx));
    ok!(doca_dma_destroy(dma));
    ok!(doca_pe_destroy(pe));
    [src, dst].into_iter().for_each(|buf| ok!(doca_buf_dec_refcount(buf, ptr::null_mut())));
    ok!(doca_buf_inventory_destroy(inventory));
}
