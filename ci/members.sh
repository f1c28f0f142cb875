#!/usr/bin/env bash
# Prints each package of the workspace and its folder, separated by a tab.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo tree --locked --workspace --depth 0 --prefix none | sed -nE 's/^([^ ]+) .*\((.+)\)$/\1\t\2/p'
