//! The macro `declare!`, by which tests call the stand-in's functions as C does, and the lock of tests that
//! use addresses of freed memory.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static MY_TURN: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Waits until no other test of this process runs, and keeps others out until this thread ends. Otherwise,
/// another test could be given memory that this test freed, and its address would be valid again.
pub(crate) fn take_turn() {
    MY_TURN.with_borrow_mut(|turn| {
        turn.get_or_insert_with(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// Declares functions of the driver API, as its reference does.
macro_rules! declare {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        #[expect(non_snake_case, reason = "as C's")]
        fn $name($($arg: $type),*) -> std::ffi::c_int {
            let name = std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
            let address = cuda_emu::symbol(name.expect("one NUL")).expect(stringify!($name));
            // SAFETY: `address` points to the function, and the driver API declares it with this type.
            let function = unsafe {
                std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, unsafe extern "C" fn($($type),*) -> std::ffi::c_int>(address)
            };
            // SAFETY: the tests pass pointers to local variables or NULL, handles and addresses that may be
            // wrong, and memory that stays allocated until the stream has executed the call.
            unsafe { function($($arg),*) }
        }
    )*};
}
