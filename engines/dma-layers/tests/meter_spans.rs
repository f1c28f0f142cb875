//! Tests a meter's spans. The test has a process of its own, because `tracing` caches the subscribers'
//! interest for all threads.

mod engines;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use dma_core::{Access, DmaEngineExt, MemoryRequest, QueueOptions};
use engines::{meter, sim};
use tracing_subscriber::fmt::format::FmtSpan;

#[test]
fn the_rare_calls_are_spans() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let engine = meter(sim("sim:profile=bluefield3"));
        let queue = engine.open_queue(&QueueOptions::new().with_depth(8)).unwrap();
        let window = engine.allocate_window(&MemoryRequest::new(4096).exportable(Access::READ)).unwrap();
        let export = window.export(Access::READ).unwrap();
        let far = meter(sim("sim:profile=bluefield3,seed=2")).import(export.descriptor()).unwrap();
        drop((queue, far, export, window));
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for span in [
        "dma.open{engine=\"sim\" depth=8}",
        "dma.allocate{engine=\"sim\" bytes=4096}",
        "dma.export{engine=\"sim\" bytes=4096}",
        "dma.import{engine=\"sim\"}",
        "dma.deregister{engine=\"sim\" bytes=4096}",
        "dma.close{engine=\"sim\" elapsed_us=",
    ] {
        assert!(text.contains(span), "{span} is missing in {text}");
    }
}
