#!/usr/bin/env bash
# Installs what the other scripts use besides Rust and a C compiler, from Debian's packages: shellcheck and shfmt for
# format.sh; libclang for bindings.sh; g++ and pkg-config, with which tests build programs for the stand-in SDK; a
# compiler, a standard library and a C library for aarch64.sh. The only script that changes the machine.
# Exits with 77 ("skipped") where there is no apt or no right to use it: the scripts then say what they leave out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
    echo "skipped: $1"
    exit 77
}

command -v apt-get >/dev/null || skip "apt is not available on this machine"
sudo=()
if ((EUID != 0)); then
    sudo -n true 2>/dev/null || skip "installing packages needs root"
    sudo=(sudo)
fi

packages=(shellcheck shfmt g++ pkg-config gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
if ci/aarch64.sh --rustup-target; then
    echo "rustup has the standard library for aarch64: Debian's compiler is not needed"
elif [[ "$(dpkg --print-architecture)" == amd64 ]]; then
    # Debian's rustc, with the standard library of another architecture beside its own: no download of a toolchain.
    "${sudo[@]}" dpkg --add-architecture arm64
    packages+=(rustc-web libstd-rust-web-dev:arm64)
fi

apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3)
"${apt[@]}" update || echo "apt-get update failed: going on with the lists that are there"
libclang=$(apt-cache search --names-only '^libclang1-[0-9]+$' | sed 's/ .*//' | sort -V | tail -n 1)
packages+=(${libclang:+"$libclang"})
# --no-remove: rustc-web conflicts with Debian's own rustup package, which must not disappear behind anyone's back.
"${apt[@]}" install -y --no-install-recommends --no-remove "${packages[@]}" </dev/null ||
    skip "apt-get could not install: ${packages[*]}"
