#!/usr/bin/env bash
# Checks with Prometheus' own tool that the published metrics follow its conventions, that the alert rules are valid,
# and that each alert fires when it should and only then (docs/metrics/alerts.test.yaml). Exits with 77 ("skipped")
# without `promtool`, which Debian's package `prometheus` has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v promtool >/dev/null; then
    echo "skipped: promtool is not installed"
    exit 77
fi
promtool check rules docs/metrics/alerts.yaml
promtool test rules docs/metrics/alerts.test.yaml
text=$(cargo run --locked --quiet --example 13_metrics)
promtool check metrics <<<"$text"
echo "$(grep -c '^# TYPE' <<<"$text") metrics"
