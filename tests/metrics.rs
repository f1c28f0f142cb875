//! Checks that all metrics have a help text, that the dashboard and the alert rules use no unknown metrics,
//! and the values of metrics. `ci/metrics.sh` checks the names and the alert rules with Prometheus' own tool.

use std::collections::BTreeSet;

use dma::prelude::*;
use metrics_exporter_prometheus::PrometheusBuilder;

const DASHBOARD: &str = include_str!("../docs/metrics/dashboard.json");
const ALERTS: &str = include_str!("../docs/metrics/alerts.yaml");

/// Returns the names of the metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("dma_")).collect()
}

/// Returns the name of the metric that has a line with this name.
fn family(name: &str) -> &str {
    ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// Returns the value of a metric, or the sum of its values if it has several lines.
fn value(text: &str, begin: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(begin));
    lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect(line)).sum()
}

#[test]
fn metrics_have_help_texts_and_a_place_in_the_dashboard() {
    let prometheus = PrometheusBuilder::new().install_recorder().expect("the only recorder");
    let engine = dma::open("meter+cpu:threads=0").expect("it opens");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let options = PoolOptions::new().with_growing_class(4096, 2, 3).with_label("ingest");
    let pool = BufferPool::growing(engine.clone(), &options).expect("a pool");
    let copy = || queue.copy(pool.try_get(64).expect("a buffer"), pool.try_get(64).expect("a buffer"));
    let held = copy().expect("accepted").wait().expect("done");
    let third = pool.try_get(64).expect("the pool grows");
    assert!(pool.try_get(64).is_err());
    let mut waits = pool.get(64);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut waits).poll(&mut context).is_pending());

    // Another meter with the same label, whose queue has the same number.
    let device = dma::open("meter+sim:profile=bluefield3,label=cpu").expect("it opens");
    let busy = device.open_queue(&QueueOptions::new()).expect("a queue");
    let memory = || device.allocate(1 << 20).expect("memory");
    let flight = [(); 5].map(|()| busy.copy(memory(), memory()).expect("accepted"));
    busy.flush();
    let idle = dma::open("meter+cpu").expect("it opens");
    let idle_queue = idle.open_queue(&QueueOptions::new()).expect("a queue");

    let render = || {
        dma::layers::meter::publish();
        prometheus.render() + &dma::layers::meter::histograms()
    };
    let text = render();
    for (begin, expected) in [
        ("dma_in_flight{engine=\"cpu\",queue=\"0\"}", 5.0),
        ("dma_latency_seconds_count{engine=\"cpu\",queue=\"0\"}", 1.0),
        ("dma_size_bytes_bucket{engine=\"cpu\",queue=\"0\",le=\"64\"}", 1.0),
        ("dma_size_bytes_sum{engine=\"cpu\",queue=\"0\"}", 64.0),
        ("dma_descriptors_total{engine=\"cpu\",queue=\"0\",outcome=\"done\"}", 1.0),
        ("dma_pool_buffers{pool=\"ingest\",len=\"4096\"}", 3.0),
        ("dma_pool_max_buffers{pool=\"ingest\"", 3.0),
        ("dma_pool_in_use{pool=\"ingest\"", 3.0),
        ("dma_pool_waiting{pool=\"ingest\"", 1.0),
        ("dma_pool_exhausted_total{pool=\"ingest\"", 3.0),
        ("dma_pool_grown_total{pool=\"ingest\"", 1.0),
    ] {
        assert_eq!(value(&text, begin), expected, "{begin}: {text}");
    }
    assert!(value(&text, "dma_pool_current_wait_seconds{") > 0.0, "{text}");

    let typed: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let helped: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    assert!(typed.len() > 14 && typed.iter().all(|name| name.starts_with("dma_")), "{typed:?}");
    assert_eq!(typed, helped, "every metric has a help text");
    let shown: BTreeSet<_> = names(DASHBOARD).into_iter().map(family).collect();
    assert_eq!(shown, typed, "the dashboard shows exactly the existing metrics");
    let unknown: Vec<_> = names(ALERTS).into_iter().filter(|name| !typed.contains(family(name))).collect();
    assert!(
        !names(ALERTS).is_empty() && unknown.is_empty(),
        "the alert rules use unknown metrics: {unknown:?}"
    );

    // Publishing again does not count twice, and a dropped pool has no buffers.
    drop((held, third));
    assert_eq!(value(&render(), "dma_pool_exhausted_total{"), 3.0);
    drop(waits);
    drop(pool);
    let text = render();
    assert_eq!(value(&text, "dma_pool_buffers{"), 0.0, "{text}");
    assert_eq!(value(&text, "dma_pool_exhausted_total{"), 3.0, "{text}");

    // The counts of dropped meters remain, except those in flight.
    flight.into_iter().for_each(|transfer| _ = transfer.wait().expect("done"));
    drop((busy, device));
    drop((queue, engine, idle_queue, idle));
    let text = render();
    for (begin, expected) in [
        ("dma_in_flight{", 0.0),
        ("dma_descriptors_total{engine=\"cpu\",queue=\"0\",outcome=\"done\"}", 6.0),
        ("dma_latency_seconds_count{", 6.0),
        ("dma_size_bytes_bucket{engine=\"cpu\",queue=\"0\",le=\"65536\"}", 1.0),
        ("dma_size_bytes_bucket{engine=\"cpu\",queue=\"0\",le=\"+Inf\"}", 6.0),
        ("dma_size_bytes_sum{", 64.0 + 5.0 * 1_048_576.0),
    ] {
        assert_eq!(value(&text, begin), expected, "{begin}: {text}");
    }

    // Pools without a label share one, so that short-lived pools leave no series.
    let engine = dma::open("cpu").expect("it opens");
    let pools = || {
        let pool = || BufferPool::new(&engine, &PoolOptions::new().with_class(512, 2)).expect("a pool");
        let text = (pool(), pool(), render()).2;
        assert_eq!(value(&text, "dma_pool_buffers{pool=\"cpu\",len=\"512\"}"), 4.0, "{text}");
        text.lines().count()
    };
    assert_eq!((pools(), pools()), (pools(), pools()));
}

#[test]
fn the_dashboard_is_one_that_grafana_imports() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
}
