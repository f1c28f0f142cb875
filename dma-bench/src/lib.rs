//! The benchmark of DMA engines: which engine at which size, and whether it is worth it. The program is
//! `dma-bench`; this library contains its parts, for benches, tests, and programs that add backends.

pub mod app;
pub mod cli;
pub mod compare;
pub mod contender;
mod costs;
pub mod cpu_time;
pub mod derive;
pub mod doctor;
pub mod drive;
pub mod files;
pub mod interrupt;
pub mod layout;
pub mod list;
pub mod machine;
mod manual;
pub mod memcpy;
pub mod memory;
pub mod output;
pub mod pairs;
pub mod peer;
pub mod placement;
pub mod plan;
pub mod presets;
pub mod priority;
pub mod progress;
pub mod published;
mod record;
pub mod replay;
pub mod report;
pub mod results;
pub mod run;
mod runner;
pub mod serve;
mod slices;
pub mod stats;
pub mod units;
pub mod verdict;

pub use app::main;
