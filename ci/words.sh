#!/usr/bin/env bash
# Comments and docs are no wider than the code, sentences of them begin with a verb or a named subject, names of
# functions do too, and ARCHITECTURE.md's map names every file at the top of each crate.
#   ci/words.sh [list]     list: prints every sentence that begins with What, How, Whether, Who or Where as a noun clause
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

width=$(sed -n 's/^max_width = //p' .rustfmt.toml)
mapfile -t sources < <(git ls-files -- '*.rs' | grep -vE '/(bindings|table)\.rs$')
failed=0

wide=$(awk -v width="$width" '/^[ \t]*\/\// && length > width { print FILENAME ":" FNR ": " length " columns" }' "${sources[@]}")
if [[ -n "$wide" ]]; then
    printf 'comments wider than %s columns:\n%s\n' "$width" "$wide" >&2
    failed=1
fi

# A paragraph of comment lines is one text; a question is no noun clause.
sentences=$(awk '
    function tell(    rest, end, sentence, at) {
        rest = text
        while (rest != "") {
            end = match(rest, /[.!?:][ ]+[A-Z`\[]/)
            sentence = end ? substr(rest, 1, RSTART) : rest
            at = end ? RSTART + RLENGTH - 1 : length(rest) + 1
            rest = end ? substr(rest, at) : ""
            count++
            if (sentence ~ /^(What|How|Whether|Who|Whoever|Where|Whatever)[ ]/ && sentence !~ /[?]$/)
                print file ":" line ": " sentence
        }
        text = ""
    }
    FNR == 1 { tell() }
    /^[ \t]*\/\// {
        words = $0
        sub(/^[ \t]*\/\/[\/!]?[ ]?/, "", words)
        if (words == "" || words ~ /^(\||-|\*|#|```)/) { tell(); sub(/^[-*|# ]+/, "", words); if (words ~ /^```/) words = "" }
        if (text == "") { file = FILENAME; line = FNR }
        text = text (text == "" ? "" : " ") words
        next
    }
    { tell() }
    END { tell(); print count }' "${sources[@]}")
# The last line is the number of all sentences.
count=${sentences##*$'\n'}
sentences=$(head -n -1 <<<"$sentences")
noun=$(grep -c . <<<"$sentences" || true)
if [[ "${1:-}" == list ]]; then
    echo "$sentences"
fi
echo "$noun of $count sentences in comments begin with a noun clause"
if ((noun * 100 >= count)); then
    echo "that is 1 % or more: see .github/CONTRIBUTING.md, Words" >&2
    failed=1
fi

noun_names=$(grep -nE 'fn (what|who|whoever|how|whether|where|whatever)_' "${sources[@]}" || true)
if [[ -n "$noun_names" ]]; then
    printf 'names of functions that begin with a noun clause:\n%s\n' "$noun_names" >&2
    failed=1
fi

map=$(cat ARCHITECTURE.md dma-bench/ARCHITECTURE.md)
# Files and folders right below each crate's src.
while read -r name file; do
    grep -qwF -- "$name" <<<"$map" || {
        echo "the maps do not name $file" >&2
        failed=1
    }
done < <(git ls-files -- '*/src/*' 'src/*' | grep -vE '^(fuzz|ci)/|/(lib|main)\.rs$' |
    sed -nE 's#^((.*/)?src/([^/]+)).*#\3 \1#p' | sed -E 's#^([^ ]+)\.rs #\1 #' | sort -u)
exit "$failed"
