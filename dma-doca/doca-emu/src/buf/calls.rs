//! The functions of `doca_buf.h`.

use std::ffi::c_void;

use super::Buf;
use crate::door::{Code, Handle, INVALID, Out, answer, c, require};

/// Adds a reference; tells how many there were.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_inc_refcount(buf: Handle<Buf>, refcount: Out<u16>) -> Code {
    answer(|| {
        let buf = buf.get()?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let refs = buf.refs.get();
        require(refs > 0, c::DOCA_ERROR_BAD_STATE)?;
        buf.refs.set(refs.checked_add(1).ok_or(c::DOCA_ERROR_TOO_BIG)?);
        refcount.put_if(refs);
        Ok(())
    })
}

/// Takes a reference away; tells how many there were. With the last one the list goes back to its inventories.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_dec_refcount(buf: Handle<Buf>, refcount: Out<u16>) -> Code {
    answer(|| {
        require(!buf.is_null(), INVALID)?;
        // A buffer that is back in its inventory has no references.
        let buf = buf.get().map_err(|_| c::DOCA_ERROR_BAD_STATE)?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let refs = buf.refs.get();
        buf.refs.set(refs.checked_sub(1).ok_or(c::DOCA_ERROR_BAD_STATE)?);
        refcount.put_if(refs);
        if refs == 1 && buf.pins.get() == 0 {
            buf.go_home();
        }
        Ok(())
    })
}

/// How many references there are.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_refcount(buf: Handle<Buf>, refcount: Out<u16>) -> Code {
    answer(|| refcount.put(buf.get()?.refs.get()))
}

/// The window's length in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_len(buf: Handle<Buf>, len: Out<usize>) -> Code {
    answer(|| len.put(buf.get()?.len.get()))
}

/// Where the window begins.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_head(buf: Handle<Buf>, head: Out<usize>) -> Code {
    answer(|| head.put(buf.get()?.head.get()))
}

/// The data's length in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_data_len(buf: Handle<Buf>, data_len: Out<usize>) -> Code {
    answer(|| data_len.put(buf.get()?.data_len.get()))
}

/// Where the data begins.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_data(buf: Handle<Buf>, data: Out<usize>) -> Code {
    answer(|| data.put(buf.get()?.data.get()))
}

/// Sets where the data begins and how long it is. Whether that is within the window is the program's business.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_set_data(buf: Handle<Buf>, data: *mut c_void, data_len: usize) -> Code {
    answer(|| {
        let buf = buf.get()?;
        require(!data.is_null(), INVALID)?;
        buf.data.set(data.addr());
        buf.data_len.set(data_len);
        Ok(())
    })
}

/// Sets how long the data is.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_set_data_len(buf: Handle<Buf>, data_len: usize) -> Code {
    answer(|| {
        buf.get()?.data_len.set(data_len);
        Ok(())
    })
}

/// The data's length is 0.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_reset_data_len(buf: Handle<Buf>) -> Code {
    answer(|| {
        buf.get()?.data_len.set(0);
        Ok(())
    })
}

/// The next of the list, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_next_in_list(buf: Handle<Buf>, next_buf: Out<Handle<Buf>>) -> Code {
    answer(|| next_buf.put(buf.get()?.next.get()))
}

/// The last of the list, which may be the buffer.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_last_in_list(buf: Handle<Buf>, last_buf: Out<Handle<Buf>>) -> Code {
    answer(|| last_buf.put(Handle::of(buf.get()?.last())))
}

/// Whether no buffer comes behind it.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_is_last_in_list(buf: Handle<Buf>, is_last: Out<u8>) -> Code {
    answer(|| is_last.put(buf.get()?.next.get().is_null().into()))
}

/// Whether no buffer comes before it.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_is_first_in_list(buf: Handle<Buf>, is_first: Out<u8>) -> Code {
    answer(|| is_first.put((!buf.get()?.chained.get()).into()))
}

/// Whether a buffer comes before or behind it.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_is_in_list(buf: Handle<Buf>, is_in_list: Out<u8>) -> Code {
    answer(|| {
        let buf = buf.get()?;
        is_in_list.put((buf.chained.get() || !buf.next.get().is_null()).into())
    })
}

/// How many buffers the list has; of its head only.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_get_list_len(buf: Handle<Buf>, num_elements: Out<u32>) -> Code {
    answer(|| {
        let buf = buf.get()?;
        require(!buf.chained.get(), c::DOCA_ERROR_NOT_PERMITTED)?;
        num_elements.put(buf.count.get())
    })
}

/// Appends the second list to the first; both by their heads.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_chain_list(list1: Handle<Buf>, list2: Handle<Buf>) -> Code {
    answer(|| list1.get()?.chain(None, list2.get()?))
}

/// Appends the second list to the first, whose last is known.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_chain_list_tail(
    list1_head: Handle<Buf>,
    list1_tail: Handle<Buf>,
    list2: Handle<Buf>,
) -> Code {
    answer(|| list1_head.get()?.chain(Some(list1_tail.get()?), list2.get()?))
}

/// Separates the second list, which is part of the first.
#[unsafe(no_mangle)]
extern "C" fn doca_buf_unchain_list(list1: Handle<Buf>, list2: Handle<Buf>) -> Code {
    answer(|| list1.get()?.unchain(list2.get()?))
}
