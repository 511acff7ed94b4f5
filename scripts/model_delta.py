r"""Keep a trained model as a small file beside the model it was trained from, and make it again.

One bit for each weight that was trained: the sign of its change. For SmolLM2-135M that is 13 MB
instead of 538. The model that `apply` makes is close to the trained model, not equal to it:
evaluate it before you rely on it. The same file makes the same weights on every processor, so runs
on several machines can start from one policy.

    .venv/bin/python scripts/model_delta.py make --base models/smollm2-135m \
        --model models/smollm2-135m-warm --delta warm.safetensors
    .venv/bin/python scripts/model_delta.py apply --base models/smollm2-135m \
        --model models/smollm2-135m-again --delta warm.safetensors
"""

import argparse
import sys
from pathlib import Path

from seal.warm_up.delta import DeltaError, apply_delta, make_delta


def main(argv: list[str]) -> int:
    """Read the command line, then make or apply the file; the exit code tells success."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("what", choices=("make", "apply"), help="make the file, or a model from the file")
    option("--base", type=Path, required=True, help="folder of the model before training")
    option("--model", type=Path, required=True, help="folder of the trained model; apply writes it")
    option("--delta", type=Path, required=True, help="the file; make writes it")
    args = parser.parse_args(argv)
    try:
        if args.what == "make":
            make_delta(args.base, args.model, args.delta)
        elif not apply_delta(args.base, args.delta, args.model):
            print(f"{args.model}: made already")
    except (DeltaError, OSError) as error:
        print(f"model_delta: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("model_delta: interrupted; run it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
