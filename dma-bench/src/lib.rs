//! The benchmark of DMA engines: which engine at which size, and whether it is worth it. The program is
//! `dma-bench`; this library is for its benches and tests, and for programs that add backends.

mod cli;
mod compare;
mod files;
mod interrupt;
mod output;
mod peer;
#[doc(hidden)]
pub mod plan;
mod report;
#[doc(hidden)]
pub mod results;
#[doc(hidden)]
pub mod run;
mod units;
mod verdict;

#[doc(hidden)]
pub use cli::{doctor, list};
pub use cli::{main, main_with};
pub use output::Format;
