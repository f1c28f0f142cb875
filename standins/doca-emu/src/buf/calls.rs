//! The functions of `doca_buf.h`.

use std::ffi::c_void;

use super::Buf;
use crate::c_abi::{Handle, INVALID, Out, c, c_calls, getters, require};

getters! {
    doca_buf_get_refcount(buf: Buf) -> u16 { buf.refs.get() }
    doca_buf_get_len(buf: Buf) -> usize { buf.len.get() }
    doca_buf_get_head(buf: Buf) -> usize { buf.head.get() }
    doca_buf_get_data_len(buf: Buf) -> usize { buf.data_len.get() }
    doca_buf_get_data(buf: Buf) -> usize { buf.data.get() }
    doca_buf_get_next_in_list | doca_buf_list_next(buf: Buf) -> Handle<Buf> { buf.next.get() }
    doca_buf_get_last_in_list | doca_buf_list_last(buf: Buf) -> Handle<Buf> {
        // SAFETY: C does not release the buffers of a list while it uses the list, and buffers do not move.
        unsafe { Handle::of(buf.last()) }
    }
    doca_buf_is_last_in_list | doca_buf_list_is_last(buf: Buf) -> u8 { buf.next.get().is_null().into() }
    doca_buf_is_first_in_list | doca_buf_list_is_first(buf: Buf) -> u8 { (!buf.chained.get()).into() }
    doca_buf_is_in_list(buf: Buf) -> u8 { buf.is_in_list().into() }
}

c_calls! {
    /// Adds a reference to a buffer, and writes the previous number of references.
    fn doca_buf_inc_refcount(buf: Handle<Buf>, refcount: Out<u16>) {
        let buf = buf.get()?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let refs = buf.refs.get();
        require(refs > 0, c::DOCA_ERROR_BAD_STATE)?;
        buf.refs.set(refs.checked_add(1).ok_or(c::DOCA_ERROR_TOO_BIG)?);
        refcount.put_if(refs);
        Ok(())
    }
    /// Removes a reference from a buffer, and writes the previous number of references. Without references,
    /// the buffer's list returns to its inventories.
    fn doca_buf_dec_refcount | doca_buf_refcount_rm(buf: Handle<Buf>, refcount: Out<u16>) {
        require(!buf.is_null(), INVALID)?;
        // A buffer that was returned to its inventory has no references.
        let buf = buf.get().map_err(|_| c::DOCA_ERROR_BAD_STATE)?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let refs = buf.refs.get();
        buf.refs.set(refs.checked_sub(1).ok_or(c::DOCA_ERROR_BAD_STATE)?);
        refcount.put_if(refs);
        if refs == 1 && buf.pins.get() == 0 {
            buf.go_home();
        }
        Ok(())
    }
    /// Sets the address and length of a buffer's data. Does not check that the data is within the window.
    fn doca_buf_set_data(buf: Handle<Buf>, data: *mut c_void, data_len: usize) {
        let buf = buf.get()?;
        require(!data.is_null(), INVALID)?;
        buf.data.set(data.addr());
        buf.data_len.set(data_len);
        Ok(())
    }
    fn doca_buf_set_data_len(buf: Handle<Buf>, data_len: usize) {
        buf.get().map(|buf| buf.data_len.set(data_len))
    }
    fn doca_buf_reset_data_len(buf: Handle<Buf>) { buf.get().map(|buf| buf.data_len.set(0)) }
    /// Writes the number of buffers in a list. Returns `NOT_PERMITTED` unless the buffer is the head of its
    /// list.
    fn doca_buf_get_list_len | doca_buf_list_num_elements(buf: Handle<Buf>, num_elements: Out<u32>) {
        let buf = buf.get()?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        num_elements.put(buf.count.get())
    }
    /// Appends the second list to the first. Both arguments are heads of lists.
    fn doca_buf_chain_list
        | doca_buf_list_chain(list1: Handle<Buf>, list2: Handle<Buf>) { list1.get()?.chain(None, list2.get()?) }
    /// Appends the second list to the first. `list1_tail` is the last buffer of the first list.
    fn doca_buf_chain_list_tail(list1_head: Handle<Buf>, list1_tail: Handle<Buf>, list2: Handle<Buf>) {
        list1_head.get()?.chain(Some(list1_tail.get()?), list2.get()?)
    }
    fn doca_buf_unchain_list
        | doca_buf_list_unchain(list1: Handle<Buf>, list2: Handle<Buf>) { list1.get()?.unchain(list2.get()?) }
}
