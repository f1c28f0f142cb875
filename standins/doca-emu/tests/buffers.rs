//! Inventories, buffers, pools and lists: their states and counts.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;

use rig::{Memory, Rig, as_number, c, number};

const READ_WRITE: u32 = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;

#[test]
fn buffers_are_windows_within_their_map() {
    let rig = Rig::new("", 1);
    let (inventory, mmap, memory) = (rig.inventory, rig.src_map, &rig.src);
    let mut buf = ptr::null_mut();
    for (addr, len, data, data_len) in [
        (memory.at(0), memory.len + 1, memory.at(0), 0),
        (memory.at(0).wrapping_byte_sub(1), 2, memory.at(0), 0),
        (memory.at(memory.len), 1, memory.at(memory.len), 0),
        (memory.at(64), 64, memory.at(63), 1),
        (memory.at(64), 64, memory.at(64), 65),
        (memory.at(64), 64, memory.at(100), 29),
        (memory.at(64), usize::MAX, memory.at(64), 0),
        (ptr::null_mut(), 1, memory.at(0), 0),
        (memory.at(0), 1, ptr::null_mut(), 0),
    ] {
        fails!(
            DOCA_ERROR_INVALID_VALUE,
            doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, data, data_len, &mut buf)
        );
    }
    let (at, data) = (memory.at(64), memory.at(70));
    let buf = get!(doca_buf_inventory_buf_get_by_args(inventory, mmap, at, 64, data, 10));
    assert_eq!((get!(doca_buf_get_head(buf)), get!(doca_buf_get_len(buf))), (at, 64));
    assert_eq!((get!(doca_buf_get_data(buf)), get!(doca_buf_get_data_len(buf))), (data, 10));
    ok!(doca_buf_set_data_len(buf, 20));
    assert_eq!(get!(doca_buf_get_data_len(buf)), 20);
    ok!(doca_buf_set_data(buf, memory.at(80), 5));
    assert_eq!((get!(doca_buf_get_data(buf)), get!(doca_buf_get_data_len(buf))), (memory.at(80), 5));
    let copy = get!(doca_buf_inventory_buf_dup(inventory, buf));
    ok!(doca_buf_reset_data_len(buf));
    assert_eq!((get!(doca_buf_get_data(copy)), get!(doca_buf_get_data_len(copy))), (memory.at(80), 5));
    assert_eq!(get!(doca_mmap_get_num_bufs(mmap)), 2);
    [buf, copy].into_iter().for_each(|buf| ok!(doca_buf_dec_refcount(buf, ptr::null_mut())));
    rig.close();
}

#[test]
fn references_are_counted_to_the_limits() {
    let rig = Rig::new("", 1);
    let buf = rig.from(0, 8);
    let mut before = 0;
    ok!(doca_buf_inc_refcount(buf, &mut before));
    assert_eq!((before, get!(doca_buf_get_refcount(buf))), (1, 2));
    for _ in 2..u16::MAX {
        ok!(doca_buf_inc_refcount(buf, ptr::null_mut()));
    }
    fails!(DOCA_ERROR_TOO_BIG, doca_buf_inc_refcount(buf, &mut before));
    assert_eq!(get!(doca_buf_get_refcount(buf)), u16::MAX);
    for _ in 1..u16::MAX {
        ok!(doca_buf_dec_refcount(buf, ptr::null_mut()));
    }
    ok!(doca_buf_dec_refcount(buf, &mut before));
    assert_eq!(before, 1);
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_dec_refcount(buf, &mut before));
    rig.close();
}

