#!/usr/bin/env bash
# Prepares the BFCL environment alone: the service's virtual environment (.venv-bfcl) and, beside this
# file, bfcl_data/multi_turn_processed.jsonl, every task with its reference. Works from any folder; run
# it again at any time. Options go to install.sh (PYTHON=/path/to/python3.11 names the interpreter).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"

case " $* " in *" --help "*) exec bash "$root/install.sh" --help ;; esac
bash "$root/install.sh" --service "$@"
"$root/.venv-bfcl/bin/python" "$root/scripts/prepare_bfcl.py" --processed-only
