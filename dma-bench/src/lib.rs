//! The benchmark of DMA engines: which engine at which size, and whether it is worth it. The program is
//! `dma-bench`; this library is for its benches and tests, and for programs that add backends.

mod app;
mod cli;
mod compare;
#[doc(hidden)]
pub mod contender;
mod costs;
mod cpu_time;
mod derive;
#[doc(hidden)]
pub mod doctor;
#[doc(hidden)]
pub mod drive;
mod files;
mod interrupt;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod list;
mod machine;
mod manual;
mod memcpy;
#[doc(hidden)]
pub mod memory;
mod output;
mod pairs;
mod peer;
mod placement;
#[doc(hidden)]
pub mod plan;
mod presets;
mod priority;
mod progress;
mod published;
mod record;
mod replay;
mod report;
#[doc(hidden)]
pub mod results;
#[doc(hidden)]
pub mod run;
mod runner;
mod serve;
mod slices;
mod stats;
mod units;
mod verdict;

pub use app::{main, main_with};
pub use cli::Format;