/// This runs on a thread's small stack, so nothing in it may recurse once per buffer.
#[test]
fn an_inventory_grows_by_single_buffers_and_none_moves() {
    const MORE: usize = 100_000;
    let rig = Rig::new("", 1);
    let inventory = rig::inventory(1);
    let at = rig.src.at(0);
    let get = || get!(doca_buf_inventory_buf_get_by_args(inventory, rig.src_map, at, 8, at, 8));
    let first = get();
    ok!(doca_buf_set_data(first, rig.src.at(3), 4));
    for _ in 0..MORE {
        ok!(doca_buf_inventory_expand(inventory, 1));
    }
    assert_eq!(get!(doca_buf_inventory_get_num_elements(inventory)), MORE as u32 + 1);
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(inventory)), MORE as u32);
    let bufs: Vec<_> = (0..MORE).map(|_| get()).collect();
    let mut none = ptr::null_mut();
    fails!(
        DOCA_ERROR_NO_MEMORY,
        doca_buf_inventory_buf_get_by_args(inventory, rig.src_map, at, 8, at, 8, &mut none)
    );
    let distinct: HashSet<_> = bufs.iter().chain([&first]).collect();
    assert_eq!(distinct.len(), MORE + 1, "all buffers differ");
    assert_eq!((get!(doca_buf_get_data(first)), get!(doca_buf_get_data_len(first))), (rig.src.at(3), 4));
    fails!(DOCA_ERROR_IN_USE, doca_buf_inventory_destroy(inventory));
    for buf in bufs.into_iter().chain([first]) {
        assert_eq!(get!(doca_buf_dec_refcount(buf)), 1);
    }
    ok!(doca_buf_inventory_destroy(inventory));
    rig.close();
}

#[test]
fn an_inventory_gives_what_it_has() {
    let rig = Rig::new("", 1);
    let inventory = rig::inventory(3);
    let at = rig.src.at(0);
    let get = || get!(doca_buf_inventory_buf_get_by_args(inventory, rig.src_map, at, 8, at, 8));
    let mut bufs = vec![get(), get()];
    ok!(doca_buf_chain_list(bufs[0], bufs[1]));
    let mut none = ptr::null_mut();
    fails!(DOCA_ERROR_NO_MEMORY, doca_buf_inventory_buf_dup(inventory, bufs[0], &mut none));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_inventory_buf_dup(inventory, bufs[1], &mut none));
    bufs.push(get());
    fails!(
        DOCA_ERROR_NO_MEMORY,
        doca_buf_inventory_buf_get_by_args(inventory, rig.src_map, at, 8, at, 8, &mut none)
    );
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(inventory)), 0);
    ok!(doca_buf_inventory_stop(inventory));
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_inventory_expand(inventory, 5));
    ok!(doca_buf_inventory_start(inventory));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_expand(inventory, 0));
    fails!(DOCA_ERROR_NO_MEMORY, doca_buf_inventory_expand(inventory, u32::MAX));
    ok!(doca_buf_inventory_expand(inventory, 5));
    assert_eq!(get!(doca_buf_inventory_get_num_elements(inventory)), 8);
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(inventory)), 5);
    let copy = get!(doca_buf_inventory_buf_dup(inventory, bufs[0]));
    assert_eq!(get!(doca_buf_get_list_len(copy)), 2);
    ok!(doca_buf_inventory_stop(inventory));
    fails!(
        DOCA_ERROR_BAD_STATE,
        doca_buf_inventory_buf_get_by_args(inventory, rig.src_map, at, 8, at, 8, &mut none)
    );
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_inventory_buf_dup(inventory, bufs[0], &mut none));
    fails!(DOCA_ERROR_IN_USE, doca_buf_inventory_destroy(inventory));
    for buf in [bufs[0], bufs[2], copy] {
        ok!(doca_buf_dec_refcount(buf, ptr::null_mut()));
    }
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(inventory)), 8);
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_inventory_set_user_data(inventory, number(2)));
    ok!(doca_buf_inventory_start(inventory));
    ok!(doca_buf_inventory_set_user_data(inventory, number(3)));
    assert_eq!(as_number(get!(doca_buf_inventory_get_user_data(inventory))), 3);
    ok!(doca_buf_inventory_destroy(inventory));
    let mut inventory = ptr::null_mut();
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_create(0, &mut inventory));
    fails!(DOCA_ERROR_NO_MEMORY, doca_buf_inventory_create(usize::MAX, &mut inventory));
    rig.close();
}

