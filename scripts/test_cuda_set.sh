#!/usr/bin/env bash
# Tests the packages for GPUs on a machine without one; see --help.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/test_cuda_set.sh FOLDER

Installs the packages for GPUs (requirements/trainer-cuda.*) into FOLDER. With them, on the processor, it
runs the tests of tests/train and of tests/cuda; in the latter, vLLM believes that this machine has four
H100. No kernel runs. FOLDER takes 11 GB and more; a second run uses the packages that are there. Needs gcc,
and bash install.sh --dev before.
TEXT
}

case ${1:-} in
    --help | -h)
        usage
        exit 0
        ;;
    '' | -*)
        usage >&2
        exit 2
        ;;
esac
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -d .venv/real-tokenizers/models ] || {
    echo "test_cuda_set: bash install.sh --dev comes first (real tokenizers)" >&2
    exit 1
}
venv=$folder/venv
files=(requirements/trainer-cuda.txt requirements/trainer-cuda.lock requirements/dev.txt)
stamp=$(cat "${files[@]}" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$venv"
    .venv/bin/python -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        -r requirements/trainer-cuda.txt -c requirements/trainer-cuda.lock
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        -r requirements/dev.txt
    printf '%s\n' "$stamp" >"$folder/stamp"
fi
gcc -shared -fPIC -o "$folder/libcuda.so.1" tests/cuda/libcuda.c
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Two commands: what makes vLLM believe in GPUs must not reach the first tests. A package brings
# pytest-asyncio, which warns of a setting that is not ours, and warnings are errors. Without a GPU this
# vLLM reads no command line; tests/cuda lets it.
"$venv/bin/python" -m pytest -q -p no:asyncio -n 2 --dist loadfile tests/train \
    --ignore tests/train/test_rollout_command.py
"$venv/bin/python" -m pytest -q -p no:asyncio -m cuda tests/cuda
