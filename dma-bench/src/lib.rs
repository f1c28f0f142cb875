//! Benchmarks DMA engines: which engine is faster than `memcpy`, and at which sizes. The program is
//! `dma-bench`. This library serves its benches and tests, and programs that add backends.

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
