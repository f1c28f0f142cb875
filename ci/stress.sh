#!/usr/bin/env bash
# Tests pass on machines that are slow, crowded, stopped or odd. Runs the test programs that the README's command builds, under
# conditions that a test must not depend on, and prints the failing tests with mode and round.
#
#   ci/stress.sh                         all modes, one round
#   ci/stress.sh --mode one-cpu          one mode; repeat the option for several
#   ci/stress.sh --mode one-cpu+files    several conditions at once
#   ci/stress.sh --rounds 20             each program 20 times in each mode
#   ci/stress.sh --filter dma-ipc        only programs whose `package/name` matches this extended regular expression
#   ci/stress.sh --starters              only programs that start processes or threads of their own
#   ci/stress.sh --of COMMIT             the mode that this commit's hash selects
#   ci/stress.sh --of COMMIT --share 8   one program in 8, which the hash selects, too
#
# mode       condition
# one-cpu    one CPU for all threads
# quota      20 % of one CPU (a control group of either version, else cpulimit)
# neighbors  ten busy processes
# stops      all processes of the program stop at random moments for 20 to 300 ms
# threads    threads run in slow motion: each stops at random moments for up to 300 ms (ci/hold_threads.py), and 16 tests run at once
# clock      the wall clock steps every second, an hour ahead or behind (ci/step_clock.c)
# small-tmp  /tmp has 64 MiB
# hardened   /tmp executes no programs, umask 077, no HOME, a dumb terminal, and full backtraces
# offline    no network but loopback
# user       a user other than root
# locale     odd TZ and LANG
# files      256 file descriptors. A test that fills a table of connections raises the limit.
# twice      the same program runs twice at once
#
# A mode that this machine cannot provide is skipped with its reason. Needs root for quota, small-tmp, hardened, offline and user. Run it
# with a new test that starts a process or a thread: `ci/stress.sh --filter NAME --rounds 20`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(one-cpu quota neighbors stops threads clock small-tmp hardened offline user locale files twice)
modes=() rounds=1 filter='' starters='' hash=0 share=1
# The order in which a condition's command starts the next one's. Those that need root come before `user`.
nesting=(quota one-cpu offline small-tmp hardened threads user files locale clock twice neighbors stops)
# Prints the conditions of mode $1, in the order of their commands, joined by `+`.
conditions() {
    local condition sorted=()
    for condition in ${1//+/ }; do
        [[ " ${all[*]} " == *" $condition "* ]] || {
            echo "no mode $condition; valid: ${all[*]}, or several joined by +" >&2
            exit 2
        }
    done
    for condition in "${nesting[@]}"; do
        [[ "+$1+" != *"+$condition+"* ]] || sorted+=("$condition")
    done
    ((${#sorted[@]})) || {
        echo "--mode needs one of: ${all[*]}" >&2
        exit 2
    }
    (IFS=+ && echo "${sorted[*]}")
}
usage() {
    sed -n '2,/^set -e/p' "$0" | sed '$d; s/^# \{0,1\}//'
}
while (($#)); do
    case $1 in
    --mode)
        modes+=("$(conditions "${2-}")")
        shift
        ;;
    --rounds | --share)
        [[ "${2-}" =~ ^[1-9][0-9]*$ ]] || {
            echo "$1 needs a number" >&2
            exit 2
        }
        declare "${1#--}=$2"
        shift
        ;;
    --filter) filter=${2?--filter needs a regular expression} && shift ;;
    --starters) starters=yes ;;
    --of)
        hash=$(git rev-parse --short=6 "${2?--of needs a commit}") && shift
        hash=$((16#${hash:0:6}))
        modes+=("${all[$((hash % ${#all[@]}))]}")
        ;;
    -h | --help)
        usage
        exit
        ;;
    *)
        echo "no option $1; --help lists them" >&2
        exit 2
        ;;
    esac
    shift
