#!/usr/bin/env bash
# The Python package builds as a wheel for CPython 3.11 and later, installs into a fresh environment, and works there on the
# engines of this machine without hardware and on the stand-ins for BlueField and for CUDA's driver: every operation beside plain
# Python, the rule for memory that Python views, waits, threads, forks, the end of the interpreter, and random programs. The code of
# docs/python.md runs. A short program has no errors under valgrind and with Python's checks of memory. mypy accepts the
# package's types, and the crate passes clippy. No wheel needs a vendor library.
#
#   ci/python.sh            tests a wheel that is built without optimisation
#   ci/python.sh release    tests the wheel of bindings/python/wheel, which must be below 12 MB and run on glibc 2.28: with the tests above,
#                           on the stand-ins of all devices, and on each version of Python that this machine has. Two agents of NIXL move bytes by its
#                           plugin. Times beside Python's own are printed. pyright accepts the types. `pip install ./bindings/python` works. If a
#                           free-threaded interpreter is installed (python3.14t, python3.13t), its wheel passes the tests in parallel threads. If Rust's standard library for
#                           aarch64 is installed, the wheel for aarch64 is built
#   ci/python.sh debug      also runs all tests with Python's checks of memory (-X dev, PYTHONMALLOC=debug)
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

# Prints a command for a version of Python, such as 3.13 or 3.13t. Command names of version managers may stand for no interpreter,
# and pyenv and uv keep versions that are not on the path.
interpreter() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1%t}".*"/bin/python$1" \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}/cpython-${1%t}".*"/bin/python$1"; do
        if "$candidate" -c pass 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

python=
for candidate in python3 "$(interpreter 3.14)" "$(interpreter 3.13)" "$(interpreter 3.12)" "$(interpreter 3.11)"; do
    if "$candidate" -c 'import sys, sysconfig; sys.exit(sys.version_info < (3, 11) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' \
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

if [[ "$profile" == dev ]]; then
    "$bin/maturin" build --quiet --profile dev --locked --manifest-path "$crate/Cargo.toml" --interpreter "$bin/python" --out "$made/wheel"
else
    CARGO_TARGET_DIR=$target "$crate/wheel" "$made/wheel" --python "$bin/python"
