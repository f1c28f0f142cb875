//! DOCA 2.2, loaded from its stand-in. Each generation has a test program of its own, because a
//! process can load only one library with work queues.

const GENERATION: &str = "2.2";

#[path = "support/work_queues.rs"]
mod work_queues;
