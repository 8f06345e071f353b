"""This machine's own devices in place of a cluster: one slice, one worker, no queued resource.

For a first try of a workload, and for comparing one device with many.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Self

from multislice_nb import _portal
from multislice_nb.errors import CellTimeoutError, InvalidRequestError, WorkerError, WorkerLostError

if TYPE_CHECKING:
    from concurrent.futures import Future


class LocalCluster:
    """A worker process on this machine with the interface of an attached cluster, as far as a sweep needs it.

    Args:
        devices: CPU devices to show to JAX; None for whatever JAX finds, such as GPUs.

    Attributes:
        name: `this-machine`.
        node_count: 1.
        accelerator_type: None.
    """

    name = "this-machine"
    node_count = 1
    accelerator_type = None

    def __init__(self, devices: int | None = None) -> None:
        if devices is not None and devices < 1:
            raise InvalidRequestError(
                f"A cluster cannot have {devices} devices.", fix="Ask for at least one."
            )
        self.devices = devices
        self._pool: ProcessPoolExecutor | None = None

    def call(self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> list[Any]:
        """Run `package.module:function` in the worker and give its value, in a list of one.

        Raises:
            WorkerError: The function raised; its exception is the cause.
            WorkerLostError: The worker's process ended.
            CellTimeoutError: It took longer than `timeout` seconds, and the worker was stopped.
        """
        return _portal.sync(self.acall, function, *args, timeout=timeout, **kwargs)

    async def acall(
        self, function: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """`call`, awaitable. Cancelling it stops the worker."""
        import cloudpickle

        future: Future[bytes] | None = None
        try:
            # What was typed into a notebook is sent whole: the worker has another main module.
            asked = cloudpickle.dumps((function, args, kwargs))
            future = self._started().submit(_call, asked)
            async with asyncio.timeout(timeout):
                answered: bytes = await asyncio.wrap_future(future)
                return [pickle.loads(answered)]  # noqa: S301 - of our own worker
        except BrokenProcessPool as error:
            self.shutdown()
            raise WorkerLostError(
                f"The worker process on this machine ended while it ran {function}.",
                fix="It is started again by the next call; if memory was short, ask for less.",
            ) from error
        except TimeoutError as error:
            if future is None or future.done():
                raise _failed(function, error) from error
            self.shutdown()
            raise CellTimeoutError(
                f"{function} ran for longer than {timeout} s on this machine and was stopped.",
                fix="Give it a longer timeout.",
            ) from error
        except asyncio.CancelledError:
            self.shutdown()
            raise
        except Exception as error:
            raise _failed(function, error) from error

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                max_workers=1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_prepare,
                initargs=(self.devices,),
            )
        return self._pool

    async def arestart(self) -> None:
        """Stop the worker; the next call starts another."""
        self.shutdown()

    def shutdown(self) -> None:
        """Stop the worker, busy or not."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())  # noqa: SLF001 - a busy worker has to be killed before Python 3.14
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"LocalCluster(devices={self.devices})"


def _failed(function: str, error: Exception) -> WorkerError:
    return WorkerError(
        f"{function} raised {type(error).__name__} on this machine: {error}",
        fix="The worker's traceback is shown as the cause.",
    )


def _prepare(devices: int | None) -> None:
    if devices is not None:
        import jax

        # Not through the environment: the user's main module, which is imported here first, may import jax.
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)


def _call(asked: bytes) -> bytes:
    import cloudpickle

    function, args, kwargs = pickle.loads(asked)  # noqa: S301 - of our own parent process
    module, _, name = function.partition(":")
    return bytes(cloudpickle.dumps(getattr(importlib.import_module(module), name)(*args, **kwargs)))
