#!/usr/bin/env bash
# The packages that `cargo package` makes are complete: each contains a README, the licences and every file that its
# sources and examples include by path. A workspace of the unpacked packages resolves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
fail() {
    echo "$*" >&2
    exit 1
}

# The stand-ins and the programs are installed from the repository.
unpublished=(bindings dma-memcpy apps-shared copy-file dma-copy dma-bench test-support instructions dma-standin dma-{doca,spdk,dsa,cuda,rdma}-emu dma-cuda-ptx dma-dsa-preload)
cargo package --locked --workspace "${unpublished[@]/#/--exclude=}" --no-verify --allow-dirty

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
packages=()
while IFS=$'\t' read -r package _; do
    [[ " ${unpublished[*]} " != *" $package "* ]] || continue
    packages+=("$package")
    crate=$target/package/$package-$version.crate
    [[ -e "$crate" ]] || fail "cargo package wrote no $crate"
    tar -xzf "$crate" -C "$dir"
    unpacked=$dir/$package-$version
    [[ -s "$unpacked/README.md" ]] || fail "the package $package has no README.md"
    for licence in LICENSE-APACHE LICENSE-MIT; do
        cmp "$licence" "$unpacked/$licence" || fail "the package $package lacks $licence"
    done
    folders=("$unpacked/src")
    [[ ! -d "$unpacked/examples" ]] || folders+=("$unpacked/examples")
    while IFS=: read -r file path; do
        path=$(dirname "$file")/$(cut -d '"' -f 2 <<<"$path")
        [[ -e "$path" ]] || fail "the package $package lacks ${path#"$dir/"}, which ${file#"$dir/"} includes"
    done < <(grep -rE '^ *#\[path = "' --include='*.rs' "${folders[@]}" || true)
done < <(ci/members.sh)
((${#packages[@]})) || fail "the workspace has no packages"

# The packages are not published yet, so a workspace of the unpacked packages replaces the registry. It has the
# versions and profiles of this repository, so that existing builds of other dependencies are reused.
cp Cargo.lock "$dir/"
{
    echo '[workspace]'
    echo 'resolver = "3"'
    printf 'members = ['
    printf '"%s", ' "${packages[@]/%/-$version}"
    echo ']'
    echo '[patch.crates-io]'
    for package in "${packages[@]}"; do
        echo "$package = { path = \"$package-$version\" }"
    done
    awk '/^\[/ { keep = /^\[profile/ } keep' Cargo.toml
} >"$dir/Cargo.toml"
cargo metadata --offline --format-version 1 --manifest-path "$dir/Cargo.toml" >/dev/null
echo "${#packages[@]} packages are complete"
