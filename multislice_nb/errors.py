"""Every error that multislice_nb raises on purpose.

    MultisliceError
    ├── InvalidRequestError             asked for something that cannot be; nothing was sent or changed
    │   ├── AcceleratorTypeError        no such slice
    │   ├── ParallelismError            a product does not match chips or slices
    │   └── MagicError                  a wrong word in a magic
    ├── ConfigurationError              no project, zone or credentials
    ├── CloudError                      what the Cloud TPU API answered
    │   ├── NotFoundError
    │   ├── AlreadyExistsError
    │   ├── PermissionDeniedError
    │   ├── QuotaExceededError
    │   ├── FailedPreconditionError
    │   ├── UnavailableError
    │   ├── QueuedResourceFailedError   it reached a state from which it cannot become ACTIVE
    │   └── WaitTimeoutError            a deadline passed while waiting for it
    ├── LedgerError                     the file that remembers what was created cannot be read or written
    ├── EmulatorError                   the emulator did not start, stop or answer
    ├── ClusterError                    the workers of a queued resource
    │   ├── ConnectError                a worker did not answer SSH
    │   ├── StartError                  an engine, the controller or jax.distributed did not start
    │   └── WorkerError                 a cell failed on a worker
    │       ├── WorkerLostError         because its process or VM is gone
    │       └── CellTimeoutError        because it ran past its deadline
    ├── PlanError                       a program that the ahead-of-time compiler cannot plan
    ├── ExperimentError                 a sweep, a results file or a notebook run
    └── JobError                        an unattended run
        ├── StoreError                  the bucket or folder that it is kept in cannot be read or written
        ├── CheckpointError             no checkpoint can be gone on from
        └── SaveError                   a checkpoint could not be written; another start may succeed

Each says what happened and to what (`what`), and what to do next (`fix`). In IPython they show as those
two sentences without a traceback, since the user's own code is not at fault line by line; they still raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multislice_nb.cluster.result import CellResult

__all__ = [
    "AcceleratorTypeError",
    "AlreadyExistsError",
    "CellTimeoutError",
    "CheckpointError",
    "CloudError",
    "ClusterError",
    "ConfigurationError",
    "ConnectError",
    "EmulatorError",
    "ExperimentError",
    "FailedPreconditionError",
    "InvalidRequestError",
    "JobError",
    "LedgerError",
    "MagicError",
    "MultisliceError",
    "NotFoundError",
    "ParallelismError",
    "PermissionDeniedError",
    "PlanError",
    "QueuedResourceFailedError",
    "QuotaExceededError",
    "SaveError",
    "StartError",
    "StoreError",
    "UnavailableError",
    "WaitTimeoutError",
    "WorkerError",
    "WorkerLostError",
]


class MultisliceError(Exception):
    """The root of the tree.

    Args:
        what: One sentence: what happened, and to what.
        fix: One sentence: what to do next. Empty only where `what` already says it.
    """

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n{self.fix}" if self.fix else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # `fix` is a keyword, which Exception's own way of being pickled between processes does not know.
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback through our own code."""
        return [f"{type(self).__name__}: {self}"]


class InvalidRequestError(MultisliceError, ValueError):
    """Asked for something that cannot be; nothing was sent or changed."""

    @classmethod
    def of_faults(cls, subject: str, faults: list[tuple[str, str]]) -> Self:
        """One error that reports all faults of a request at once.

        Args:
            subject: What was asked for, as in "queued resource demo".
            faults: Pairs of what is wrong and how to mend it.
        """
        if len(faults) == 1:
            return cls(faults[0][0], fix=faults[0][1])
        lines = [f"  - {what} {fix}".rstrip() for what, fix in faults]
        return cls(f"{subject} has {len(faults)} faults:\n" + "\n".join(lines))


class AcceleratorTypeError(InvalidRequestError):
    """No such slice."""


class ParallelismError(InvalidRequestError):
    """A product of parallelism degrees does not match the chips of a slice or the number of slices."""


