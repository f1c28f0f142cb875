#!/usr/bin/env bash
# The two commands in README.md work. Each command is one line of a fenced block:
#   ci/readme.sh test   runs the command that begins with `cargo test`
#   ci/readme.sh main   runs the command that begins with `cargo run --release -p copy-file`. Its last two words,
#                       the source and the destination, are replaced by a file of random bytes and a new file, which are
#                       compared
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints the first line within README.md's fenced blocks that begins with $1, without a prompt before it.
command_from_readme() {
    local found
    found=$(awk -v start="$1" '
        /^[ \t]*```/ { fenced = !fenced; next }
        fenced {
            sub(/^[ \t]*(\$ )?/, "")
            sub(/[ \t]+(#.*)?$/, "")
            if (index($0, start) == 1) { print; exit }
        }' README.md)
    [[ -n "$found" ]] || {
        echo "README.md has no fenced line that begins with: $1" >&2
        return 1
    }
    echo "$found"
}

# Tests install stand-ins, and that builds no crate that the tests' own build has built. The dependencies of test-support
# select the features for it.
no_crate_is_built_again() {
    local library again
    for library in cuda doca rdma spdk; do
        again=$(cargo build --locked --profile test --lib -p "dma-$library-emu" -p test-support --message-format=json |
            sed -nE 's/.*"name":"([^"]+)".*"fresh":false.*/\1/p')
        [[ -z "$again" ]] || {
            echo "the stand-in $library needs other features than the tests of the workspace: add those of ${again//$'\n'/, }" \
                "(cargo tree -e features) to tests/support/Cargo.toml" >&2
            exit 1
        }
    done
}

case "${1:-}" in
test)
    command=$(command_from_readme "cargo test")
    echo "\$ $command"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    bash -c "$command --no-run" </dev/null
    no_crate_is_built_again
    bash -c "$command" </dev/null 2>&1 | tee "$log"
    grep -qE '^test result: ok\. [1-9]' "$log" || {
        echo "README.md's command ran no test: $command" >&2
        exit 1
    }
    ;;
main)
    command=$(command_from_readme "cargo run --release -p copy-file")
    [[ "$command" =~ ^(.*\ --(\ .*)?)\ [^\ ]+\ [^\ ]+$ ]] || {
        echo "README.md's command does not end with a source and a destination: $command" >&2
        exit 1
    }
    command=${BASH_REMATCH[1]}
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    # The length is not a multiple of the chunk size.
    head -c $((64 * 1024 * 1024 + 4321)) /dev/urandom >"$folder/source"
    echo "\$ $command $folder/source $folder/destination"
    bash -c "$command \"\$1\" \"\$2\"" readme "$folder/source" "$folder/destination" </dev/null
    cmp "$folder/source" "$folder/destination"
    left=$(ls -A "$folder")
    [[ "$left" == $'destination\nsource' ]] || {
        echo "the copy left other files behind: $left" >&2
        exit 1
    }
    echo "the copy is the same, byte for byte"
    ;;
*)
    echo "usage: ci/readme.sh test|main" >&2
    exit 2
    ;;
esac
