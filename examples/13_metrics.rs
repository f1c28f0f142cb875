//! Prints counts, latencies and sizes of an engine's copies as Prometheus text.
//!
//! `meter+NAME` measures any engine. `publish` passes its counts to the recorder of the crate
//! `metrics`. The recorder here renders the text that Prometheus scrapes. A server calls `publish`
//! and renders when it receives a request for `/metrics`.

use std::error::Error;

use dma::prelude::*;
use metrics_exporter_prometheus::PrometheusBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;

    let engine = dma::open("meter+sim:profile=dsa,label=ingest")?;
    let queue = engine.open_queue(&QueueOptions::new())?;
    for len in [64, 4096, 65536] {
        let pairs = (0..8).map(|_| Ok((engine.allocate(len)?, engine.allocate(len)?)));
        let batch = pairs.collect::<dma::Result<Batch<_, _>>>()?;
        queue.submit(batch)?.wait()?;
    }

    dma::layers::meter::publish();
    let text = prometheus.render();
    // Prints only the first and the last bucket of each histogram.
    for line in text.lines().filter(|line| !line.contains("_bucket{") || line.contains("+Inf")) {
        println!("{line}");
    }
    let counted = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    println!(
        "{} buckets of latencies, {} of sizes",
        counted("dma_latency_seconds_bucket{"),
        counted("dma_size_bytes_bucket{")
    );
    Ok(())
}
