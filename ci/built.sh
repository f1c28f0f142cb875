#!/usr/bin/env bash
# Prints the path of a program of PACKAGE that the README's test command builds. Builds the program if that command has
# not run.
#   ci/built.sh PACKAGE lib|test|bin|example NAME
# Without NAME, it prints a line for each program of that kind: its name, a tab, its path. `lib` is the program of a
# library's unit tests. The script builds the whole workspace: building only one package would select other features of
# its dependencies, so most of the workspace would be built again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# =~ ^[23]$ && "$2" =~ ^(lib|test|bin|example)$ ]] || {
    echo "usage: ci/built.sh PACKAGE lib|test|bin|example [NAME]" >&2
    exit 2
}
# Artifacts of programs and examples are not tests.
case $2 in lib | test) test=true ;; *) test=false ;; esac

# Prints one line for each artifact: package, kind and name of the target, whether it is a test, path of the program.
programs=$(cargo test --locked --workspace --no-run --message-format json-render-diagnostics </dev/null |
    sed -nE 's/.*"package_id":"[^"]*[/#]([a-z-]+)[#@][0-9][^"]*".*"kind":\["([a-z-]+)".*"name":"([^"]+)".*"test":(true|false)\},.*"executable":"([^"]+)".*/\1 \2 \3 \4 \5/p')
if (($# == 2)); then
    sed -nE "s/^$1 ($2|${2/lib/cdylib|rlib}) ([^ ]+) $test (.*)/\2\t\3/p" <<<"$programs"
    exit
fi
path=$(sed -nE "s/^$1 ($2|${2/lib/cdylib|rlib}) $3 $test //p" <<<"$programs")
[[ -n "$path" && "$path" != *$'\n'* ]] || {
    echo "package $1 must have exactly one $2 $3, but has: ${path:-none}" >&2
    exit 1
}
echo "$path"
