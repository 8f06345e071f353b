"""How patient a gang is, and where that comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from multislice_nb.config import Multislice
from multislice_nb.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEARTBEAT", "GangSettings", "from_environment"]

HEARTBEAT = 300.0

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class GangSettings:
    """How patient a gang is. Times are in seconds.

    Each can be set as `%config Multislice.gang_NAME`, or in the environment as `MULTISLICE_NB_GANG_NAME`; see
    `configured`.

    Attributes:
        grace: After the first failure, until the others are interrupted.
        lost_grace: After a worker's process ended, until the others are interrupted: they cannot finish a
            collective without it, and nobody's message is worth waiting for.
        interrupt_grace: After an interrupt, until a worker counts as stuck; 2 at most after a loss.
        output_grace: After a reply, for output that is still on its way.
        kill_stuck: Whether stuck workers are killed after a failure or a timeout. Killing loses their
            state, so by default they are reported, and the restart is offered. After a loss they are always
            killed, for the gang is broken anyway, and an interrupt by the user always frees the cluster.
        auto_restart: Whether a gang that has lost workers, or has some that could not be freed, is started
            anew by itself at the end of the cell. Variables on all workers are lost by that.
        inquiry: After a loss, for the worker and the Cloud TPU API to say why.
        silence: Without a word or an end from any worker, until it is said where they all stand; 0 for never.
        abort_on_hang: Whether the cell is then stopped, as after a timeout.
        reconnect: After SSH dropped, until nobody waits for it any more.
        heartbeat: Without a sign of a process, until jax.distributed ends the others. It counts from the next start
            of a gang. Losses are noticed long before; a compilation of minutes must not count as one.
    """

    grace: float = 5.0
    lost_grace: float = 1.0
    interrupt_grace: float = 5.0
    output_grace: float = 5.0
    kill_stuck: bool = False
    auto_restart: bool = False
    inquiry: float = 3.0
    silence: float = 300.0
    abort_on_hang: bool = False
    reconnect: float = 600.0
    heartbeat: float = HEARTBEAT

    @classmethod
    def configured(cls, *, environ: Mapping[str, str] = os.environ, **chosen: Any) -> Self:
        """An argument beats `%config Multislice.gang_…`, which beats the environment, which beats the default.

        Args:
            environ: The environment to read.
            chosen: By name, values that were asked for; None counts as not asked for.

        Raises:
            errors.ConfigurationError: A variable of the environment holds no such value.
        """
        values = {name: value for name, value in chosen.items() if value is not None}
        for field in fields(cls):
            configured = getattr(Multislice.instance(), f"gang_{field.name}")
            variable = f"MULTISLICE_NB_GANG_{field.name.upper()}"
            if configured is not None:
                values.setdefault(field.name, configured)
            else:
                values.setdefault(field.name, from_environment(variable, field.default, environ))
        return cls(**values)


def from_environment(variable: str, default: Any, environ: Mapping[str, str] = os.environ) -> float | bool:
    """What a variable of the environment says, of the kind that the default is of; that where it is not set.

    Raises:
        errors.ConfigurationError: It holds no such value.
    """
    text = environ.get(variable, "")
    word = text.strip().lower()
    if not text:
        return bool(default) if isinstance(default, bool) else float(default)
    if isinstance(default, bool):
        if word in _TRUE | _FALSE:
            return word in _TRUE
        raise ConfigurationError(f"{variable} is {text!r}.", fix="Set it to 1 or 0.")
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigurationError(f"{variable} is {text!r}.", fix="Set it to a number of seconds.")
    return number