done
((${#modes[@]})) || modes=("${all[@]}")

# Not in /tmp, which some modes replace.
logs=$(realpath -m "${CARGO_TARGET_DIR:-target}")/stress
mkdir -p "$logs"
work=$(mktemp -d -p "$logs" run.XXXXXX)
chmod 755 "$work"
group='' links=''
cleanup() {
    jobs -pr | xargs -r kill 2>/dev/null || true
    [[ -z "$group" ]] || rmdir "$group" 2>/dev/null || true
    rm -rf "$work" ${links:+"$links"}
}
trap cleanup EXIT

# Writes package, folder and program of each test program.
cargo test --locked --workspace --no-run --message-format json-render-diagnostics </dev/null |
    sed -nE 's|.*"package_id":"[^"]*[/#]([a-z-]+)[#@][0-9][^"]*".*"manifest_path":"([^"]*)/Cargo.toml".*"name":"([^"]+)".*"overflow_checks":[a-z]+,"test":true\}.*"executable":"([^"]+)".*|\1\t\2\t\3\t\4|p' | LC_ALL=C sort >"$work/programs"
# Returns whether the sources of a test program, with the modules that they share with others, start a process or a thread, or use an
# engine or an export that does.
starts() { # FOLDER NAME
    local sources=("$1/tests/$2.rs" "$1/tests/$2") module
    if [[ -e "${sources[0]}" || -e "${sources[1]}" ]]; then
        while read -r module; do
            sources+=("$1/tests/$module" "$1/tests/$module.rs")
        done < <(sed -nE 's/^(pub )?mod ([a-z0-9_]+);/\2/p; s/^#\[path = "(.*)"\]/\1/p' "${sources[0]}" "${sources[1]}/main.rs" 2>/dev/null)
    else
        sources=("$1/src")
    fi
    grep -rqE 'Command::new|thread::(spawn|scope|Builder)|fork\(|with_threads\([1-9]|Export::new' "${sources[@]}" 2>/dev/null
}
at=0
while IFS=$'\t' read -r package folder name program; do
    [[ "$package/$name" =~ $filter ]] || continue
    [[ -z "$starters" ]] || starts "$folder" "$name" || continue
    ((at++ % share == hash / ${#all[@]} % share)) || continue
    printf '%s\t%s\t%s\t%s\n' "$package" "$folder" "$name" "$program"
done <"$work/programs" >"$work/chosen"
[[ -s "$work/chosen" ]] || {
    echo "no test program is chosen" >&2
    exit 2
}

as_root() { [[ "$(id -u)" == 0 ]]; }

# Makes `group`, a control group that has 20 % of one CPU. Version 1 has a folder for each kind of limit.
make_group() {
    as_root || return 1
    for group in /sys/fs/cgroup{,/cpu}/dma-stress-$$; do
        [[ -e "${group%/*}/cgroup.procs" ]] || continue
        mkdir "$group" 2>/dev/null || continue
        if [[ -e "$group/cpu.max" ]]; then
            echo "20000 100000" 2>/dev/null >"$group/cpu.max" && return
        elif [[ -e "$group/cpu.cfs_quota_us" ]]; then
            echo 100000 >"$group/cpu.cfs_period_us" && echo 20000 >"$group/cpu.cfs_quota_us" && return
        fi
        rmdir "$group"
    done
    group=''
    return 1
}

# Appends to `prefix` the words before a program in condition $1, and sets `limit`, the seconds after which a program hangs. Sets
# `reason` and fails if this machine lacks the condition.
prepare() {
    case $1 in
    one-cpu)
        command -v taskset >/dev/null || {
            reason="no taskset"
            return 1
        }
        # The first of the CPUs that this process may use.
        prefix+=(taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')")
        ;;
    quota)
        limit=3600
        if make_group; then
            # shellcheck disable=SC2016 # expanded by the inner shell
            prefix+=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group")
        elif command -v cpulimit >/dev/null; then
            prefix+=(cpulimit -q -i -l 20 --)
        else
            reason="neither a control group nor cpulimit"
            return 1
        fi
        ;;
    neighbors | stops | locale | files) ;;
    threads)
        command -v python3 >/dev/null || {
            reason="no python3"
            return 1
        }
        reason=$(python3 ci/hold_threads.py true 2>&1) || return 1
        limit=3600
        prefix+=(env RUST_TEST_THREADS=16 python3 "$PWD/ci/hold_threads.py")
        ;;
    clock)
        cc -O2 -fPIC -shared ci/step_clock.c -o "$work/step_clock.so" || {
            reason="no C compiler"
            return 1
        }
        # A space or a colon ends a name in LD_PRELOAD.
        links=$(mktemp -d -p /var/tmp)
        chmod 755 "$links"
        ln -s "$work/step_clock.so" "$links/"
        prefix+=(env "STEP_CLOCK=$work/clock" "LD_PRELOAD=$links/step_clock.so")
        ;;
    small-tmp)
        as_root || {
            reason="not root"
            return 1
        }
        prefix+=(unshare -m bash -c 'mount -t tmpfs -o size=64M none /tmp && exec "$@"' mount)
        ;;
    hardened)
        as_root || {
            reason="not root"
            return 1
        }
        prefix+=(env -u HOME "CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}" "RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}"
            RUST_BACKTRACE=full NO_COLOR=1 TERM=dumb
            unshare -m bash -c 'mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && umask 077 && exec "$@"' mount)
        ;;
    offline)
        as_root || {
            reason="not root"
            return 1
        }
        prefix+=(unshare -n bash -c 'ip link set lo up 2>/dev/null || true; exec "$@"' offline)
        ;;
    user)
        if ! as_root || ! command -v setpriv >/dev/null; then
            reason="not root, or no setpriv"
            return 1
        fi
        # Tests write into the target folder, and some build there.
        chmod -R a+rwX "${CARGO_TARGET_DIR:-target}"
        # The toolchain often lies in root's home, which the user cannot enter. In a home of other rights, the
        # folders have the same paths, so that cargo does not build again.
        # shellcheck disable=SC2016 # expanded by the inner shell
        prefix+=(unshare -m bash -c 'mount -t tmpfs none /mnt && folders=("${@:1:3}") && shift 3 || exit 125
            mask=$(umask) && umask 022
            for n in 0 1 2; do mkdir "/mnt/$n" && mount --bind "${folders[n]}" "/mnt/$n" || exit 125; done
            mount -t tmpfs -o mode=755 none ~ || exit 125
            for n in 0 1 2; do mkdir -p "${folders[n]}" && mount --bind "/mnt/$n" "${folders[n]}" || exit 125; done
            umask "$mask" && cd "$PWD" && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
            user "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" "$PWD")
        ;;
    twice)
        # shellcheck disable=SC2016 # expanded by the inner shell
        prefix+=(bash -c '"$@" & first=$!; "$@"; status=$?; wait "$first" || status=$?; exit "$status"' twice)
        ;;
    esac
    case $1 in
    locale) prefix+=(env TZ=Pacific/Chatham LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8) ;;
    files) prefix+=(bash -c 'ulimit -Sn 256; exec "$@"' files) ;;
    esac
}