fi
wheel=$(echo "$made"/wheel/*.whl)
[[ "$wheel" == *-cp311-abi3-* ]] || {
    echo "the wheel is not for all versions from 3.11 on: $wheel" >&2
    exit 1
}
size=$(stat --format %s "$wheel")
"$bin/pip" install --quiet --disable-pip-version-check "$wheel"

# The installed package is tested, not the sources.
cp -r "$crate/tests" docs/python.md "$made/"
tests() {
    # Two GPUs, each with a small memory.
    env --chdir "$made/tests" DMA_PYTHON_GUIDE="$made/python.md" DMA_PYTHON_ENGINES="${engines:-}" DMA_PYTHON_CUDA="$made/cuda/lib" \
        CUDA_EMU=$'memory = "64M"\n[[gpu]]\n[[gpu]]' "$@"
}
CARGO_TARGET_DIR=$target standins/doca-emu/install "$made/doca" --profile dev >/dev/null
CARGO_TARGET_DIR=$target standins/cuda-emu/install "$made/cuda" --profile dev >/dev/null
engines=$'doca:lib='"$made/doca"$'\ncuda:lib='"$made/cuda/lib" tests "$bin/python" -m pytest --quiet -p no:cacheprovider
if [[ "${1:-}" == debug ]]; then
    PYTHONMALLOC=debug tests "$bin/python" -X dev -m pytest --quiet -p no:cacheprovider
fi
PYTHONMALLOC=debug tests "$bin/python" -X dev smoke.py
if command -v valgrind >/dev/null; then
    # With the C library's allocator, memcheck sees each object of Python.
    PYTHONMALLOC=malloc tests timeout 300 valgrind -q --fair-sched=yes --error-exitcode=9 --suppressions=valgrind.supp "$bin/python" smoke.py
else
    echo "skipped: the program under valgrind, which is not installed"
fi
[[ "$profile" != release ]] || env --chdir "$made" "$bin/python" "$PWD/$crate/benches/figures.py"
"$bin/mypy" --strict --cache-dir "$made/mypy" --python-executable "$bin/python" "$crate/python/dma" "$crate/tests/typed.py"
echo "a wheel of $size bytes, profile $profile, $("$bin/python" --version)"
[[ "$profile" == release ]] || exit 0

if "$bin/pip" install --quiet --disable-pip-version-check 'pyright[nodejs]' >"$made/log" 2>&1; then
    rm -rf "$made/pyright"
    mkdir "$made/pyright"
    cp -r "$crate/python/dma" "$crate/tests/typed.py" "$made/pyright/"
    echo '{"typeCheckingMode": "strict"}' >"$made/pyright/pyrightconfig.json"
    "$bin/pyright" --pythonpath "$bin/python" --project "$made/pyright"
else
    echo "skipped: pyright: $(tail -n 1 "$made/log")"
fi

# Every operation on the stand-ins of all devices.
engines="cuda:lib=$made/cuda/lib"
for name in ioat:spdk rdma:rdma; do
    CARGO_TARGET_DIR=$target "standins/${name#*:}-emu/install" "$made/${name#*:}" --profile dev >/dev/null
    engines+=" ${name%:*}:lib=$made/${name#*:}"
done
tests "$bin/python" -m pytest --quiet -p no:cacheprovider test_operations.py
if [[ "$(uname -m)" == x86_64 ]]; then
    CARGO_TARGET_DIR=$target standins/dsa-emu/install "$made/dsa" --profile dev >/dev/null
    engines=dsa tests "$made/dsa/bin/dsa-emu-run" "$bin/python" -m pytest --quiet -p no:cacheprovider -k dsa test_operations.py
fi
engines=''

# Other versions of Python, each in a fresh environment.
for version in 3.{11,12,13,14}; do
    other=$(interpreter "$version") || {
        echo "skipped: Python $version is not installed"
        continue
    }
    rm -rf "$made/other"
    "$other" -m venv "$made/other"
    "$made/other/bin/pip" install --quiet --disable-pip-version-check "$wheel"
    tests "$made/other/bin/python" smoke.py
    echo "the wheel works in $("$made/other/bin/python" --version)"
done

# NIXL's own dependencies are PyTorch and CUDA, which these agents do not use.
if "$bin/pip" install --quiet --disable-pip-version-check --no-deps nixl-cu12==1.5.1 >"$made/log" 2>&1; then
    NIXL_LOG_LEVEL=ERROR tests timeout 300 "$bin/python" nixl.py
else
    echo "skipped: the NIXL plugin: $(tail -n 1 "$made/log")"
fi

rm -rf "$made/other"
"$python" -m venv "$made/other"
"$made/other/bin/pip" install --quiet --disable-pip-version-check "./$crate"
for command in list "doctor cpu" "bench -e cpu 64"; do
    # shellcheck disable=SC2086 # split into words on purpose
    (cd "$made" && "$made/other/bin/python" -m dma $command >/dev/null)
done
echo "pip install ./$crate works"

if ! free=$(interpreter 3.14t) && ! free=$(interpreter 3.13t); then
    echo "skipped: there is no free-threaded interpreter"
else
    rm -rf "$made/free" "$made/wheel-free"
    "$free" -m venv "$made/free"
    "$made/free/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: pytest numpy
    CARGO_TARGET_DIR=$target "$crate/wheel" "$made/wheel-free" --python "$made/free/bin/python"
    PYO3_PYTHON=$made/free/bin/python CARGO_TARGET_DIR=$target/python-free \
        cargo clippy --quiet --locked --manifest-path "$crate/Cargo.toml" -- -D warnings
    "$made/free/bin/pip" install --quiet --disable-pip-version-check "$made"/wheel-free/*.whl
    # A RuntimeWarning would say that the import has switched the global lock on.
    tests "$made/free/bin/python" -W error::RuntimeWarning -m pytest --quiet -p no:cacheprovider
fi

if [[ "$(uname -m)" != x86_64 ]]; then
    echo "skipped: wheels for other processors"
elif ! ci/aarch64.sh --rustup-target && [[ ! -x /usr/bin/rustc ]]; then
    echo "skipped: the wheel for aarch64, because there is no standard library for it"
else
    mkdir -p "$made/rustc"
    ci/aarch64.sh --rustup-target || ln -sf /usr/bin/rustc "$made/rustc/rustc"
    RUSTC=$(PATH=$made/rustc:$PATH command -v rustc) PATH=$made/rustc:$PATH CARGO_TARGET_DIR=$target/aarch64-wheel \
        "$crate/wheel" "$made/wheel-aarch64" --target aarch64 --python "$bin/python"
fi
