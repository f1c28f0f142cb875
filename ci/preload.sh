#!/usr/bin/env bash
# Unmodified programs have the same results with libdma_memcpy.so as without it: CPython's own tests, SQLite, zstd, Redis
# and memcached. All their calls of 64 KiB and more are streamed. A call below the limit takes at most 5 instructions more
# than the C library's function, and a program that makes only such calls takes at most 1 % more.
#
#   ci/preload.sh          checks
#   ci/preload.sh ratios   prints how many times as fast as the C library the library is, on a machine without other load
#
# Redis and memcached come from Debian's packages, which are unpacked below the target directory. Programs that are not
# installed and cannot be downloaded are skipped, and so is the count of instructions without valgrind. Exits with 77
# ("skipped") if the machine is not x86-64, and if there is no program at all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=300 # for one program; most take less than 10

fail() {
    echo "$*" >&2
    exit 1
}
[[ "$(uname -m)" == x86_64 ]] || {
    echo "skipped: the library is only for x86-64"
    exit 77
}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dir=$target/ci-preload
mkdir -p "$dir"
bindings/preload/install "$dir"
work=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
# LD_PRELOAD cannot have a path with spaces.
ln -s "$dir/libdma_memcpy.so" "$work/"
library=$work/libdma_memcpy.so
here=bindings/preload/tests/c

if [[ "${1:-}" == ratios ]]; then
    cc -O2 "$here/ratios.c" -o "$dir/ratios" -ldl
    for kind in short small huge; do
        echo "--- $kind $([[ $kind == short ]] && echo calls || echo pages), load $(cut -d ' ' -f 1 /proc/loadavg)"
        LD_PRELOAD=$library "$dir/ratios" "$kind"
    done
    exit
fi

stats=$work/stats
ran=0

if command -v valgrind >/dev/null; then
    echo "--- instructions"
    cc -O1 -fno-builtin "$here/count.c" -o "$dir/count"
    instructions() { # PRELOAD FUNCTION LENGTH: those of 10,000 calls
        local calls counts=()
        for calls in 10000 20000; do
            counts+=("$(LD_PRELOAD=$1 timeout "$seconds" valgrind --tool=callgrind --callgrind-out-file=/dev/null \
                "$dir/count" "$2" "$3" $calls 2>&1 | sed -n 's/.*Collected : //p')")
        done
        echo $((counts[1] - counts[0]))
    }
    for function in memcpy memmove memset memcmp bcmp; do
        for len in 8 1000; do
            more=$((($(instructions "$library" $function $len) - $(instructions "" $function $len)) / 10000))
            echo "$function of $len bytes: $more more than the C library"
            ((more <= 5)) || fail "a short $function takes $more instructions more than the C library's; at most 5 are allowed"
            # Only copies of up to 32 bytes may take fewer instructions than the C library's.
            ((more > 0 || len == 8)) || fail "$function of $len bytes does not call the library"
        done
    done
    if command -v sqlite3 >/dev/null; then
        cat >"$work/short" <<'END'
create table t(id integer primary key, k text, v text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000)
    insert into t select i, printf('%032d', i * 7919 % 10007), printf('%.*c', i % 200, 'x') from n;
create index k on t(k);
update t set v = v || k where id % 3 = 0;
select sum(length(v)) from t;
END
        counts=()
        for preload in "" "$library"; do
            counts+=("$(LD_PRELOAD=$preload timeout "$seconds" valgrind --tool=callgrind --callgrind-out-file=/dev/null \
                sqlite3 :memory: 2>&1 <"$work/short" | sed -n 's/.*Collected : //p')")
        done
        more=$(((counts[1] - counts[0]) * 1000 / counts[0]))
        echo "SQLite, whose calls are short: $more instructions more of 1000"
        ((more <= 10)) || fail "a program whose calls are short takes $more instructions more of 1000; at most 10 are allowed"
    fi
else
    echo "skipped: valgrind, which counts instructions, is not installed"
fi

# with COMMAND...: runs a command with the library.
with() {
    LD_PRELOAD=$library DMA_MEMCPY=engine=cpu,min=64K,stats=$stats timeout "$seconds" "$@"
}
# compare NAME COMMAND...: the output of a command is the same with the library, which streams calls of it.
compare() {
    local name=$1
    shift
    echo "--- $name"
    timeout "$seconds" "$@" >"$work/without" 2>&1 </dev/null || true
    [[ -s "$work/without" ]] || fail "$name has no output"
    rm -f "$stats"
    with "$@" >"$work/with" 2>&1 </dev/null || true
    diff "$work/without" "$work/with" >&2 || fail "$name has other results with the library (<: without, >: with)"
    streamed "$name"
}
# streamed NAME: the reports tell of calls that were streamed.
streamed() {
    local calls
    calls=$(grep -oE 'cpu [0-9]+ calls' "$stats" | awk '{ sum += $2 } END { print sum + 0 }') || true
    echo "same results; $calls calls streamed"
    ((calls)) || fail "$1 made no call that was streamed"
    ran=$((ran + 1))
}

python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) || true
if [[ -n "$python" ]] && "$python" -c 'import test.test_bytes' 2>/dev/null; then
    cat >"$work/tests" <<'END'
cd "$1"
shift
"$@" 2>&1 | sed -nE 's/^(.*) \.\.\. (ok|FAIL|ERROR|expected failure|skipped).*/\1 \2/p' | sort
END
    # shellcheck disable=SC2046 # split into words on purpose
    compare "CPython's tests" bash "$work/tests" "$work" "$python" -m unittest -v $(printf 'test.test_%s ' \
        array bytes bz2 hashlib lzma memoryview mmap struct zlib)
    echo "$(grep -c ' ok$' "$work/with") tests pass"
