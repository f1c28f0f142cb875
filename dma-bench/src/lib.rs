//! The benchmark of DMA engines: which engine, at what size, and is it worth it. The program is `dma-bench`; this library is what it is made
//! of, for its benches and tests.

pub mod app;
pub mod cli;
pub mod compare;
pub mod contender;
pub mod cpu_clock;
pub mod derive;
pub mod doctor;
pub mod drive;
pub mod files;
pub mod interrupt;
pub mod layout;
pub mod list;
pub mod machine;
pub mod memcpy;
pub mod memory;
mod nearness;
pub mod output;
pub mod pairs;
pub mod plan;
pub mod presets;
pub mod priority;
pub mod progress;
pub mod published;
mod record;
pub mod report;
pub mod results;
pub mod run;
mod runner;
mod sibling;
mod slices;
pub mod stats;
pub mod units;
pub mod waits;
