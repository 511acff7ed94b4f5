"""Write a checkpoint of a run as a Hugging Face folder, and check what was written.

CHECKPOINT is a global_step_<n> folder, or an experiment (experiments/<name>); of an experiment,
--which chooses the best or the last checkpoint. OUT must not exist; it appears complete or not at
all. It holds weights, config, tokenizer, chat template and generation config, and works wherever a
model of the hub does: vLLM, transformers, a run's actor_rollout_ref.model.path.

Training keeps its weights in float32; the rollouts of a GPU run are in bfloat16 (--dtype bfloat16,
half the size). LoRA adapters are merged.

The check: transformers loads the folder, every tensor is compared with the checkpoint's, and so are
the logits on a chat prompt, both computed in float32. That takes 8 bytes of memory a parameter.
Exit status: 0, or 1 with one sentence that says what is wrong.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from seal.export.hugging_face import DTYPES, Check, export
from seal.export.shards import ExportError
from seal.records.checkpoint_folder import CheckpointError
from seal.train.checkpoints import find


def report(check: Check, out: Path, dtype: str | None) -> Iterator[str]:
    """The lines that are printed at the end."""
    size = sum(path.stat().st_size for path in out.iterdir())
    saved = dtype or "the checkpoint's dtype"
    yield f"{out}: {check.parameters:,} parameters in {saved}, {size / 1e9:.2f} GB"
    yield (
        f"loads; every tensor is equal, and the largest difference of a logit on a prompt of "
        f"{check.tokens} tokens is {check.difference:.3g}"
    )
    if dtype:
        yield f"rounding to {dtype} changed a logit by {check.rounding:.3g} at most"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="what to export")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to make")
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        default="best",
        help="checkpoint of an experiment (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), help="dtype of the weights (default: the checkpoint's)"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Read the command line, write and check the folder; the exit code tells success."""
    args = parse_arguments(argv)
    try:
        checkpoint = find(args.checkpoint, args.which)
        print(f"reading {checkpoint}")
        check = export(
            checkpoint,
            args.out,
            args.dtype,
            lambda files: tqdm(files, desc="shards", unit="file"),
            print,
        )
    except (CheckpointError, ExportError, OSError) as error:
        print(f"export_hf: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"export_hf: interrupted; {args.out} was not written", file=sys.stderr)
        return 130
    for line in report(check, args.out, args.dtype):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
