#!/usr/bin/env bash
# Installs the tools that the other scripts need from Debian's packages: shellcheck and shfmt for format.sh;
# libclang for bindings.sh; fio for figures.sh; g++ and pkg-config for tests that build programs for the stand-in SDK; make for
# kernel.sh; a compiler, a standard library and a C library for aarch64.sh. No other script changes the machine.
# Exits with 77 ("skipped") without apt or the right to use it. The other scripts then report the checks that they skip.
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

packages=(shellcheck shfmt fio g++ make pkg-config gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
if ci/aarch64.sh --rustup-target; then
    echo "rustup has the standard library for aarch64: Debian's compiler is not needed"
elif [[ "$(dpkg --print-architecture)" == amd64 ]]; then
    # Uses Debian's rustc and its standard library for aarch64, so that no toolchain has to be downloaded.
    "${sudo[@]}" dpkg --add-architecture arm64
    packages+=(rustc-web libstd-rust-web-dev:arm64)
fi

apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3)
"${apt[@]}" update || echo "apt-get update failed; continuing with the existing package lists"
libclang=$(apt-cache search --names-only '^libclang1-[0-9]+$' | sed 's/ .*//' | sort -V | tail -n 1)
packages+=(${libclang:+"$libclang"})
# --no-remove is needed because rustc-web conflicts with Debian's rustup package, which must not be removed silently.
"${apt[@]}" install -y --no-install-recommends --no-remove "${packages[@]}" </dev/null ||
    skip "apt-get could not install: ${packages[*]}"

# typos.sh needs `typos`, which is installed by pip.
if ! command -v typos >/dev/null && command -v pip3 >/dev/null; then
    "${sudo[@]}" env PIP_BREAK_SYSTEM_PACKAGES=1 pip3 install --quiet --root-user-action=ignore typos || echo "pip could not install typos"
fi
