//! A stand-in for the DOCA SDK: the DOCA C interface, on a software DMA device.
//!
//! C programs do not call this crate as Rust: they link the libraries that it is installed as, or a Rust program that links this crate
//! declares the functions, as `doca_sys::bindings` does.

mod argp;
mod buf;
mod card;
mod comch;
mod config;
mod ctx;
mod dev;
mod dma;
mod door;
mod error;
mod inventory;
mod list;
mod log;
mod mmap;
mod notify;
mod pci;
mod pe;
mod rep;
mod task;
mod world;

pub use config::{ConfigError, VERSION, use_config};
