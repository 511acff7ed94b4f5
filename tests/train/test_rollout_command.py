"""What vLLM is told for each backbone: verl's own command line, read by the installed vLLM."""

import json
import os
import subprocess
import sys
from pathlib import Path

from seal.launch.recipe import EXP

ROOT = Path(__file__).resolve().parents[2]


def test_vllm_reads_what_verl_asks_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "tests/rollout_command.py", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == {path.stem for path in (EXP / "backbone").glob("*.yaml")}
    for backbone, said in found.items():
        linear = backbone == "qwen3.5-4b"
        assert said == {
            "model": str(tmp_path / backbone),
            # SmolLM2 cannot read more.
            "max_model_len": 8192 if backbone == "smollm2-135m" else 16384,
            "enable_sleep_mode": True,
            "enable_prefix_caching": not linear,
            "gdn_prefill_backend": "triton" if linear else None,
        }
