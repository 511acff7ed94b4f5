"""The sections of a recipe that this project reads, as typed values.

In: a resolved recipe. Out: `Settings`, which launcher, trainer and agent loop share. Each class is
a section of exp/SEAL.yaml, and each of its fields a key there, with the same name; SEAL.yaml says
what a key does. A new setting is a field here, or in the class of `seal.coevolution` that uses it,
and a line in SEAL.yaml. `trainer` and `data` have other keys, too, which verl reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, with_config

from seal.client.addresses import host_and_port, url_list
from seal.coevolution.drawing import Choice
from seal.coevolution.evolution import InterfaceConfig
from seal.coevolution.exposure import Exposure
from seal.coevolution.profile import ProfileWindow
from seal.coevolution.shaping import RewardShaping
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES, WeightConfig
from seal.formats import FORMATS
from seal.labels import Label, label_from_config
from seal.settings.reading import STRICT, STRICT_AMONG_OTHERS, adapter, read
from seal.wire import UnreadableMessage


def listed(value: object) -> object:
    """One text stands for a list of it."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _commands(value: object) -> object:
    """Nothing stands for no command."""
    return listed(value or ())


def _labels(value: object) -> object:
    """Utilities by label; names of the published recipe are accepted, the last one of two wins."""
    if not isinstance(value, Mapping):
        return value
    return {label_from_config(name): utility for name, utility in value.items()}


def _addresses(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        host_and_port(url)
    return url_list(urls)


def _format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"expected one of {', '.join(FORMATS)}")
    return name


def _variable(value: object) -> object:
    """A number in an environment variable is written without quotes as well."""
    return str(value) if type(value) in (int, float) else value


Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
LARGEST = 2**31 - 1
"""Of a count: more is a mistake, and no library takes it."""
Count: TypeAlias = Annotated[int, Field(ge=1, le=LARGEST)]
Natural: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST)]
Positive: TypeAlias = Annotated[float, Field(gt=0.0)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
"""What NumPy, which vLLM seeds too, takes."""
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(listed)]
LARGEST_STEERING = 1e6
"""Beyond it, a task without a wanted label would practically never be drawn."""
Files: TypeAlias = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(listed)]
Variable: TypeAlias = Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


@dataclass(frozen=True)
class EnvService:
    """`env_service`: the environment service, and the dialogues with it."""

    env_url: Annotated[Files, AfterValidator(_addresses)]
    """Addresses without duplicates, at least one."""
    token_file: Text | None
    env_type: Text
    tool_format: Annotated[str, AfterValidator(_format)]
    stop_tokens: tuple[Text, ...]
    unreadable_message: UnreadableMessage
    attempts: Count
    max_tokens_per_step: Count
    max_dialogues: Count | None


@dataclass(frozen=True)
class Weights(WeightConfig):
    """`seal.weights`: the weights of advantages, and whether the utilities move.

    The cascade share is a key of `seal`, because the failure profile uses it, too.
    """

    utilities: Annotated[Mapping[Label, float], BeforeValidator(_labels)] = field(
        default_factory=lambda: dict(UTILITIES)
    )
    dynamic: UtilityConfig = field(default_factory=UtilityConfig)


@dataclass(frozen=True)
class Checkpoints:
    """`seal.checkpoints`: which checkpoints are kept."""

    keep_best: bool
    keep_last: Natural | None


@dataclass(frozen=True)
class StartGate:
    """`seal.start_gate`: what a suite has to show before the first step."""

    suite: Text
    min_pass_rate: Share
    min_mixed_group_share: Share


@dataclass(frozen=True)
class Seal:
    """`seal`: the method.

    Raises:
        ValueError: `cascade_share` is not in [0, 1], or stands among the weights.
    """

    cascade_share: float
    run_id: Annotated[str, StringConstraints(min_length=1, max_length=180)]
    """The service takes 200 characters, and the launcher adds an id of the launch."""
    weights: Weights
    """With the cascade share."""
    interface: InterfaceConfig
    exposure: Exposure
    profile: ProfileWindow
    reward: RewardShaping
    best_metric: Text
    rare_suites: tuple[Text, ...]
    checkpoints: Checkpoints
    start_gate: StartGate | None
    loop_dir: Text

    def __post_init__(self) -> None:
        """Put the cascade share among the weights, which check its range."""
        if self.weights.cascade_share != WeightConfig.cascade_share:
            raise ValueError("seal.weights.cascade_share does not act; set seal.cascade_share")
        weights = replace(self.weights, cascade_share=self.cascade_share)
        object.__setattr__(self, "weights", weights)


@dataclass(frozen=True)
class Launcher:
    """`launcher`: how a run is started and watched."""

    stall_timeout_s: Positive
    build_policy: Annotated[tuple[Text, ...], BeforeValidator(_commands)]
    """Commands; there may be none."""
    build_tasks: Annotated[tuple[Text, ...], BeforeValidator(_commands)]
    """Commands; there may be none."""
    environment: Mapping[Variable, Annotated[str, BeforeValidator(_variable)]]


@dataclass(frozen=True)
class EnvFailure:
    """`trainer.env_failure`: how much of the service's failures a run bears."""

    max_share: Share
    wait_s: Annotated[float, Field(ge=0.0)]


@with_config(STRICT_AMONG_OTHERS)
@dataclass(frozen=True)
class Trainer:
    """`trainer`, as far as this project reads it."""

    env_failure: EnvFailure
    default_local_dir: Text
    save_freq: Annotated[int, Field(ge=-1)]
    test_freq: Annotated[int, Field(ge=-1)]
    val_before_train: bool
    resume_mode: Literal["disable", "auto", "resume_path"]
    resume_from_path: Text | None
    max_actor_ckpt_to_keep: Count | None
    remove_previous_ckpt_in_save: bool = False


@with_config(STRICT_AMONG_OTHERS)
@dataclass(frozen=True)
class Data:
    """`data`, as far as this project reads it."""

    train_files: Files
    val_files: Files
    train_batch_size: Count
    max_prompt_length: Count
    max_response_length: Count
    apply_chat_template_kwargs: Mapping[str, Any]
    synthetic_tasks: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]+$")] | None
    """Name of a pool."""
    synthetic_share: Share
    synthetic_refresh: Count | None
    synthetic_steering: Annotated[float, Field(ge=0.0, le=LARGEST_STEERING)]
    synthetic_choice: Choice


@with_config(STRICT)
@dataclass(frozen=True)
class Settings:
    """All settings of a run that this project reads."""

    seed: Seed
    env_service: EnvService
    seal: Seal
    launcher: Launcher
    trainer: Trainer
    data: Data


SECTIONS = tuple(Settings.__dataclass_fields__)
"""The keys of a recipe at the top that have typed values."""


def read_settings(config: DictConfig) -> Settings:
    """The settings of a resolved recipe.

    Raises:
        SettingsError: Keys are missing or unknown, or values are wrong; it has a sentence for each.
    """
    settings: Settings = read(
        adapter(Settings), {name: plain(config[name]) for name in SECTIONS if name in config}
    )
    return settings


def plain(value: object) -> object:
    """A value of a configuration without OmegaConf's containers; interpolations are resolved."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


_READ: dict[int, tuple[DictConfig, Settings]] = {}


def settings_of(config: DictConfig) -> Settings:
    """The settings of a configuration that does not change; read at the first call with it.

    A worker process makes an agent loop for each rollout, all with one configuration.

    Raises:
        SettingsError: As in `read_settings`.
    """
    if id(config) not in _READ:
        # The configuration is kept, so that no other one gets its id.
        _READ[id(config)] = (config, read_settings(config))
    return _READ[id(config)][1]
