//! A stand-in for SPDK, without the hardware.

mod config;
mod cpuset;
mod door;
mod engine;
mod env;
mod ioat;
mod log;
mod string;
mod util;

pub use config::ConfigError;
pub use env::init::check_config;