# Prints the processes of session $1, parents before their children.
parents_first() {
    # shellcheck disable=SC2016 # a program for awk
    ps -o pid=,ppid= -s "$1" 2>/dev/null | awk '{ parent[$1] = $2 }
        END { for (pid in parent) { depth = 0; for (at = pid; at in parent; at = parent[at]) depth++; print depth, pid } }' | sort -n | cut -d " " -f 2
}

# Stops all descendants of $1 at random moments, for 20 to 300 ms. A process that the test itself has stopped stays stopped: a parent is
# stopped first, so it cannot stop its child after this looked at the child.
stop_at_random() {
    local pid state stopped at
    while kill -0 "$1" 2>/dev/null; do
        stopped=()
        for pid in $(parents_first "$1" || true); do
            { read -r state <"/proc/$pid/stat"; } 2>/dev/null || continue
            [[ "${state##*) }" != T* ]] || continue
            kill -STOP "$pid" 2>/dev/null || continue
            stopped+=("$pid")
        done
        sleep "0.$(printf '%03d' $((20 + RANDOM % 281)))"
        # Children first: a parent that goes on may stop its child, which must not be continued here then.
        for ((at = ${#stopped[@]} - 1; at >= 0; at--)); do kill -CONT "${stopped[at]}" 2>/dev/null || true; done
        sleep "0.$(printf '%03d' $((RANDOM % 500)))"
    done
}

passed=0 failed=0 skipped=0
for mode in "${modes[@]}"; do
    prefix=() reason='' limit=900
    for condition in ${mode//+/ }; do
        prepare "$condition" || {
            echo "skipped: mode $mode: $condition: $reason"
            skipped=$((skipped + 1))
            continue 2
        }
    done
    helpers=()
    if [[ "+$mode+" == *+neighbors+* ]]; then
        for _ in {1..10}; do
            (while :; do :; done) &
            helpers+=($!)
        done
    fi
    if [[ "+$mode+" == *+clock+* ]]; then
        printf 0 >"$work/clock"
        # The file is mapped, so it is not truncated.
        (while :; do
            for step in + -; do
                sleep 1
                printf '%s' "$step" 1<>"$work/clock"
            done
        done) &
        helpers+=($!)
    fi
    mode_failed=0 mode_passed=0 tests=0 empty=''
    for ((round = 1; round <= rounds; round++)); do
        while IFS=$'\t' read -r package folder name program; do
            log=$work/log
            status=0
            (cd "$folder" && exec setsid timeout -k 10 "$limit" "${prefix[@]}" "$program") </dev/null >"$log" 2>&1 &
            test=$!
            stopper=''
            if [[ "+$mode+" == *+stops+* ]]; then
                stop_at_random "$test" &
                stopper=$!
            fi
            wait "$test" || status=$?
            [[ -z "$stopper" ]] || wait "$stopper" || true
            left=$(pgrep -l -s "$test" | tr '\n' ' ' || true)
            pkill -KILL -s "$test" || true
            if ((status)); then
                mode_failed=$((mode_failed + 1))
                case $status in
                124) why="does not end in $limit s" ;;
                137) why="killed" ;;
                *) why="status $status" ;;
                esac
                mkdir -p "$logs"
                cp "$log" "$logs/$mode.$round.$package.$name"
                echo "FAILED in mode $mode, round $round: $package $name ($why), output in $logs/$mode.$round.$package.$name"
                {
                    sed -nE 's/^test (.*) (\.\.\. FAILED|has been running for over 60 seconds)$/    \1 \2/p' "$log"
                    grep -A3 "panicked at" "$log" | sed 's/^/    /' | head -n 20
                } || true
            else
                mode_passed=$((mode_passed + 1))
                count=$(awk '/^test result: / { sum += $4; seen = 1 } END { print seen ? sum : 1 }' "$log")
                tests=$((tests + count))
                ((count || round > 1)) || empty+=" $package/$name"
                [[ -z "$left" ]] || echo "mode $mode, round $round: $package $name leaves processes: $left"
            fi
        done <"$work/chosen"
        ((rounds == 1)) || echo "mode $mode: $round of $rounds rounds are done, $mode_failed programs have failed"
    done
    ((!${#helpers[@]})) || kill "${helpers[@]}" 2>/dev/null || true
    [[ -z "$group" ]] || rmdir "$group" 2>/dev/null || true
    group=''
    printf '%-10s %2d rounds of %3d programs, %d tests passed: %d programs failed\n' \
        "$mode" "$rounds" "$(wc -l <"$work/chosen")" "$tests" "$mode_failed"
    [[ -z "$empty" ]] || echo "           no test ran:$empty"
    passed=$((passed + mode_passed)) failed=$((failed + mode_failed))
done
echo "$passed passed, $failed failed, $skipped skipped"
((!failed))
