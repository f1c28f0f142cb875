//! Code that tests and benches of several packages use.
#![expect(clippy::missing_panics_doc, reason = "a check that fails panics")]

pub mod beside_c;
pub mod built;
pub mod counting;
pub mod cpus;
pub mod default_signals;
pub mod descriptor_limit;
pub mod failing_close;
pub mod free_port;
pub mod hold;
pub mod in_child;
pub mod log;
pub mod patience;
pub mod script;
pub mod stand_ins;
pub mod with_queues;

pub use callgrind;