/// Returns the buffers of a list, and checks the results of the calls that describe the list.
fn shape(head: *mut c::doca_buf) -> Vec<*mut c::doca_buf> {
    let mut bufs = Vec::new();
    let mut at = head;
    let last = get!(doca_buf_get_last_in_list(head));
    while !at.is_null() {
        assert_eq!(get!(doca_buf_is_first_in_list(at)), u8::from(at == head));
        assert_eq!(get!(doca_buf_is_last_in_list(at)), u8::from(at == last));
        assert_eq!(get!(doca_buf_get_last_in_list(at)), last);
        if at != head {
            let mut len = 0;
            fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_get_list_len(at, &mut len));
            fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_dec_refcount(at, ptr::null_mut()));
            fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_inc_refcount(at, ptr::null_mut()));
        }
        bufs.push(at);
        at = get!(doca_buf_get_next_in_list(at));
    }
    let in_list = u8::from(bufs.len() > 1);
    bufs.iter().for_each(|buf| assert_eq!(get!(doca_buf_is_in_list(*buf)), in_list));
    assert_eq!(get!(doca_buf_get_list_len(head)) as usize, bufs.len());
    bufs
}

/// A user of a BlueField-3 reported that a host's copy from its own export fails, and that a DPU's copy from
/// its own export works.
#[test]
fn an_export_is_copied_on_its_own_side_where_the_card_does_that() {
    for (card, own) in [
        ("", "DOCA_SUCCESS"),
        ("self_import = false", "DOCA_ERROR_IO_FAILED"),
        ("profile = \"bluefield3\"\nclock = \"virtual\"", "DOCA_ERROR_IO_FAILED"),
        ("profile = \"bluefield3\"\nclock = \"virtual\"\nself_import = true", "DOCA_SUCCESS"),
    ] {
        for (from, expected) in [("03:00.1", own), ("3b:00.0", "DOCA_SUCCESS")] {
            let rig = Rig::new(card, 1);
            let exporter = rig::open(from);
            let memory = Memory::new(64);
            memory.write(0, &[9; 64]);
            let mmap = rig::map(exporter, &memory, c::DOCA_ACCESS_FLAG_PCI_READ_WRITE);
            let (mut desc, mut len) = (ptr::null(), 0);
            ok!(doca_mmap_export_pci(mmap, exporter, &mut desc, &mut len));
            assert!(len <= 150, "a descriptor of {len} bytes, but NVIDIA's programs have buffers of 256");
            let mut remote = ptr::null_mut();
            ok!(doca_mmap_create_from_export(ptr::null(), desc, len, rig.dev, &mut remote));
            let there = get!(doca_buf_inventory_buf_get_by_args(
                rig.inventory,
                remote,
                memory.at(0),
                64,
                memory.at(0),
                64,
            ));
            let task = rig.task(there, rig.to(0, 64), 1);
            ok!(doca_task_submit(task));
            rig.until(1);
            assert_eq!(rig.seen.take(), [(1, expected)], "{card:?}, from {from}");
            let copied = if expected == "DOCA_SUCCESS" { 9 } else { 0 };
            assert_eq!(rig.dst.read(0, 64), [copied; 64]);
            rig.free(task);
            ok!(doca_mmap_destroy(remote));
            ok!(doca_mmap_destroy(mmap));
            ok!(doca_dev_close(exporter));
            rig.close();
        }
    }
}

#[test]
fn lists_are_chained_and_unchained() {
    let rig = Rig::new("", 1);
    let bufs: Vec<_> = (0..6).map(|i| rig.from(i * 64, 64)).collect();
    let [a, b, d, e, f, g] = bufs[..] else { unreachable!() };
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_chain_list(a, a));
    ok!(doca_buf_chain_list(a, b));
    ok!(doca_buf_chain_list(d, e));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_chain_list(b, f));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_chain_list(a, e));
    ok!(doca_buf_inc_refcount(d, ptr::null_mut()));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_chain_list(a, d));
    ok!(doca_buf_dec_refcount(d, ptr::null_mut()));
    ok!(doca_buf_chain_list(a, d));
    assert_eq!(shape(a), [a, b, d, e]);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_chain_list_tail(a, b, f));
    ok!(doca_buf_chain_list_tail(a, e, f));
    assert_eq!(shape(a), [a, b, d, e, f]);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_unchain_list(a, g));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_unchain_list(a, a));
    ok!(doca_buf_unchain_list(a, d));
    assert_eq!((shape(a), shape(d)), (vec![a, b], vec![d, e, f]));
    assert_eq!(get!(doca_buf_get_refcount(d)), 1);
    ok!(doca_buf_chain_list(d, g));
    ok!(doca_buf_unchain_list(d, f));
    assert_eq!((shape(d), shape(f)), (vec![d, e], vec![f, g]));
    // Releasing the head releases the whole list.
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(rig.inventory)), 1024 - 6);
    [a, d, f].into_iter().for_each(|head| ok!(doca_buf_dec_refcount(head, ptr::null_mut())));
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(rig.inventory)), 1024);
    rig.close();
}

