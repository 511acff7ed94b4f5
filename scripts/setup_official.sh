#!/usr/bin/env bash
# Makes the environments of the official benchmark programs that scripts/evaluate.py calls.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/setup_official.sh bfcl | tau2

  bfcl  .venv-bfcl-official: bfcl-eval with all its packages (torch, sentence-transformers: 1.9 GB),
        for the suites bfcl_v4_memory and bfcl_v4_web
  tau2  .venv-tau2: tau2-bench v0.2.0 and its data, cloned from GitHub, for the suite tau2 (the
        package tau2 on PyPI is another program)

PYTHON=/path/to/python3.11 names the interpreter (default python3.11).
TAU2_SOURCE=URL or folder names another place to clone tau2-bench from, if GitHub cannot be reached.
TEXT
}

fail() {
    printf 'setup_official: %s\n' "$*" >&2
    exit 1
}

# A relative path starts from the folder in which the user typed it.
case ${PYTHON:-} in ./* | ../* | */*) PYTHON=$(realpath -s "$PYTHON") ;; esac
tau2_source=${TAU2_SOURCE:-https://github.com/sierra-research/tau2-bench}
if [ -d "$tau2_source" ]; then tau2_source=$(realpath "$tau2_source"); fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The commit of the tag v0.2.0, the last release under this name.
tau2_commit=f8de30c298689cbe0117d76a378e7315a17e5bd8
python=${PYTHON:-python3.11}
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_CONSTRAINT PIP_REQUIREMENT
trap 'fail "interrupted; run it again to start over"' INT TERM

# make_venv VENV: makes a new environment. The file `ready` in it says that it is complete.
make_venv() {
    if [ -e "$1/ready" ]; then
        echo "setup_official: $1 exists; delete it to make a new one"
        exit 0
    fi
    "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
        fail "needs Python 3.11 with venv and pip as $python; name one: PYTHON=/path/to/python3.11"
    rm -rf "$1"
    "$python" -m venv "$1"
}

# run_pip VENV ARGUMENT...: pip install, with its output in VENV/install.log.
run_pip() {
    local venv=$1
    shift
    echo "setup_official: installing into $venv (minutes; log: $venv/install.log)"
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input "$@" \
        >>"$venv/install.log" 2>&1 || {
        grep -E '^ *(ERROR|error)' "$venv/install.log" | tail -n 5 >&2 || true
        fail "pip failed (log: $venv/install.log); check the network and run it again"
    }
}

case ${1:-} in
    bfcl)
        make_venv .venv-bfcl-official
        run_pip .venv-bfcl-official -r requirements/official-bfcl.txt -c requirements/official-bfcl.lock
        project=$(mktemp -d)
        BFCL_PROJECT_ROOT=$project .venv-bfcl-official/bin/python -m bfcl_eval models >/dev/null ||
            fail "bfcl-eval does not start; its reason is above"
        rm -rf "$project"
        touch .venv-bfcl-official/ready
        ;;
    tau2)
        make_venv .venv-tau2
        clone=.venv-tau2/tau2-bench
        git clone --quiet --no-checkout "$tau2_source" "$clone" ||
            fail "cannot clone $tau2_source; check the network, or set TAU2_SOURCE to the folder of a clone"
        # Without its recorded results and website, which are most of it.
        git -C "$clone" sparse-checkout set src data/tau2/domains data/tau2/user_simulator
        git -C "$clone" -c advice.detachedHead=false checkout --quiet "$tau2_commit" ||
            fail "$tau2_source does not have all of commit $tau2_commit (tag v0.2.0)"
        run_pip .venv-tau2 -e "$clone" -c requirements/official-tau2.lock
        .venv-tau2/bin/tau2 check-data >/dev/null 2>&1 || fail "tau2 check-data failed"
        touch .venv-tau2/ready
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac
echo "setup_official: done. Next: .venv/bin/python scripts/evaluate.py --help"
