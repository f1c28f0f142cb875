//! The benchmark of DMA engines: which engine at which size, and whether it is worth it. The program is
//! `dma-bench`; this library is for its benches and tests, and for programs that add backends.

mod app;
mod cli;
mod compare;
pub mod contender;
mod costs;
mod cpu_time;
mod derive;
pub mod doctor;
pub mod drive;
mod files;
mod interrupt;
pub mod layout;
pub mod list;
mod machine;
mod manual;
mod memcpy;
pub mod memory;
mod output;
mod pairs;
mod peer;
mod placement;
pub mod plan;
mod presets;
mod priority;
mod progress;
mod published;
mod record;
mod replay;
mod report;
pub mod results;
pub mod run;
mod runner;
mod serve;
mod slices;
mod stats;
mod units;
mod verdict;

pub use app::{main, main_with};
pub use cli::Format;