else
    echo "skipped: CPython's tests are not installed"
fi

if command -v sqlite3 >/dev/null; then
    cat >"$work/sql" <<'END'
pragma page_size = 65536; pragma cache_size = 200; pragma mmap_size = 10000000;
create table t(id integer primary key, k text, b blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 150)
    insert into t select i, printf('%064d', i * 7919 % 1009), cast(replace(printf('%.*c', i * 997, 'x'), 'x', printf('%04d', i)) as blob) from n;
create index k on t(k);
update t set b = b || b where id % 3 = 0;
delete from t where id % 7 = 0;
create table u as select k, hex(b) as h from t order by k;
select count(*), sum(length(b)), sum(length(h)) from t join u using (k);
select group_concat(substr(h, 1 + length(h) / 2, 8), '') from u;
vacuum;
pragma integrity_check;
.sha3sum
END
    cat >"$work/sqlite" <<'END'
rm -f "$1/database" && sqlite3 "$1/database" <"$1/sql" && sha256sum <"$1/database"
END
    compare SQLite bash "$work/sqlite" "$work"
else
    echo "skipped: sqlite3 is not installed"
fi

if command -v zstd >/dev/null; then
    # Text that compresses, of 39 MB.
    seq 1 5000000 >"$work/text"
    cat >"$work/zstd" <<'END'
for options in -1 "-3 -T2" "-4 --long=26"; do
    zstd -q $options -c "$1/text" >"$1/text.zst" && sha256sum <"$1/text.zst" && zstd -q -d -c --long=26 "$1/text.zst" | sha256sum
done
END
    compare zstd bash "$work/zstd" "$work"
else
    echo "skipped: zstd is not installed"
fi

# The servers. The client sets and reads values whose lengths and bytes are fixed.
packages=(redis-server redis-tools memcached libjemalloc2 liblzf1 liblua5.1-0 lua-cjson lua-bitop libhiredis0.14 libevent-2.1-7)
root=$dir/root
if ! [[ -e "$dir/unpacked" ]]; then
    debs=$work/debs
    mkdir "$debs"
    if command -v apt-get >/dev/null && (cd "$debs" && timeout 120 apt-get -q -o Acquire::Retries=3 download "${packages[@]}" >log 2>&1); then
        for deb in "$debs"/*.deb; do
            dpkg-deb -x "$deb" "$root"
        done
        touch "$dir/unpacked"
    else
        echo "skipped: apt-get cannot download Redis and memcached: $(tail -n 1 "$debs/log" 2>/dev/null)"
    fi
fi
cat >"$work/client.py" <<'END'
import hashlib, socket, sys
kind, path = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
stream = connection.makefile("rwb")
def redis(*arguments):
    stream.write(b"*%d\r\n" % len(arguments))
    for argument in arguments:
        stream.write(b"$%d\r\n%s\r\n" % (len(argument), argument))
    stream.flush()
    line = stream.readline().strip()
    return stream.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" and line != b"$-1" else line
def memcached_set(key, value):
    stream.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
    stream.flush()
    return stream.readline().strip()
def memcached_get(key):
    stream.write(b"get %s\r\n" % key)
    stream.flush()
    line = stream.readline().split()
    value = stream.read(int(line[3])) if line[0] == b"VALUE" else b"none"
    return (value, stream.readline(), stream.readline())[0] if line[0] == b"VALUE" else value
total = hashlib.sha256()
for number in range(60):
    key = b"key%d" % (number % 25)
    value = hashlib.sha512(b"%d" % number).digest() * (1 + number * 1300 % 50000)
    if kind == "redis":
        answers = [redis(b"SET", key, value), redis(b"APPEND", key, value[:70000]), redis(b"GETRANGE", key, b"1000", b"900000"),
                   redis(b"STRLEN", key), redis(b"SETRANGE", key, b"65537", value), redis(b"GET", key), redis(b"BITCOUNT", key)]
    else:
        answers = [memcached_set(key, value), memcached_get(key)]
    for answer in answers:
        total.update(answer)
    if number % 20 == 19:
        print(number, len(answers[-1]), total.hexdigest())
END
# server NAME COMMAND...: the answers of a server on the socket $work/socket are the same with the library.
server() {
    local name=$1 run
    shift
    echo "--- $name"
    for run in without with; do
        rm -rf "$work/socket" "$stats"
        if [[ $run == with ]]; then
            LD_PRELOAD=$library DMA_MEMCPY=engine=cpu,min=64K,stats=$stats "$@" >"$work/log" 2>&1 &
        else
            "$@" >"$work/log" 2>&1 &
        fi
        servers=($!)
        for ((i = 0; i < 600; i++)); do
            [[ ! -S "$work/socket" ]] || break
            sleep 0.1
        done
        timeout "$seconds" "$python" "$work/client.py" "$name" "$work/socket" >"$work/$run" || fail "$name: $(tail -n 5 "$work/log")"
        kill "${servers[0]}"
        wait "${servers[0]}" || true
        servers=()
    done
    diff "$work/without" "$work/with" >&2 || fail "$name has other answers with the library (<: without, >: with)"
    streamed "$name"
}
if [[ -e "$dir/unpacked" && -n "$python" ]]; then
    export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu
    server redis "$root/usr/bin/redis-server" --port 0 --unixsocket "$work/socket" --save "" --dir "$work"
    user=()
    ((EUID)) || user=(-u root)
    server memcached "$root/usr/bin/memcached" -s "$work/socket" -m 256 -I 8m -t 2 "${user[@]}"
    unset LD_LIBRARY_PATH
fi

((ran)) || {
    echo "skipped: no program to compare is installed, and none can be downloaded"
    exit 77
}
echo "$ran programs have the same results with the library"
