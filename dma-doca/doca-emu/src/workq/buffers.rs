//! `doca_buf.h` and `doca_buf_inventory.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use crate::buf::Buf;
use crate::c_abi::{Handle, INVALID, In, Out, c, c_calls, require};
use crate::inventory::Inventory;

/// `DOCA_BUF_EXTENSION_LINKED_LIST`, the only one.
const EXTENSIONS: u32 = 1;

c_calls! {
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
}
