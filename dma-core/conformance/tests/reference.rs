//! Runs the conformance suite on the reference engine, with many limits.

use dma_conformance::{ReferenceEngine, ReferenceOptions, conformance_tests};
use dma_core::DmaEngine;

fn engine(change: impl FnOnce(&mut ReferenceOptions)) -> ReferenceEngine {
    let mut options = ReferenceOptions::default();
    change(&mut options);
    ReferenceEngine::new(options)
}

conformance_tests!(usual, engine(|_| ()));
conformance_tests!(native, engine(|o| o.native = true));
conformance_tests!(
    tight_native,
    engine(|o| {
        o.native = true;
        o.max_transfer = 100;
        o.max_segments = 1;
        o.depth = 2;
        o.per_poll = 1;
    })
);
conformance_tests!(
    tight,
    engine(|o| {
        o.max_transfer = 100;
        o.max_segments = 1;
        o.depth = 2;
        o.per_poll = 1;
    })
);
conformance_tests!(
    deep,
    engine(|o| {
        o.depth = 5000;
        o.per_poll = 1000;
        o.max_segments = 100;
    })
);
conformance_tests!(inline, engine(|o| o.inline_limit = 3000));
conformance_tests!(
    tight_inline,
    engine(|o| {
        o.max_transfer = 100;
        o.max_segments = 1;
        o.depth = 2;
        o.per_poll = 1;
        o.inline_limit = 90;
    })
);
conformance_tests!(boxed, Box::new(engine(|_| ())) as Box<dyn DmaEngine>);
conformance_tests!(shared, std::sync::Arc::new(engine(|_| ())) as std::sync::Arc<dyn DmaEngine>);
