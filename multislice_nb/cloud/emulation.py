"""The emulator of this machine as `%multislice emulator` shows it; `connect()` starts it by itself."""

from __future__ import annotations

from multislice_nb.errors import InvalidRequestError

__all__ = ["control", "misfortune"]


def control(action: str) -> str:
    """Start, stop or look at the emulator.

    Args:
        action: `start`, `stop`, `status`, or `env` for the variables that point other clients at it.

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
    if action == "env":
        return _environment()
    if action != "status":
        raise InvalidRequestError(
            f"The emulator has no {action!r}.", fix="It can start, stop, and tell its status and its env."
        )
    status = daemon.status()
    if status is None:
        return "No emulator runs. %multislice connect starts it."
    return "\n".join(["The emulator runs.", *(f"  {key}: {_shown(value)}" for key, value in status.items())])


def misfortune(kind: str | None = None, *parameters: str, clear: bool = False) -> str:
    """Make something fail on the emulator, or list what can.

    Args:
        kind: Such as `preempt`; None to list those there are.
        parameters: As that kind takes them, each as `node=demo-0`; values are JSON or text.
        clear: Take back every fault that lasts, before.

    Raises:
        EmulatorError: No emulator runs, or that cannot happen now.
        InvalidRequestError: A parameter is not written as name=value.
    """
    from multislice_nb.emulator import cli, control

    with control.connect() as emulator:
        if clear:
            emulator.clear_faults()
        if kind is not None:
            emulator.inject(kind, **dict(map(cli.parameter, parameters)))
            return f"{kind} {' '.join(parameters)}".strip() + ": it is done."
        if clear:
            return "No fault lasts any more."
        return "\n".join(f"{name:24}{text.splitlines()[0]}" for name, text in emulator.fault_kinds().items())


def _environment() -> str:
    from multislice_nb.emulator import address as defaults
    from multislice_nb.emulator import client_environment, daemon

    found = client_environment.client_environment(
        daemon.ensure_running(), project=defaults.DEFAULT_PROJECT, zone=defaults.DEFAULT_ZONE
    )
    return client_environment.as_magic(found)


def _shown(value: object) -> str:
    return str(len(value)) if isinstance(value, list | dict) else str(value)
