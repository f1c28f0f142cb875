//! The calls of DOCA 1.5 to 2.2 on the same objects: most under their names of that time.
//!
//! Choices where nothing public says how a real library answers:
//!
//! - A job that fails ends all others of its work queue and context with `IO_FAILED`. Submissions are
//!   `BAD_STATE` until the work queue was removed from the context and added again.
//! - A context copies with the first of its devices.
//! - Lists need no extension of the inventory.
//! - 1.5: a map that was stopped keeps its chunks and devices. Memory is registered when the first buffer or
//!   export needs it, as the devices may come later.
//! - 1.5: buffers can be made in a map without devices. While there are any, no device can be added.
//! - `doca_buf_refcount_add` is `NOT_SUPPORTED`, as the header of 1.5 says.
//! - The comm channel: a connection to a service that calls nothing stays in progress. A message is copied
//!   at sending, and is then the system's, so none is counted as in flight. The size of the send queue is
//!   stored; that of the receive queue bounds the messages kept while a state is updated. A message longer
//!   than the room for it stays (`INVALID_VALUE`). An empty one is `INVALID_VALUE`.
//! - The end of a connection is `CONNECTION_RESET` of `doca_comm_channel_ep_recvfrom` on a client, each
//!   time, behind its last message. A service learns it by its event channel, its list and the peer's state.
//!   The peer stays until it is disconnected.
//! - Event channels for room and for clients are readable as long as there is some, armed or not. Two
//!   threads may use an endpoint, as NVIDIA's Secure Channel does.
//! - A line of the log has the name of its source in place of the file. Limited rates begin with 10 messages
//!   a second. Immutable limits are strict ones: they can still show less. 1.5: `doca_log_global_level_set`
//!   is for all backends, as in 2.2.
//! - Command lines: `--sdk-log-level` is there, too. There is no gRPC: `doca_argp_get_grpc_addr` is
//!   `NOT_SUPPORTED`.
//! - Codes of later generations, such as `ALREADY_EXIST`, are `INVALID_VALUE` where 1.5 has none.

mod arguments;
mod buffers;
mod device;
mod log;
mod memory;
mod queue;

/// Exports calls that only have other names now: `fn OLD(…) -> RESULT = PATH;`.
macro_rules! renamed {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $now:path;)*) => {
        $($crate::workq::renamed! { @one $(#[$doc])* $name ($($arg: $type),*) ($($result)?) $now })*
    };
    (@one $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) () $now:path) => {
        $crate::workq::renamed! { @one $(#[$doc])* $name ($($arg: $type),*) ($crate::c_abi::Code) $now }
    };
    (@one $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) ($result:ty) $now:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller's promise is that of the other call.
            unsafe { $now($($arg),*) }
        }
    };
}
use renamed;

/// 1.5, and not 2.2.
pub(crate) const FIRST: bool = cfg!(feature = "generation-1-5");
