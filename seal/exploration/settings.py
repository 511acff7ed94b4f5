"""What candidates are asked for with: the part of it that a line of their file keeps."""

from dataclasses import dataclass
from typing import Any

from seal.exploration.prompts import fingerprint


@dataclass(frozen=True)
class Settings:
    """How a model is asked."""

    author: str
    """Name of the model, as the candidates name it."""
    tool_format: str
    """How it writes calls: one of seal.formats.FORMATS, or structured."""
    per_seed: int
    """Tasks that it is asked for."""
    calls: int
    """Calls that it may make to explore a seed's world."""
    temperature: float
    """Of its sampling."""
    answer_tokens: int
    """Tokens of one answer."""
    context_tokens: int
    """Tokens of a dialogue."""
    seed_seconds: float
    """Seconds for one seed, after which it has failed."""

    def of_exploring(self) -> dict[str, Any]:
        """What explored candidates depend on."""
        own = {"per_seed": self.per_seed, "calls": self.calls, "tool_format": self.tool_format}
        return {**self.of_rewording(), **own}

    def of_rewording(self) -> dict[str, Any]:
        """What reworded candidates depend on."""
        return {
            "temperature": self.temperature,
            "answer_tokens": self.answer_tokens,
            "context_tokens": self.context_tokens,
            "prompts": fingerprint(),
        }