#[test]
fn a_pool_cuts_a_map_into_buffers_of_one_size() {
    rig::configure("");
    let dev = rig::open("03:00.0");
    // The memory also has room for padding before the first buffer.
    let memory = Memory::new(4096 + 512);
    let (mut pool, mut buf) = (ptr::null_mut(), ptr::null_mut());
    let mmap = rig::map(dev, &memory, READ_WRITE);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_pool_create(0, 1000, mmap, &mut pool));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_pool_create(4, 0, mmap, &mut pool));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_pool_create(4, 1000, ptr::null_mut(), &mut pool));

    // The size of each buffer except the last one is rounded up to the alignment.
    ok!(doca_buf_pool_create(5, 1000, mmap, &mut pool));
    fails!(DOCA_ERROR_INITIALIZATION, doca_buf_pool_start(pool));
    ok!(doca_buf_pool_destroy(pool));
    ok!(doca_buf_pool_create(4, 1000, mmap, &mut pool));
    assert_eq!(get!(doca_buf_pool_get_element_alignment(pool)), 1usize);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_buf_pool_set_element_alignment(pool, 24));
    ok!(doca_buf_pool_set_element_alignment(pool, 2048));
    fails!(DOCA_ERROR_INITIALIZATION, doca_buf_pool_start(pool));
    ok!(doca_buf_pool_set_element_alignment(pool, 512));
    ok!(doca_buf_pool_set_user_data(pool, number(6)));
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_pool_buf_alloc(pool, &mut buf));
    ok!(doca_mmap_stop(mmap));
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_pool_start(pool));
    ok!(doca_mmap_start(mmap));
    ok!(doca_buf_pool_start(pool));
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_pool_set_element_alignment(pool, 1));
    fails!(DOCA_ERROR_BAD_STATE, doca_buf_pool_set_user_data(pool, number(7)));
    assert_eq!(as_number(get!(doca_buf_pool_get_user_data(pool))), 6);

    let bufs: Vec<*mut c::doca_buf> = (0..4)
        .map(|_| {
            ok!(doca_buf_pool_buf_alloc(pool, &mut buf));
            buf
        })
        .collect();
    fails!(DOCA_ERROR_EMPTY, doca_buf_pool_buf_alloc(pool, &mut buf));
    let mut heads = Vec::new();
    for &buf in &bufs {
        let head: *mut c_void = get!(doca_buf_get_head(buf));
        assert_eq!(head.addr() % 512, 0);
        assert_eq!((get!(doca_buf_get_len(buf)), get!(doca_buf_get_data_len(buf))), (1000usize, 0usize));
        heads.push(head.addr());
    }
    heads.sort_unstable();
    assert!(heads.windows(2).all(|pair| pair[1] - pair[0] >= 1000), "{heads:?}");
    assert_eq!(get!(doca_buf_pool_get_num_elements(pool)), 4u32);
    assert_eq!(get!(doca_buf_pool_get_num_free_elements(pool)), 0u32);
    fails!(DOCA_ERROR_IN_USE, doca_buf_pool_stop(pool));
    fails!(DOCA_ERROR_IN_USE, doca_buf_pool_destroy(pool));
    for buf in bufs {
        ok!(doca_buf_dec_refcount(buf, ptr::null_mut()));
    }
    assert_eq!(get!(doca_buf_pool_get_num_free_elements(pool)), 4u32);
    ok!(doca_buf_pool_destroy(pool));
    ok!(doca_mmap_destroy(mmap));
    ok!(doca_dev_close(dev));
}
