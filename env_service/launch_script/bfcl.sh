#!/usr/bin/env bash
# Starts the BFCL environment service from any folder.
#   BFCL_HOST  address to listen on  (127.0.0.1)
#   BFCL_PORT  port to listen on     (8082)
#   BFCL_TASKS pools of synthetic tasks, with colons between them: a.tasks.jsonl:b.tasks.jsonl  (none)
# Further arguments go to python -m env_service. Signals reach python, as the shell is replaced.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="$root/.venv-bfcl/bin/python"

if [[ ! -x "$python" ]]; then
    echo "bfcl.sh: no python in .venv-bfcl of the repository; run install.sh first" >&2
    exit 1
fi

tasks=()
if [[ -n "${BFCL_TASKS:-}" ]]; then
    IFS=: read -r -a tasks <<< "$BFCL_TASKS"
    tasks=(--tasks "${tasks[@]}")
fi

cd "$root"
exec "$python" -m env_service \
    --host "${BFCL_HOST:-127.0.0.1}" --port "${BFCL_PORT:-8082}" --env bfcl "${tasks[@]}" "$@"
