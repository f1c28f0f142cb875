//! Serves the metrics to Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The recorder of the program's metrics.
pub(crate) struct Scrape(PrometheusHandle);

impl Scrape {
    pub(crate) fn new() -> Result<Self, BuildError> {
        PrometheusBuilder::new().install_recorder().map(Self)
    }

    /// Answers each request with all metrics.
    pub(crate) async fn serve(self, listener: TcpListener) {
        /// Time limit for a request and its response.
        const LIMIT: Duration = Duration::from_secs(10);
        loop {
            let answered = async {
                let (stream, _) = listener.accept().await?;
                tokio::time::timeout(LIMIT, self.answer(stream)).await?
            };
            if let Err(e) = answered.await {
                tracing::warn!("metrics: {e}");
            }
        }
    }

    async fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        /// Maximum length of a request in bytes.
        const MAX_REQUEST: u64 = 16 << 10;
        let mut stream = BufReader::new(stream);
        let mut lines = (&mut stream).take(MAX_REQUEST).lines();
        // The request ends with an empty line.
        while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
        dma::layers::meter::publish();
        let text = self.0.render() + &dma::layers::meter::histograms();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            text.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    }
}
