"""The emulator of this machine as `%multislice emulator` shows it; `connect()` starts it by itself."""

from __future__ import annotations

from multislice_nb.errors import InvalidRequestError

__all__ = ["control"]


def control(action: str) -> str:
    """Start, stop or look at the emulator.

    Args:
        action: `start`, `stop` or `status`.

    Returns:
        What there is now, in a few words.

    Raises:
        EmulatorError: It did not start or stop.
        InvalidRequestError: No such action.
    """
    from multislice_nb.emulator import daemon

    if action == "start":
        address = daemon.ensure_running()
        return f"The emulator runs on {address.host}:{address.port} (process {address.pid})."
    if action == "stop":
        ended = daemon.stop()
        return "The emulator was stopped, with all its slices." if ended else "No emulator runs."
    if action != "status":
        raise InvalidRequestError(
            f"The emulator has no {action!r}.", fix="It can start, stop, and tell its status."
        )
    status = daemon.status()
    if status is None:
        return "No emulator runs. %multislice connect starts it."
    return "\n".join(["The emulator runs.", *(f"  {key}: {_shown(value)}" for key, value in status.items())])


def _shown(value: object) -> str:
    return str(len(value)) if isinstance(value, list | dict) else str(value)
