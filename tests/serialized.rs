//! Descriptions and counters as JSON.

use dma::prelude::*;
use serde_json::{Value, json};

#[test]
fn an_engine_describes_itself_as_json() {
    let engine = dma::open("sim:profile=ioat").expect("it opens");
    let info = serde_json::to_value(engine.info()).expect("it is JSON");
    assert_eq!(info["backend"], "sim");
    let names = info["capabilities"].as_array().expect("a list");
    assert!(names.contains(&Value::from("ALLOCATE")), "{names:?}");
    assert_eq!(names.len(), engine.info().capabilities.iter_names().count());
    assert_eq!(info["limits"]["max_transfer"], json!(engine.info().limits.max_transfer));
    assert_eq!(serde_json::to_value(Access::READ | Access::WRITE).expect("JSON"), json!(["READ", "WRITE"]));
}

#[test]
fn counters_come_back_from_json() {
    let engine = dma::open("cpu").expect("it opens");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let buffer = || engine.allocate(64).expect("memory");
    queue.copy(buffer(), buffer()).expect("room").wait().expect("it is done");
    let counters = queue.counters();
    let text = serde_json::to_string(&counters).expect("JSON");
    assert_eq!(serde_json::from_str::<dma::Counters>(&text).expect("counters"), counters);
    assert_eq!(counters.to_string().split(", ").next(), Some("1 submitted"));
}
