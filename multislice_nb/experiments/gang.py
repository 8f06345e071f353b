"""What a sweep needs of the workers it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from multislice_nb.tpu import AcceleratorType


class Gang(Protocol):
    """Workers that run a function together: an attached cluster, or this machine's own devices."""

    @property
    def name(self) -> str:
        """Of the queued resource."""

    @property
    def node_count(self) -> int:
        """Number of slices."""

    @property
    def accelerator_type(self) -> AcceleratorType | None:
        """Of each slice; None where there is no TPU slice, real or emulated."""

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """Run `package.module:function` on every worker at once; its values by rank."""

    async def arestart(self) -> object:
        """Start afresh after a worker was lost."""
