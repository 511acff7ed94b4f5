"""bfcl-eval's own command line with one more model: the one behind OPENAI_BASE_URL.

Runs in .venv-bfcl-official. Its commands `generate` and `evaluate` are bfcl-eval's own, unmodified;
`plan` prints what they will do. The model is added to bfcl-eval's table of models at run time, as
bfcl-eval's guide for contributors adds one in the file. Its name there is SEAL_REGISTRY_NAME, and
bfcl-eval's own handler of OpenAI chat completions with function calling asks it. SEAL_SERVED_MODEL
is the name under which the endpoint serves it.

If a search with SerpAPI fails, SEAL_SEARCH_FAILED is put into bfcl-eval's log of the question, so
that the question is not scored: bfcl-eval's own log is the same for a wrong key and for an empty
result.
"""

import json
import os
from collections import Counter
from typing import Any

import typer
from bfcl_eval.__main__ import cli
from bfcl_eval.constants.eval_config import TEST_IDS_TO_GENERATE_PATH
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING, ModelConfig
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.web_search import GoogleSearch
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from bfcl_eval.utils import is_memory_prereq, load_dataset_entry

FAILED = os.environ["SEAL_SEARCH_FAILED"]

MODEL_CONFIG_MAPPING[os.environ["SEAL_REGISTRY_NAME"]] = ModelConfig(
    model_name=os.environ["SEAL_SERVED_MODEL"],
    display_name=os.environ["SEAL_SERVED_MODEL"],
    url="",
    org="",
    license="",
    model_handler=OpenAICompletionsHandler,
    is_fc_model=True,
    # As for every model with this handler: names of tools come back without dots.
    underscore_to_dot=True,
)


_get_response = GoogleSearch.get_response


def get_response(request: GoogleSearch, path: str = "/search") -> Any:
    """bfcl-eval's own, but an error that the query did not cause is raised.

    See serpapi.com/search-errors.
    """
    try:
        response = _get_response(request, path)
    except Exception as error:
        # Not its own message, which has the address, and the key in it.
        raise RuntimeError(f"{FAILED}: {type(error).__name__}") from None
    # 200 may be an empty result; 400 means a query that is empty or too long.
    if response.status_code in (200, 400):
        return response
    reason = response.text[:200]
    # If bfcl-eval reads 429, it waits and asks again; if the quota is used up, it would never end.
    status = "" if "run out" in reason else f"{response.status_code} "
    raise RuntimeError(f"{FAILED}: {status}{reason}")


GoogleSearch.get_response = get_response


def plan(categories: str, tasks: int = typer.Option(0)) -> None:
    """Print how many entries each category has, including those that fill the memory first.

    With --tasks N, the first N questions of each category, and the entries they depend on, are
    written to the file that `generate --run-ids` reads.
    """
    chosen: dict[str, list[str]] = {}
    for category in categories.split(","):
        entries = load_dataset_entry(category)
        questions = [entry for entry in entries if not is_memory_prereq(entry["id"])]
        kept = questions[: tasks or None]
        needed = {needs for entry in kept for needs in entry.get("depends_on", ())}
        chosen[category] = [*sorted(needed), *(entry["id"] for entry in kept)]
    if tasks:
        TEST_IDS_TO_GENERATE_PATH.write_text(json.dumps(chosen), "utf-8")
    print(json.dumps(Counter({name: len(ids) for name, ids in chosen.items()})))


if __name__ == "__main__":
    cli.command()(plan)
    cli()
