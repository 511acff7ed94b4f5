"""The tools: for each one where its arguments come from, and at least three wordings.

One file for each tool class of the benchmark. In an entry, `s` is the `Source` and `x` the live
instance. Clauses name no tool, not even by a plain word like "add" or "mean": a request says what
is wanted, and the policy has to know which tool does it.
"""

import functools
from collections.abc import Mapping

from env_service.environments.bfcl.synthesis.sources import Tool
from env_service.environments.bfcl.synthesis.tools import (
    calculator,
    file_system,
    messages,
    posts,
    tickets,
    trading,
    travel,
    vehicle,
)

TOOLS: Mapping[str, Mapping[str, Tool]] = {
    "GorillaFileSystem": file_system.TOOLS,
    "MathAPI": calculator.TOOLS,
    "MessageAPI": messages.TOOLS,
    "TicketAPI": tickets.TOOLS,
    "TradingBot": trading.TOOLS,
    "TravelAPI": travel.TOOLS,
    "TwitterAPI": posts.TOOLS,
    "VehicleControlAPI": vehicle.TOOLS,
}
"""Class -> tool -> entry. Names of tools are unique."""


@functools.cache
def every_tool() -> Mapping[str, Tool]:
    """All entries by the tool's name."""
    return {name: tool for tools in TOOLS.values() for name, tool in tools.items()}
