#!/usr/bin/env bash
# Comments and docs are at most as wide as the code. Less than 1 % of the sentences in comments, docs, READMEs and
# program texts are fragments, or use an idiom that has a plainer word. No function's name begins with a noun clause
# (`what_`). Each SAFETY comment contains its own reason. Libraries start threads with the signals blocked. The maps in ARCHITECTURE.md name every file at the top of
# each crate, in the entry of that crate, and only existing files.
#   ci/words.sh [list]     with `list`, prints every such sentence
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

width=$(sed -n 's/^max_width = //p' .rustfmt.toml)
mapfile -t sources < <(git ls-files -- '*.rs' | grep -vE '/(bindings|call_bindings|table)\.rs$')
mapfile -t documents < <(git ls-files -- '*.md' | grep -vE '(^|/)CHANGELOG\.md$')
failed=0

wide=$(awk -v width="$width" '/^[ \t]*\/\// && length > width { print FILENAME ":" FNR ": " length " columns" }' "${sources[@]}")
if [[ -n "$wide" ]]; then
    printf 'comments wider than %s columns:\n%s\n' "$width" "$wide" >&2
    failed=1
fi

references=$(grep -nE 'SAFETY: ([Aa]s (above|before)|[Tt]he same[.]|[Ss]ee above)' "${sources[@]}" || true)
if [[ -n "$references" ]]; then
    printf 'SAFETY comments that name another place for the reason:\n%s\n' "$references" >&2
    failed=1
fi

