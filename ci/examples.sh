#!/usr/bin/env bash
# Every example of every package, as the README's test command builds it, runs without arguments and
# succeeds. `pci_proxy` and `test_card` need arguments; readme.sh, kernel.sh and sdk.sh
# run them. The DPU's and the host's example run at the same time, and so do two sides of
# `dma-copy`. The example of a backend also builds as a separate project that depends only on `dma`.
# The C interface is installed, and a C program builds on it; the tests of dma-c run all C examples.
#   ci/examples.sh           these checks
#   ci/examples.sh release   with the optimised library, as users install it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=300 # for one example; they take a few

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir

ran=0
while IFS=$'\t' read -r package folder; do
    [[ -d "$folder/examples" ]] || continue
    while IFS=$'\t' read -r name path; do
        case $name in 11_copy_dpu | pci_proxy | test_card) continue ;; esac
        echo "--- $package: $name"
        timeout "$seconds" "$path" </dev/null || {
            echo "example $name of $package: exit status $? (124: ran for more than $seconds s)" >&2
            exit 1
        }
        ran=$((ran + 1))
    done < <(ci/built.sh "$package" example)
done < <(ci/members.sh)
((ran)) || {
    echo "no example ran, because ci/built.sh listed none" >&2
    exit 1
}

echo "--- a backend as a separate project"
mkdir -p "$dir/backend/src"
cp examples/08_write_a_backend.rs "$dir/backend/src/main.rs"
cat >"$dir/backend/Cargo.toml" <<EOF
[package]
name = "a-backend-elsewhere"
edition = "2024"

[dependencies]
dma = { path = "$PWD", features = ["conformance"] }

[workspace]
EOF
# Uses the dependency versions of this workspace, which are already downloaded.
cp Cargo.lock "$dir/backend/"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
CARGO_TARGET_DIR=$target timeout "$seconds" cargo run --offline --quiet --manifest-path "$dir/backend/Cargo.toml"

echo "--- host and DPU"
host=$(ci/built.sh dma example 10_copy_host) dpu=$(ci/built.sh dma example 11_copy_dpu)
rm -f "$dir/dma-export.bin"
mkfifo "$dir/enter"
timeout "$seconds" "$host" --txt "a text" <"$dir/enter" &
running=$!
exec 3>"$dir/enter"
until [[ -e "$dir/dma-export.bin" ]]; do
    kill -0 "$running" || exit 1
    sleep 0.1
done
[[ "$(timeout "$seconds" "$dpu" | tail -n 1)" == "a text" ]]
echo >&3
wait "$running"
echo "$((ran + 2)) examples ran"

echo "--- a C program, as README.md builds it"
# Without optimisation the library is built in a third of the time.
profile=dev
[[ "${1:-}" != release ]] || profile=release
bindings/c/install "$dir/prefix" --profile "$profile"
export PKG_CONFIG_PATH=$dir/prefix/lib/pkgconfig LD_LIBRARY_PATH=$dir/prefix/lib
if command -v pkg-config >/dev/null; then
    read -ra flags <<<"$(pkg-config --cflags --libs dma)"
else
    echo "skipped: pkg-config, which is not installed; the C program is built with the same flags"
    flags=(-I"$dir/prefix/include" -L"$dir/prefix/lib" -ldma)
fi
cc -std=c99 bindings/c/examples/first_copy.c -o "$dir/first_copy" "${flags[@]}"
[[ "$("$dir/first_copy" cpu | tail -n 1)" == "1048576 bytes copied" ]]
unset PKG_CONFIG_PATH LD_LIBRARY_PATH

echo "--- dma-copy, as README.md starts it"
program=$(ci/built.sh dma-copy bin dma-copy)
dma_copy() { timeout "$seconds" "$program" "$@"; }
dma_copy --role dpu --channel "unix:$dir/socket" --file "$dir/copy" &
dpu=$!
dma_copy --role host --channel "unix:$dir/socket" --file Cargo.lock
wait "$dpu"
cmp Cargo.lock "$dir/copy"
