//! The process around a library: its limits, threads, signals, forks, and output files.
//!
//! A library is a guest in the program that uses it. The crates of `dma` check the limits of the process
//! before they reach them, leave signals to the program, and detect forks.

mod above_stdio;
mod available;
mod check_close;
mod count;
mod file_limit;
mod fork;
mod fork_lock;
mod headroom;
mod limit_error;
mod limited_socket;
mod lock;
mod lockable;
mod output_file;
mod process_lock;
mod resource_limit;
mod thread;
mod wake_pipe;

pub use above_stdio::above_stdio;
pub use available::{available_memory, check_available};
pub use check_close::check_close;
pub use count::count;
pub use file_limit::check_file_size;
pub use fork::ForkMark;
pub use fork_lock::ForkLock;
pub use headroom::check_headroom;
pub use limit_error::{Limit, LimitError, open_files_remedy};
pub use limited_socket::{ExchangeLimit, LimitedSocket};
pub use lock::lock;
pub use lockable::{MEMLOCK_REMEDY, exceeded_memlock, memlock_limit};
pub use output_file::OutputFile;
pub use process_lock::ProcessLock;
pub use thread::{keep_ignored_signals, spawn_thread, with_signals_blocked};
pub use wake_pipe::WakePipe;
