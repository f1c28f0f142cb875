//! Memory: regions and their views, pools of buffers, NUMA placement, and copies by the CPU.

mod buffer;
mod buffer_writer;
mod empty_region;
mod idle;
mod location;
pub(crate) mod numa;
pub(crate) mod operand;
mod page_memory;
mod pool;
pub mod racy_copy;
pub(crate) mod range;
pub(crate) mod region;
mod registration;
mod registration_cache;
pub(crate) mod sync;
mod window;

pub use buffer::{Buffer, BufferMut};
pub use buffer_writer::BufferWriter;
pub(crate) use idle::{import_with_idle_memory_released, open_with_idle_memory_released};
pub use numa::{NumaNodes, parse_cores};
pub use operand::{Destination, Source};
pub use page_memory::PageMemory;
#[cfg(feature = "serde")]
pub(crate) use pool::ClassOptions;
pub use pool::{BufferPool, PoolClass, PoolGet, PoolOptions, PoolReport, WindowPool, pools};
pub use region::Region;
pub(crate) use registration::{
    allocate, allocate_buffer, import_no_bytes, register_buffer, register_device, register_read_only,
    register_window,
};
pub use registration_cache::{RegistrationCache, RegistrationCacheCounters, RegistrationCacheOptions};
pub use window::{Export, Window};
