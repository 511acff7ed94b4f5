"""What is known before a loop runs: the launcher's checks, and the memory plan.

In: a `Case`. Out: findings and planned bytes, to be compared with what is measured.
"""

from typing import Any

from benchmarks.gpu_smoke.configuration import Case
from benchmarks.gpu_smoke.kept import SmokeError
from seal import ROOT
from seal.launch.check.all_checks import check
from seal.launch.check.finding import Level
from seal.launch.folders import RunError
from seal.launch.listening import free_port
from seal.launch.memory import ASIDE_BYTES, UnplannedError, plan, settings_of
from seal.launch.processes import Family
from seal.launch.shapes import config_of, shape_of


def checks(measured: Case) -> dict[str, Any]:
    """The lines of `launcher.py --check`.

    Raises:
        SmokeError: They cannot be made.
    """
    recipe = measured.recipe(
        f"trainer.experiment_name=gpu_smoke_check_{measured.size}",
        f"env_service.env_url=http://127.0.0.1:{free_port()}",
    )
    family = Family()
    try:
        findings = check(recipe, with_bfcl=True, resume=False, family=family)
    except RunError as error:
        raise SmokeError(f"the checks cannot be made: {error}") from error
    finally:
        family.end()
    return {
        "findings": [
            {"subject": finding.subject, "level": finding.level.value, "said": finding.message}
            for finding in findings
        ]
    }


def errors(checked: dict[str, Any]) -> list[str]:
    """The checks' findings that keep a run from working."""
    return [
        f"{finding['subject']}: {finding['said']}"
        for finding in checked["findings"]
        if finding["level"] == Level.ERROR.value
    ]


def planned(measured: Case, memory: int) -> dict[str, Any]:
    """Bytes of one GPU, which has `memory` bytes, by the closed form; the model has been made.

    Returns:
        The bytes by name; or, under "unplanned", why the form does not hold.
    """
    recipe = measured.recipe()
    config = config_of(str(recipe.actor_rollout_ref.model.path), ROOT)
    assert config is not None, "the model has been made before"
    try:
        needs = plan(shape_of(config), settings_of(recipe))
    except UnplannedError as error:
        return {"unplanned": str(error)}
    return {
        "update": needs.update,
        "aside": ASIDE_BYTES,
        "wake": needs.wake(memory),
        "utilization": needs.utilization,
        "largest_utilization": needs.largest_utilization(memory),
    }
