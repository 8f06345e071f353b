"""Whether somebody watches."""

from __future__ import annotations

from typing import Any

__all__ = ["is_watched"]


def is_watched(shell: Any) -> bool:
    """Whether there is a page on which an output can change, and a person before it.

    A front end with a person lets the kernel ask for input; nbclient, papermill and nbconvert do not.

    Args:
        shell: IPython's shell; None where there is none.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    parent: dict[str, Any] = kernel.get_parent("shell") or {}
    return bool(parent.get("content", {}).get("allow_stdin", False))
