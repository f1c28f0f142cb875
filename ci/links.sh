#!/usr/bin/env bash
# All links between the Markdown files of the repository lead to existing files and sections. Sections
# that are named in quotes after such a link or a path also exist: [ARCHITECTURE.md](ARCHITECTURE.md),
# "Adding an engine".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
fail() {
    echo "$1" >&2
    failed=1
}

# Prints the headings of the file $1, outside of code.
headings() {
    awk '/^[ \t]*```/ { fenced = !fenced } !fenced && /^#+ / { sub(/^#+ +/, ""); print }' "$1"
}

# Converts headings to GitHub's link names: in lower case, without punctuation, with hyphens for spaces.
anchors() {
    headings "$1" | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g' | tr '[:upper:]' '[:lower:]'
}

while read -r document; do
    folder=$(dirname "$document")
    # Removes code blocks, and joins the lines, because links and section names may be wrapped.
    text=$(awk '/^[ \t]*```/ { fenced = !fenced; next } !fenced' "$document" | tr '\n' ' ' | sed -E 's/ +/ /g')
    while read -r target; do
        [[ "$target" =~ ^[a-z]+: ]] && continue
        path=${target%%#*}
        file=$document
        if [[ -n "$path" ]]; then
            file=$(realpath -m --relative-to=. "$folder/$path")
            [[ -e "$file" ]] || {
                fail "$document links to $target, which does not exist"
                continue
            }
        fi
        if [[ "$target" == *#* && "$file" == *.md ]]; then
            anchors "$file" | grep -qxF -- "${target#*#}" ||
                fail "$document links to $target, but $file has no such section"
        fi
    done < <(grep -oE '\]\([^) ]+\)' <<<"$text" | sed -E 's/^\]\(//; s/\)$//')
    while IFS=$'\t' read -r path section; do
        file=$(realpath -m --relative-to=. "$folder/$path")
        [[ -f "$file" ]] || file=$path
        [[ -f "$file" ]] || {
            fail "$document names a section of $path, which does not exist"
            continue
        }
        headings "$file" | grep -qxF -- "$section" || fail "$document names the section \"$section\", which $file does not have"
    done < <(grep -oE '[A-Za-z0-9_./-]+\.md[)`]?,? "[A-Z][^"]+"' <<<"$text" |
        sed -E 's/^([A-Za-z0-9_.\/-]+\.md)[)`]?,? "([^"]+)"$/\1\t\2/; s/[.,]$//')
done < <(git ls-files -- '*.md')
((failed)) || echo "every link between the documents has a target"
exit "$failed"