class MagicError(InvalidRequestError):
    """A wrong word in a magic. Never IPython's UsageError, which notebook runners let pass."""


class ConfigurationError(MultisliceError):
    """No project, zone or credentials, or a library that is not installed."""

    @classmethod
    def of_library(cls, doing: str, error: ImportError, extra: str) -> Self:
        """A library is not installed that only some people need.

        Args:
            doing: What needs it, as in "Reading batches".
            error: What importing it raised.
            extra: The extra of this package that brings it.
        """
        return cls(
            f"{doing} needs a library that is not installed: {error}.",
            fix=f"Install it: pip install 'multislice-nb[{extra}]'.",
        )


class CloudError(MultisliceError):
    """What the Cloud TPU API answered, kept in `__cause__`."""

    @classmethod
    def of_several(cls, subject: str, failed: Sequence[BaseException]) -> BaseException:
        """One error that tells all of them; one that is alone, or none of these, is told as it is.

        Args:
            subject: What did not come about, as in "could not be deleted".
            failed: At least one.
        """
        ours = [error for error in failed if isinstance(error, CloudError)]
        if len(failed) == 1 or len(ours) < len(failed):
            return next((error for error in failed if error not in ours), failed[0])
        lines = [f"  - {error.what}" for error in ours]
        fixes = dict.fromkeys(error.fix for error in ours if error.fix)
        return cls("\n".join([f"{len(ours)} {subject}:", *lines]), fix=" ".join(fixes))


class NotFoundError(CloudError):
    """There is no such queued resource, node, zone or project."""


class AlreadyExistsError(CloudError):
    """The name is taken."""


class PermissionDeniedError(CloudError):
    """The account may not do this, or is not logged in."""


class QuotaExceededError(CloudError):
    """A quota does not allow it, or too many requests were sent."""


class FailedPreconditionError(CloudError):
    """The state it is in does not allow it."""


class UnavailableError(CloudError):
    """The service did not answer, or has no capacity."""

    @classmethod
    def of_closed(cls) -> Self:
        """The connection was closed before, by `close()` or by the end of the kernel."""
        return cls(
            "The connection to the Cloud TPU API was closed.",
            fix="Connect again: %multislice connect, or ms.connect().",
        )


class QueuedResourceFailedError(CloudError):
    """A queued resource reached a state from which it cannot become ACTIVE."""


class WaitTimeoutError(CloudError):
    """A deadline passed while waiting for a queued resource."""


class LedgerError(MultisliceError):
    """The file that remembers what was created cannot be read or written."""


class EmulatorError(MultisliceError):
    """The emulator did not start, stop or answer."""


class ClusterError(MultisliceError):
    """Something about the workers of a queued resource."""


class ConnectError(ClusterError):
    """A worker did not answer SSH."""


class StartError(ClusterError):
    """An engine, the controller or jax.distributed did not start."""


class WorkerError(ClusterError):
    """A cell failed on a worker.

    Attributes:
        result: What the cell left on every worker, those that did well included.
    """

    result: CellResult | None = None


class WorkerLostError(WorkerError):
    """A worker's process or VM is gone."""


class CellTimeoutError(WorkerError):
    """A cell ran past its deadline and was stopped."""


class PlanError(MultisliceError):
    """A program that the ahead-of-time compiler cannot plan. `detail` holds its traceback, if it has one."""

    def __init__(self, what: str, *, fix: str = "", detail: str = "") -> None:
        super().__init__(what, fix=fix)
        self.detail = detail


class ExperimentError(MultisliceError):
    """A sweep, a results file or a notebook run."""


class JobError(MultisliceError):
    """An unattended run."""


class StoreError(JobError, OSError):
    """The bucket or folder where jobs are kept cannot be read or written."""


class CheckpointError(JobError):
    """There are checkpoints, and none of them can be gone on from."""


class SaveError(JobError):
    """A checkpoint could not be written; another start may succeed."""
