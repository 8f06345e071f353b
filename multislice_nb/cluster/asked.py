"""What the notebook asks of an engine, as it travels. Unpickled on the workers, so it imports nothing heavy."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

__all__ = ["Asked"]

AGENT = "multislice_nb.cluster.agent"


@dataclass(frozen=True, slots=True)
class Asked:
    """A function of the agent, by its name: no byte code travels, so the two Pythons may differ.

    It is found as a module and not in the engine's namespace, which is the user's to clear.
    """

    function: str

    def __call__(self, *args: Any) -> Any:
        """Run it in the engine."""
        return getattr(importlib.import_module(AGENT), self.function)(*args)
