#!/usr/bin/env bash
# Lint, types, tests of both environments, one end-to-end run. --fast leaves out the slow parts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fast=no
case ${1:-} in
    --fast) fast=yes ;;
    '') ;;
    *)
        echo "usage: bash scripts/test.sh [--fast]" >&2
        exit 2
        ;;
esac

part() {
    local name=$1 started=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@"
    printf '== %s: %d s\n' "$name" $((SECONDS - started))
}

trainer=.venv/bin/python
service=.venv-bfcl/bin/python
# Two processes, each with one test file at a time.
spread='-n 2 --dist loadfile --durations=10 --durations-min=1'

part 'environments' bash install.sh --dev
part 'lint' "$trainer" -m ruff check .
part 'format' "$trainer" -m ruff format --check .
part 'types, trainer' "$trainer" -m mypy --exclude '^tests/env_service/' \
    launcher.py seal scripts benchmarks examples tests
part 'types, service' "$trainer" -m mypy --python-executable "$service" env_service tests/env_service
part 'tests, trainer' "$trainer" -m pytest -q $spread tests/seal tests/train tests/scripts tests/benchmarks \
    tests/examples tests/test_layers.py
part 'worked examples, trainer' "$trainer" -m pytest -q --doctest-modules seal/coevolution seal/formats seal/settings \
    seal/launch seal/logview seal/study seal/backbone/system_note.py seal/train/{round,validation,synthetic}.py seal/exploration seal/records/candidates.py seal/tasks/pools.py \
    benchmarks/gpu_smoke/figures.py benchmarks/output.py benchmarks/service/report.py
part 'worked examples, service' "$service" -m pytest -q --doctest-modules \
    env_service/environments/bfcl/{execution,tasks,synthesis/sampler}.py
part 'tests, service' "$service" -m pytest -q $spread tests/env_service
if [ "$fast" = no ]; then
    part 'slow tests, trainer' "$trainer" -m pytest -q $spread -m slow tests/seal tests/scripts
    part 'slow tests, service' "$service" -m pytest -q $spread -m slow tests/env_service
    part 'pages in a browser' "$trainer" -m pytest -q -rs -m browser tests/browser
    part 'end to end' "$trainer" -m pytest -q --durations=10 -m e2e tests/e2e
    if [ ! -e .venv-bfcl-official/ready ]; then
        printf '\n== official bfcl program: NOT TESTED. scripts/setup_official.sh bfcl installs it (1.9 GB)\n'
    fi
    if [ -n "${CUDA_SET:-}" ]; then
        part 'packages for GPUs' bash scripts/test_cuda_set.sh "$CUDA_SET"
    else
        printf '\n== packages for GPUs: NOT TESTED. CUDA_SET=FOLDER downloads them (11 GB) and does\n'
    fi
fi