# Tests, examples and programs start their threads as they like.
# shellcheck disable=SC2046 # the files are words
threads=$(awk '
    FNR == 1 { tests = 0; blocked = -9 }
    /mod ([a-z_]*_)?tests \{/ { tests = 1 }
    /with_signals_blocked/ { blocked = FNR }
    !tests && /[.:]spawn(_scoped)?\([^)]/ && FNR - blocked > 3 { print FILENAME ":" FNR ":" $0 }
' $(printf '%s\n' "${sources[@]}" | grep -vE '(^|/)(([a-z_]*_)?tests?|examples|benches|fuzz|apps|ci|dma-bench|conformance)/|tests\.rs$'))
threads+=$'\n'$(git ls-files -- 'bindings/c/nixl/*pp' | grep -v threads.hpp | xargs grep -nE 'std::(thread|async)\(|pthread_create|thread_\(\[' || true)
if [[ "$threads" != $'\n' ]]; then
    # shellcheck disable=SC2016 # names of functions
    printf 'threads that may take signals of the program; use `spawn_thread`, `with_signals_blocked` or `start_thread`:\n%s\n' "$threads" >&2
    failed=1
fi

# A text is a paragraph of comment lines or of a document, or a string of at least four words.
sentences=$(awk '
    # Returns the kind of finding in a sentence, or "".
    function kind(sentence,    s) {
        if (sentence ~ /^(What|How|Whether|Who|Whoever|Where|Whatever|Which)[ ]/ && sentence !~ /[?]/) return "noun clause"
        if (sentence ~ /^(Of|Those|That of|One that|One of|Ones|Likewise|To be|Told|Known)[ ,]/) return "no head"
        if (sentence ~ /^(As|Not) (the|a|an|it|they|for|of|above|so|by|in|as|on|to|earlier)[ ,.]/) return "no head"
        if (sentence ~ /^(But (for|of|not)|With (it|them|that)|Without (it|them|that)|From (it|them)|For (it|them|that|those)|Out of (its|it)|So (many|much)|As (many|much)) /)
            return "no head"
        s = " " tolower(sentence) " "
        if (s ~ / (so|as) (many|much) / && s !~ / (so|as) (many|much) as (possible|needed)/) return "so many"
        if (s ~ / (is|are|was|were|be) there[ .,;:]/ && s !~ / there (a|an|any|no|is) /) return "is there"
        if (s ~ / (is|are|was) no / && s !~ / there (is|are|was) no / && s !~ / (is|are|was) no (longer|more|less|other|such|need|way|room|doubt|device|match|limit|error)/)
            return "is no"
        if (s ~ / (whoever|somebody|whatever is|nobody (has|is|may|can|else)) /) return "nobody"
        if (s ~ / for ever[ .,;:]/) return "for ever"
        if (s ~ / but for /) return "but for"
        if (s ~ / in (the )?place of /) return "in the place of"
        if (s ~ / besides[,.]/ || s ~ /^ besides /) return "besides"
        if (s ~ /, too[.,;]/) return "too"
        if (s ~ / (all that|nothing that|nothing but) /) return "all that"
        if (s ~ / (one part in|in parts of) /) return "parts of"
        if (s ~ / (dear|dearer|dearest|anew)[ .,;:]/) return "dearer"
        return ""
    }
    function tell(    rest, end, sentence, at, found) {
        gsub(/`[^`]*`/, "X", text)
        gsub(/\]\([^)]*\)/, "]", text)
        gsub(/[*\[\]]/, "", text)
        rest = text
        while (rest != "") {
            end = match(rest, /[.!?:][ ]+[A-Z`\[]/)
            sentence = end ? substr(rest, 1, RSTART) : rest
            at = end ? RSTART + RLENGTH - 1 : length(rest) + 1
            rest = end ? substr(rest, at) : ""
            sub(/^ +/, "", sentence)
            if (sentence !~ /[^ ]+ +[^ ]+ +[^ ]+/) continue
            count++
            found = kind(sentence)
            if (found != "") print file ":" line ": [" found "] " sentence
        }
        text = ""
    }
    function add(words) {
        if (text == "") { file = FILENAME; line = FNR }
        text = text (text == "" ? "" : " ") words
    }
    FNR == 1 { tell(); fenced = 0; is_document = FILENAME ~ /\.md$/ }
    is_document {
        if ($0 ~ /^[ \t]*```/) { tell(); fenced = !fenced; next }
        if (fenced || $0 ~ /^    /) { tell(); next }
        words = $0
        sub(/^[ \t]+/, "", words)
        if (words == "" || words ~ /^(\||[-*] |#|[0-9]+\. )/) tell()
        if (words ~ /^\|/) {
            cells = split(words, cell, /\|/)
            for (i = 1; i <= cells; i++) { add(cell[i]); tell() }
            next
        }
        sub(/^([-*#]+|[0-9]+\.) +/, "", words)
        if (words != "") add(words)
        next
    }
    /^[ \t]*\/\// {
        words = $0
        sub(/^[ \t]*\/\/[\/!]?[ ]?/, "", words)
        if (words ~ /^```/) { tell(); fenced = !fenced; next }
        if (fenced) next
        if (words == "" || words ~ /^(\||-|\*|#)/) { tell(); sub(/^[-*|# ]+/, "", words) }
        add(words)
        next
    }
    {
        tell()
        fenced = 0
        rest = $0
        while (match(rest, /"([^"\\]|\\.)*"/)) {
            words = substr(rest, RSTART + 1, RLENGTH - 2)
            rest = substr(rest, RSTART + RLENGTH)
            if (words ~ /^[A-Za-z][^ ]* [^ ]+ [^ ]+ [^ ]/) { add(words); tell() }
        }
    }
    END { tell(); print count }' "${sources[@]}" "${documents[@]}")
# The last line is the total number of sentences.
count=${sentences##*$'\n'}
sentences=$(head -n -1 <<<"$sentences")
found=$(grep -c . <<<"$sentences" || true)
if [[ "${1:-}" == list ]]; then
    echo "$sentences"
fi
echo "$found of $count sentences break a rule"
if ((found * 100 >= count)); then
    echo "that is 1 % or more: see .github/CONTRIBUTING.md, \"Words\"; \`ci/words.sh list\` prints them" >&2
    failed=1
fi

noun_names=$(grep -nE 'fn (what|who|whoever|how|whether|where|whatever)_' "${sources[@]}" || true)
if [[ -n "$noun_names" ]]; then
    printf 'names of functions that begin with a noun clause:\n%s\n' "$noun_names" >&2
    failed=1
fi

# Prints the entry of the crate folder $1 in ARCHITECTURE.md's map: its line and all following lines with more
# indentation. The entry of a crate within another crate is indented by two more columns, and its name is relative
# to the outer crate.
entry() {
    local folder=$1
    if [[ "$folder" == dma-bench/src ]]; then
        cat dma-bench/ARCHITECTURE.md
        return
    fi
    awk -v folder="$folder/" '
        match($0, /^(    |      )[A-Za-z0-9\/-]*src\//) {
            name = $1
            if ($0 !~ /^     /) { outer = name; sub(/src\/$/, "", outer) } else name = outer name
            inside = name == folder
        }
        !/^(    |      )/ && !/^$/ { inside = 0 }
        inside' ARCHITECTURE.md
}
shared=$(sed -n '/^Backends share the names/ s/:.*//p' ARCHITECTURE.md)
# Checks files (by their whole names) and folders directly below each crate's src.
while read -r folder name file; do
    if [[ "$folder" != "${last:-}" ]]; then
        last=$folder
        text=$(entry "$folder")
    fi
    grep -qwF -- "$name" <<<"$text" || grep -qwF -- "${name%.rs}" <<<"$shared" || {
        echo "the entry of $folder in ARCHITECTURE.md's map does not name $file" >&2
        failed=1
    }
done < <(git ls-files -- '*/src/*' 'src/*' | grep -vE '^(tests/fuzz|ci)/|/(lib|main)\.rs$' |
    sed -nE 's#^((.*/)?src)/([^/]+).*#\1 \3 \1/\3#p' | sort -u)

# Checks the files and folders that an entry of the map names, below the crate's src.
tracked=$(git ls-files)
while read -r folder; do
    where=$folder
    [[ "$folder" != dma-bench/src ]] || where=dma-bench
    for name in $(entry "$folder" | grep -oE '[A-Za-z0-9_/-]+(\.(rs|c|md|toml)|/)([^A-Za-z0-9_]|$)' | sed -E 's/[^A-Za-z0-9_/]$//' | sort -u); do
        case " $folder/ ${folder#*/}/ $shared " in *"$name "*) continue ;; esac
        [[ "$name" == */ ]] || name="$name\$"
        grep -qE "^($where/([^ ]*/)?)?$name" <<<"$tracked" || {
            echo "the entry of $folder in a map names ${name%$}, which does not exist" >&2
            failed=1
        }
    done
done < <(git ls-files -- '*/src/*' 'src/*' | grep -vE '^(tests/fuzz|ci)/' | sed -nE 's#^((.*/)?src)/.*#\1#p' | sort -u)
# Checks paths in the other text of ARCHITECTURE.md, where `core` and `cpu` stand for two folders.
for name in $(grep -oE '`[a-z][A-Za-z0-9_-]*/[A-Za-z0-9_/.-]+\.(rs|sh|md|toml)' ARCHITECTURE.md | tr -d '`' | sort -u); do
    file=${name/#core\//dma-core\/src\/}
    file=${file/#cpu\//engines\/dma-cpu\/src\/}
    grep -qE "(^|/)$file\$" <<<"$tracked" || {
        echo "ARCHITECTURE.md names $name, which does not exist" >&2
        failed=1
    }
done
exit "$failed"
