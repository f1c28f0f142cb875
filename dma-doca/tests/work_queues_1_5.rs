//! DOCA 1.5, loaded from its stand-in. A process uses one library of the generations with work queues.

const GENERATION: &str = "1.5";

#[path = "support/work_queues.rs"]
mod work_queues;
