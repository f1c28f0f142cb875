//! The C interface of the crate `dma`: the functions that `include/dma.h` declares and documents.
//!
//! `bindings/c/install PREFIX` installs the header, `libdma.so.0`, `libdma.a` and `dma.pc`. Rust programs
//! use the crate `dma` itself.
//!
//! | module | contents |
//! |---|---|
//! | `header` | the declarations that bindgen generates from `dma.h`, to check every function |
//! | `arguments` | pointers from C, and their checks |
//! | `handles` | numbers that name objects and stay invalid after these are closed |
//! | `error` | status codes, and a thread's last failure |
//! | `engine` `report` `region` `export` `batch` `queue` | the functions, grouped by object |
//!
//! All functions use the safe API. A region is always a [`Window`](dma::Window), because C code may access
//! its bytes at any time.

mod arguments;
mod batch;
mod engine;
mod error;
mod export;
mod handles;
pub mod header;
mod queue;
mod region;
mod report;

pub use batch::calls::*;
pub use engine::calls::*;
pub use error::calls::*;
pub use export::calls::*;
pub use queue::calls::*;
pub use region::calls::*;
pub use report::calls::*;
