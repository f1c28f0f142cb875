//! The calls of DOCA 1.5 to 2.2 on the same objects. Those that were only renamed are with the later ones.
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
//! - A line of the log has the name of its source in place of the file. Limited rates begin with 10 messages
//!   a second. Immutable limits are strict ones: they can still show less. 1.5: `doca_log_global_level_set`
//!   is for all backends, as in 2.2.
//! - Command lines: `--sdk-log-level` is there, too.
//! - Codes of later generations, such as `ALREADY_EXIST`, are `INVALID_VALUE` where 1.5 has none.

mod buffers;
mod device;
mod log;
mod queue;

/// 1.5, and not 2.2.
pub(crate) const FIRST: bool = cfg!(feature = "generation-1-5");
