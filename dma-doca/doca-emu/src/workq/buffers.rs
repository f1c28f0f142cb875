//! `doca_buf.h` and `doca_buf_inventory.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_void;

use super::memory::Map;
use crate::buf::Buf;
use crate::buf::calls as buf;
use crate::c_abi::{Handle, INVALID, In, Out, c, older_calls, renamed, require};
use crate::inventory::{self, Inventory};

/// `DOCA_BUF_EXTENSION_LINKED_LIST`, the only one.
const EXTENSIONS: u32 = 1;

renamed! {
    fn doca_buf_refcount_rm(it: Handle<Buf>, refcount: Out<u16>) = buf::doca_buf_dec_refcount;
    fn doca_buf_get_refcount(it: Handle<Buf>, refcount: Out<u16>) = buf::doca_buf_get_refcount;
    fn doca_buf_get_len(it: Handle<Buf>, len: Out<usize>) = buf::doca_buf_get_len;
    fn doca_buf_get_head(it: Handle<Buf>, head: Out<usize>) = buf::doca_buf_get_head;
    fn doca_buf_get_data_len(it: Handle<Buf>, len: Out<usize>) = buf::doca_buf_get_data_len;
    fn doca_buf_get_data(it: Handle<Buf>, data: Out<usize>) = buf::doca_buf_get_data;
    fn doca_buf_set_data(it: Handle<Buf>, data: *mut c_void, len: usize) = buf::doca_buf_set_data;
    fn doca_buf_reset_data_len(it: Handle<Buf>) = buf::doca_buf_reset_data_len;
    fn doca_buf_list_next(it: Handle<Buf>, next: Out<Handle<Buf>>) = buf::doca_buf_get_next_in_list;
    fn doca_buf_list_last(it: Handle<Buf>, last: Out<Handle<Buf>>) = buf::doca_buf_get_last_in_list;
    fn doca_buf_list_is_last(it: Handle<Buf>, is: Out<u8>) = buf::doca_buf_is_last_in_list;
    fn doca_buf_list_is_first(it: Handle<Buf>, is: Out<u8>) = buf::doca_buf_is_first_in_list;
    fn doca_buf_is_in_list(it: Handle<Buf>, is: Out<u8>) = buf::doca_buf_is_in_list;
    fn doca_buf_list_num_elements(it: Handle<Buf>, count: Out<u32>) = buf::doca_buf_get_list_len;
    fn doca_buf_list_chain(list1: Handle<Buf>, list2: Handle<Buf>) = buf::doca_buf_chain_list;
    fn doca_buf_list_unchain(list1: Handle<Buf>, list2: Handle<Buf>) = buf::doca_buf_unchain_list;
    fn doca_buf_inventory_destroy(it: Handle<Inventory>) = inventory::doca_buf_inventory_destroy;
    fn doca_buf_inventory_start(it: Handle<Inventory>) = inventory::doca_buf_inventory_start;
    fn doca_buf_inventory_stop(it: Handle<Inventory>) = inventory::doca_buf_inventory_stop;
    fn doca_buf_inventory_buf_dup(it: Handle<Inventory>, src: Handle<Buf>, dst: Out<Handle<Buf>>)
        = inventory::doca_buf_inventory_buf_dup;
    fn doca_buf_inventory_get_num_elements(it: Handle<Inventory>, count: Out<u32>)
        = inventory::doca_buf_inventory_get_num_elements;
    fn doca_buf_inventory_get_num_free_elements(it: Handle<Inventory>, count: Out<u32>)
        = inventory::doca_buf_inventory_get_num_free_elements;
    fn doca_buf_inventory_get_user_data(it: Handle<Inventory>, user_data: Out<c::doca_data>)
        = inventory::doca_buf_inventory_get_user_data;
}

older_calls! {
    /// `NOT_SUPPORTED`, for a buffer.
    fn doca_buf_refcount_add(it: Handle<Buf>, _refcount: Out<u16>) {
        it.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_buf_inventory_create(
        user_data: In<c::doca_data>,
        num_elements: usize,
        extensions: u32,
        inventory: Out<Handle<Inventory>>,
    ) {
        require(extensions & !EXTENSIONS == 0, INVALID)?;
        inventory.make(|| {
            let made = Inventory::new(num_elements)?;
            if let Some(user_data) = user_data.get() {
                made.set_user_data(user_data);
            }
            Ok(Handle::give_rc(made))
        })
    }
    /// Takes a buffer: a window of `len` bytes at `addr`, with `data_len` bytes of data at `data`.
    fn doca_buf_inventory_buf_by_args(
        inventory: Handle<Inventory>,
        mmap: Handle<Map>,
        addr: *mut c_void,
        len: usize,
        data: *mut c_void,
        data_len: usize,
        buf: Out<Handle<Buf>>,
    ) {
        buf.check()?;
        let memory = mmap.get()?.over(addr.addr(), len)?;
        buf.put(Handle::of(inventory.get()?.window(&memory, addr, len, data, data_len)?))
    }
}
