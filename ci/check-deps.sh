#!/usr/bin/env bash
# The dependencies fulfil these promises:
# - Cargo.lock matches Cargo.toml.
# - dma-core depends only on the crates listed here: no C code, no async runtime, no compiler of another language.
# - By default, a build of `dma` compiles fewer than 64 crates, including `dma`. Of these, 18 encrypt the messages between hosts of
#   `rdma`. `copy-file`, the first program that users build, has none of them.
# - By default, `dma` builds only with Rust (no C compiler, bindgen, pkg-config or OpenSSL), links only the C
#   library, and has no async runtime and no crate in two versions.
# - All dependencies, including those of the build, have permissive licences.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "$*" >&2
    exit 1
}

targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu)

# Prints the names of all dependencies of package $1 on all targets. Further arguments are passed to `cargo tree`.
dependencies() {
    local package=$1 target
    shift
    for target in "${targets[@]}"; do
        cargo tree --locked -p "$package" --target "$target" --prefix none --no-dedupe --format '{p}' "$@"
    done | sed -E 's/ .*//' | sort -u | grep -vx "$package"
}

cargo metadata --locked --format-version 1 >/dev/null || fail "Cargo.lock is stale: run cargo check and commit it"

# Before adding a crate, check its purpose and its maintenance.
core_known=(
    bitflags bytes cfg-if crc32fast crossbeam-utils
    dma-process # Of this workspace.
    rustix linux-raw-sys
    libc                                    # Declarations of pread and pwrite: rustix takes slices, and a window has none.
    strsim                                  # The closest name, in errors.
    serde serde_core serde_derive humantime # The feature serde alone.
    # Only the feature schemars needs these crates.
    schemars schemars_derive dyn-clone ref-cast ref-cast-impl serde_derive_internals serde_json itoa memchr zmij
    tracing tracing-core once_cell pin-project-lite
    tracing-attributes proc-macro2 quote syn unicode-ident # run by the compiler alone
)
# Features that implement the traits of another crate, such as compio, are not checked here.
core=$(dependencies dma-core --edges normal,build --features serde,schemars)
new=$(comm -13 <(printf '%s\n' "${core_known[@]}" | sort) <(echo "$core"))
[[ -z "$new" ]] || fail "dma-core has dependencies that ci/check-deps.sh does not list:" "$new"

default=$(dependencies dma --edges normal,build)
foreign=$(grep -xE 'cc|cmake|bindgen|pkg-config|vcpkg|autocfg|nasm-rs|openssl.*|native-tls|.*-sys' <<<"$default" |
    grep -vxE 'linux-raw-sys|dma-(doca|dsa|spdk|verbs)-sys') || true # Declarations only; our own load at run time.
[[ -z "$foreign" ]] || fail "the default build of dma needs more than Rust:" "$foreign"
(($(wc -l <<<"$default") < 63)) || fail "the default build of dma has too many dependencies:" "$default"
! dependencies copy-file --edges normal,build | grep -xE 'snow' || fail "copy-file builds the encryption, which it does not need"
runtime=$(grep -xE 'tokio|async-std|smol|async-executor|futures-executor|mio' <<<"$default") || true
[[ -z "$runtime" ]] || fail "the default build of dma brings an async runtime:" "$runtime"
for target in "${targets[@]}"; do
    twice=$(cargo tree --locked -p dma --target "$target" --edges normal,no-proc-macro --duplicates --quiet)
    [[ -z "$twice" ]] || fail "the default build of dma has a crate in two versions:"$'\n'"$twice"
done

# Accepts a package if MIT or Apache-2.0 is one of its choices, or if all its licences are permissive.
permissive='MIT|Apache-2\.0|BSD-[23]-Clause|ISC|Zlib|0BSD|BSL-1\.0|CC0-1\.0|Unlicense|Unicode-3\.0|LLVM-exception'
while IFS='|' read -r licence package; do
    names=$(grep -oE '[A-Za-z0-9.-]+' <<<"$licence" | grep -vxE 'AND|OR|WITH') || true
    if [[ "$licence" != *AND* ]] && grep -qxE 'MIT|Apache-2\.0' <<<"$names"; then
        continue
    fi
    if [[ -z "$names" ]] || grep -qvxE "$permissive" <<<"$names"; then
        fail "$package has the licence \"$licence\", which is not on the list of permissive licences"
    fi
done < <(cargo tree --locked --workspace --all-features --target all --prefix none --format '{l}|{p}' | sed "s| (\*)\$||; /^$/d" | sort -u)

echo "$(wc -l <<<"$core") dependencies of dma-core and $(wc -l <<<"$default") of dma fulfil the promises"
