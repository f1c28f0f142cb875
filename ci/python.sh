#!/usr/bin/env bash
# The Python package builds as a wheel for CPython 3.11 and later, installs into a fresh environment, and works there on the
# engines of this machine without hardware and on the stand-in for BlueField: every operation beside plain Python, the rule for memory
# that Python views, waits, threads, forks, the end of the interpreter, and random programs. The code of docs/python.md runs. mypy
# accepts the package's types, and the crate passes clippy. The wheel that users build is below 12 MB. No wheel needs a vendor
# library.
#
#   ci/python.sh            tests a wheel that is built without optimisation
#   ci/python.sh release    tests the wheel that users build, and checks its size
#   ci/python.sh debug      also tests with Python's checks of memory (-X dev, PYTHONMALLOC=debug)
#
# Exits with 77 ("skipped") without Python 3.11 or maturin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    echo "skipped: $1"
    exit 77
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target/python
made=$target/ci-python
mkdir -p "$made"

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null &&
        "$candidate" -c 'import sys, sysconfig; sys.exit(sys.version_info < (3, 11) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' \
            2>/dev/null; then
        python=$candidate
        break
    fi
done
[[ -n "$python" ]] || skip "there is no Python 3.11 or later"

rm -rf "$made/venv" "$made/wheel"
"$python" -m venv "$made/venv" 2>"$made/log" || skip "there is no venv: $(tail -n 1 "$made/log")"
bin=$made/venv/bin
timeout 300 "$bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' mypy numpy pyarrow pytest uvloop >"$made/log" 2>&1 ||
    skip "pip cannot install maturin and the tests' packages: $(tail -n 1 "$made/log")"

crate=bindings/python
profile=dev
[[ "${1:-}" != release ]] || profile=release
cargo clippy --quiet --locked --profile "$profile" --manifest-path "$crate/Cargo.toml" -- -D warnings

"$bin/maturin" build --quiet --profile "$profile" --locked --manifest-path "$crate/Cargo.toml" --interpreter "$bin/python" --out "$made/wheel"
wheel=$(echo "$made"/wheel/*.whl)
[[ "$wheel" == *-cp311-abi3-* ]] || {
    echo "the wheel is not for all versions from 3.11 on: $wheel" >&2
    exit 1
}
size=$(stat --format %s "$wheel")
[[ "$profile" == dev ]] || ((size < 12000000)) || {
    echo "the wheel has $size bytes" >&2
    exit 1
}
"$bin/pip" install --quiet --disable-pip-version-check "$wheel"

# The installed package is tested, not the sources.
cp -r "$crate/tests" docs/python.md "$made/"
tests() {
    env --chdir "$made/tests" DMA_PYTHON_GUIDE="$made/python.md" DMA_PYTHON_ENGINES="${engines:-}" "$@"
}
CARGO_TARGET_DIR=$target standins/doca-emu/install "$made/doca" --profile dev >/dev/null
engines="doca:lib=$made/doca" tests "$bin/python" -m pytest --quiet -p no:cacheprovider
if [[ "${1:-}" == debug ]]; then
    PYTHONMALLOC=debug tests "$bin/python" -X dev -m pytest --quiet -p no:cacheprovider
fi
"$bin/mypy" --strict --cache-dir "$made/mypy" --python-executable "$bin/python" "$crate/python/dma" "$crate/tests/typed.py"
echo "a wheel of $size bytes, profile $profile, $("$bin/python" --version)"
