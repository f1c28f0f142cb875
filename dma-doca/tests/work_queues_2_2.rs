//! DOCA 2.2, loaded from its stand-in. A process uses one library of the generations with work queues.

const GENERATION: &str = "2.2";

#[path = "support/work_queues.rs"]
mod work_queues;
