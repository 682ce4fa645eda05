# shellcheck shell=bash
# What both tiers do alike: steps with their times, what they need, and heaps of tests side by side. To be sourced, in
# the repository's folder.

# Lint and types have an environment of their own: .venv is to be what requirements.lock says and what users get, and
# the fetch step is to make it the way they do. Under .sparkbuild/, which git ignores and a developer may delete.
tools=.sparkbuild/ci/venv
logs=.sparkbuild/ci
times=()
export SPARKBUILD_TEST_CACHE=$PWD/.sparkbuild/ci/cache

# step NAME COMMAND...: runs one, says how long it took, and ends all at the first that fails.
step() {
    local name=$1 from=$SECONDS code=0
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" || code=$?
    times+=("$(printf '%-10s %4d s' "$name" $((SECONDS - from)))")
    if ((code)); then
        summary
        printf '%s failed (exit code %d)\n' "$name" "$code" >&2
        exit 1
    fi
}

# aside NAME COMMAND...: begins one in the background; `joined NAME` waits for it, and prints what it said. A process
# group of its own, which ends with this program.
declare -A began=()
aside() {
    local name=$1
    shift
    mkdir -p "$logs"
    set -m
    "$@" >"$logs/$name.log" 2>&1 &
    set +m
    began[$name]=$!
}

joined() {
    local code=0
    wait "${began[$1]}" || code=$?
    unset "began[$1]"
    cat "$logs/$1.log"
    return "$code"
}

ended() {
    local group
    for group in "${began[@]}"; do kill -- "-$group" 2>/dev/null || :; done
    [[ -z $work ]] || rm -rf "$work"
}

summary() {
    printf '\n== times\n'
    printf '%s\n' "${times[@]}" "$(printf '%-10s %4d s' all "$SECONDS")"
}

# needs [--long]: installs what is missing of it; with --long also what only long tests need.
needs() {
    local missing=()
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    command -v flock >/dev/null || missing+=(util-linux)
    command -v cmp >/dev/null || missing+=(diffutils)
    command -v git >/dev/null || missing+=(git)
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || missing+=(ca-certificates)
    # The rack (tests/rack) is namespaces, sshd and dockerd: for root alone. Anyone else sees why its tests are skipped.
    if ((!EUID)); then
        command -v debootstrap >/dev/null || missing+=(debootstrap) # for the systems of other docker engines
        if command -v python3 >/dev/null; then
            # shellcheck disable=SC2207 # one word per package
            missing+=($(python3 -m tests.rack needs "$@"))
        fi
    fi
    ((${#missing[@]})) || return 0
    if ((EUID)); then
        printf 'missing: %s\nas root: apt-get install %s\n' "${missing[*]}" "${missing[*]}" >&2
        return 1
    fi
    apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
}

# mypy reads the types of what we import, so the runtime packages are here too.
install_tools() {
    python3 -m venv "$tools" &&
        "$tools/bin/python" -m pip --quiet --disable-pip-version-check install \
            --require-hashes --only-binary :all: -r requirements.lock -r requirements-dev.lock
}

# fetch [--long]: all that tests take from the network; they need none themselves.
fetch() {
    ./doitw --version >/dev/null && .venv/bin/python -m tests.fetch "$@"
}

# safe.directory: a checkout in a container often belongs to another user, which git refuses.
changes() { git -c safe.directory="$PWD" status --porcelain; }

unchanged() {
    local after
    after=$(changes)
    [[ $after == "$before" ]] || {
        printf 'the steps above changed the work tree; before:\n%s\nafter:\n%s\n' "$before" "$after" >&2
        return 1
    }
}

# scratch: makes the folder `work`, where tests write: in memory where 4 GB of it are free and as much again is left, else
# on the disk. It goes with this program.
work=
trap ended EXIT
scratch() {
    local room left
    [[ -z $work ]] || return 0
    room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)
    left=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    if ((${room:-0} > 4000000 && ${left:-0} > 8000000)); then
        work=$(mktemp -d /dev/shm/sparkbuild-ci.XXXXXX)
    else
        work=$(mktemp -d "${TMPDIR:-/tmp}/sparkbuild-ci.XXXXXX")
    fi
}

# heap NAME LIMIT ARGUMENTS...: pytest in the background, its output in a log; `finish` waits for all of them. A time
# limit makes a hang a failure of the step.
heaps=()
declare -A running=()
heap() {
    local name=$1 limit=$2
    shift 2
    timeout "$limit" .venv/bin/python -m pytest --basetemp="$work/$name" --durations=15 "$@" >"$logs/$name.log" 2>&1 &
    running[$name]=$!
    heaps+=("$name")
}

# finish: waits for the heaps, prints what they said, and returns the last exit code that was not 0. "No tests were
# collected" (5) is none: a heap that may be empty is one of the long tier.
finish() {
    local name code failed=0
    for name in "${heaps[@]}"; do
        code=0
        wait "${running[$name]}" || code=$?
        printf '\n== tests, %s\n' "$name"
        cat "$logs/$name.log"
        ((code == 0 || code == 5)) || failed=$code
    done
    heaps=()
    return "$failed"
}
