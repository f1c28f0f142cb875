#!/usr/bin/env bash
# `typos` finds no misspelled word (ci/typos.toml lists the exceptions). Exits with 77 ("skipped") without `typos`
# (pip install typos, or cargo install typos-cli).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v typos >/dev/null || {
    echo "skipped: typos is not installed (pip install typos)"
    exit 77
}
typos --config ci/typos.toml
echo "no word is misspelled"
