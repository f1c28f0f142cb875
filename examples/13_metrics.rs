//! Prints counts, latencies and sizes of an engine's copies as Prometheus text.
//!
//! `meter+NAME` measures any engine. `publish` passes its counts to the recorder of the crate `metrics`,
//! which renders the text that Prometheus scrapes, and `histograms` returns the text of latencies and sizes.
//! The example `17_configured_server` serves both.

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
    print!("{}{}", prometheus.render(), dma::layers::meter::histograms());
    Ok(())
}
