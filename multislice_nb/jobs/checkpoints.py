"""Training that goes on where it was: Orbax for the state, the data iterator's own state with it.

```python
checkpoints = Checkpoints(every=100, keep=3)
state, start = checkpoints.restore(state, data)
for step in range(start, steps):
    state, loss = train_step(state, next(data))
    checkpoints.after(step + 1, state, data)
checkpoints.close()
```

Restored arrays take the shardings of the state that is passed in, so that a run may go on with another
number of slices.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from multislice_nb.errors import CheckpointError, ConfigurationError, SaveError
from multislice_nb.jobs.distributed import PREEMPTED_EXIT
from multislice_nb.jobs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Checkpoints", "Resumable"]

T = TypeVar("T")

_HASHED = 1 << 20
"""Files up to this many bytes are compared by content, larger ones by size: reading all twice costs too much."""


class Resumable(Protocol):
    """A data iterator that can say where it is and go there, as Grain's."""

    def get_state(self) -> Any:
        """Where it is."""

    def set_state(self, state: Any) -> None:
        """Go there."""


class Checkpoints:
    """Checkpoints of one training run.

    Args:
        directory: Where; a job's own folder of checkpoints when None.
        every: Steps between two checkpoints.
        keep: How many to keep.

    Raises:
        ConfigurationError: No directory is named outside a job, or Orbax or what reaches the bucket is missing.
    """

    def __init__(self, directory: str | Path | None = None, *, every: int = 100, keep: int = 3) -> None:
        named = str(directory or os.environ.get("MULTISLICE_NB_CHECKPOINTS", ""))
        if not named:
            raise ConfigurationError(
                "No directory for checkpoints is named.", fix="Name one: Checkpoints('gs://…') or a folder."
            )
        try:
            import orbax.checkpoint as ocp
            from etils import epath
        except ImportError as error:
            raise ConfigurationError.of_library("Saving checkpoints", error, "jobs") from error
        if named.startswith("gs://"):
            _prepare_for_buckets(named)
        self._ocp = ocp
        self._every = every
        self._store = Store(named)
        options = ocp.CheckpointManagerOptions(
            save_interval_steps=1,
            max_to_keep=keep,
            enable_async_checkpointing=True,
            async_options=ocp.AsyncOptions(barrier_sync_fn=self._meet),
        )
        steps = epath.Path(self._store.child("steps").url.removeprefix("file://"))
        self._drop_unfinished(steps)
        self._barrier = ocp.multihost.get_barrier_sync_fn()
        self._last, self._saver, self._failed = 0, threading.get_ident(), False
        self._manager = ocp.CheckpointManager(steps, options=options)
        self._sealed: set[int] = set()

    def restore(self, state: T, data: Resumable | None = None) -> tuple[T, int]:
        """Go on from the newest checkpoint that is whole.

        Args:
            state: A pytree of arrays like the one that was saved; its shapes and shardings are what counts.
            data: The data iterator, which is moved to where it was.

        Returns:
            The state and the number of steps it has seen: as given, and 0, where there is no checkpoint.

        Raises:
            CheckpointError: There are checkpoints, and none of them fits or is whole.
        """
        self._manager.reload()
        steps = sorted(self._manager.all_steps(), reverse=True)
        trouble = ""
        for step in steps:
            trouble = self._damage(step)
            if not trouble:
                restored, trouble = self._try(step, state)
                if not trouble:
                    self._move(data, restored["data"], step)
                    self._drop_after(step)
                    return restored["state"], step
            self._warn(f"Checkpoint {step} is left out: {trouble}")
        if steps:
            raise CheckpointError(
                f"None of the {len(steps)} checkpoints in {self._store.url} can be gone on from; the oldest: {trouble}",
                fix="Pass the state that was saved, or start anew in another directory.",
            )
        return state, 0

    def after(self, step: int, state: Any, data: Resumable | None = None) -> None:
        """Call after every step: saves when it is time, in the background.

        On the notice of a preemption it saves at once, on all processes at the same step, and ends the
        process with the exit status by which its supervisor knows that it wants to go on later.

        Args:
            step: How many steps the state has seen.
            state: The state.
            data: The data iterator.

        Raises:
            SaveError: The save before, which went on in the background, has failed.
        """
        if self._failed:
            self._finish()
        if self._preempted(step):
            self.save(step, state, data)
            self.close()
            raise SystemExit(PREEMPTED_EXIT)
        if step % self._every == 0:
            self.save(step, state, data)

    def save(self, step: int, state: Any, data: Resumable | None = None) -> None:
        """Save in the background; the one before is complete when this returns.

        Raises:
            SaveError: The one before has failed.
        """
        self._finish()
        if step in self._manager.all_steps():
            return
        ocp = self._ocp
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=ocp.args.JsonSave({"states": _states(data)})
        )
        self._forget(step)
        self._last, self._saver = step, threading.get_ident()
        self._manager.save(step, args=items, force=True)
        self._seal(but=step)

    def close(self) -> None:
        """Wait until everything is saved.

        Raises:
            SaveError: The last save has failed.
        """
        self._finish()
        self._seal()
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @staticmethod
    def _preempted(step: int) -> bool:
        import jax
        from jax.experimental import multihost_utils

        config: Any = jax.config  # its options are not in its type
        if not jax.distributed.is_initialized() or not config.jax_enable_preemption_service:
            return False
        return bool(multihost_utils.reached_preemption_sync_point(step))

    def _finish(self) -> None:
        """Wait for the save that is under way in the background."""
        import jax

        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise SaveError(
                f"Checkpoint {self._last} could not be saved by process {jax.process_index()}: {_told(error)}",
                fix=f"See that this worker can write to {self._store.url}.",
            ) from error

    def _meet(self, *, key: str, timeout_ms: int) -> None:
        """Wait at one of Orbax's barriers until all processes are there, unless this one's save has failed.

        Orbax has the one whose save has failed wait for the others, and the others wait for that save, all for up to
        twenty minutes. Its error would be known then, and its process cannot end before.
        """
        error = sys.exception()
        # Where the caller saves while it handles an error of its own, that says nothing of the save.
        if error is not None and threading.get_ident() != self._saver:
            self._failed = True
            raise error
        self._barrier(key=key, timeout_ms=timeout_ms)

    # What was saved is remembered file by file, and compared before it is loaded.

    def _seal(self, but: int | None = None) -> None:
        """Remember the files of checkpoints that are complete; the first process does it."""
        import jax

        if jax.process_index() != 0:
            return
        for step in set(self._manager.all_steps()) - self._sealed - {but}:
            # What an earlier attempt remembered stands: files that have changed since are not as they were saved.
            if not self._store.exists(_manifest(step)):
                self._store.create_json(_manifest(step), self._files(step))
            self._sealed.add(step)

    def _forget(self, step: int) -> None:
        """Remove what was remembered of a checkpoint that is no more."""
        import jax

        if jax.process_index() == 0:
            self._store.remove(_manifest(step))

    def _files(self, step: int) -> dict[str, Any]:
        place = self._store.child("steps", str(step))
        found = {}
        for name, size in place.walk().items():
            content = place.read(name) if size <= _HASHED else None
            found[name] = [size, hashlib.sha256(content).hexdigest() if content is not None else ""]
        return found

    def _damage(self, step: int) -> str:
        """What is wrong with the files of a checkpoint; the same answer on every process."""
        import jax

        trouble = ""
        if jax.process_index() == 0:
            try:
                trouble = self._difference(step)
            except ValueError as error:
                trouble = f"the list of its files is broken: {error}"
        return _first(trouble)

    def _difference(self, step: int) -> str:
        wanted = self._store.read_json(_manifest(step))
        if wanted is None:  # it is complete, and nobody lived to seal it
            return ""
        there = self._files(step)
        wrong = sorted(name for name in wanted if there.get(name) != wanted[name])
        return f"{wrong[0]} is not as it was saved ({len(wrong)} of {len(wanted)} files)" if wrong else ""

    def _try(self, step: int, state: Any) -> tuple[Any, str]:
        """Restore a checkpoint on all processes, or learn on all of them why that failed on one."""
        import jax

        ocp = self._ocp
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), data=ocp.args.JsonRestore())
        restored, trouble = None, ""
        try:
            restored = self._manager.restore(step, args=items)
        except Exception as error:  # noqa: BLE001 - whatever the formats' libraries raise: it is told, and decided on
            trouble = _told(error)
        return restored, _first(trouble)

    def _move(self, data: Resumable | None, saved: Any, step: int) -> None:
        import jax

        states = saved["states"]
        if data is None or not states:
            return
        index, count = jax.process_index(), jax.process_count()
        if len(states) == 1:  # the same on every process, however many there are
            data.set_state(_unpacked(states[0]))
        elif len(states) == count:
            data.set_state(_unpacked(states[index]))
        else:
            raise CheckpointError(
                f"Checkpoint {step} was saved by {len(states)} processes whose data iterators were not in step; "
                f"{count} processes cannot go on from it.",
                fix="Use as many workers as before, or iterators that are in step, as jobs.data.batches gives.",
            )

    def _drop_unfinished(self, steps: Any) -> None:
        """Remove what an earlier attempt had half written; the other processes wait for the first one's manager.

        Orbax can do it too, but in the background, while it lists the same folder: where nothing else is in there, the
        folder of a bucket is gone before it is read.
        """
        import jax

        if jax.process_index() == 0 and steps.exists():
            for name in self._ocp.path.step.tmp_checkpoints(steps):
                (steps / name).rmtree()

    def _drop_after(self, step: int) -> None:
        """Remove checkpoints that were found damaged: their steps are to be saved again."""
        for later in self._manager.all_steps():
            if later > step:
                self._manager.delete(later)
                self._forget(later)

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _manifest(step: int) -> str:
    return f"manifests/{step}.json"


def _prepare_for_buckets(named: str) -> None:
    """See to what Orbax reaches a bucket with."""
    if importlib.util.find_spec("gcsfs") is None:
        raise ConfigurationError(
            f"Checkpoints in {named} need a library that is not installed: gcsfs.",
            fix="Install it: pip install gcsfs; for a job, name it among the requirements.",
        )
    import fsspec

    # Other processes write there too: a listing that was kept would be wrong.
    fsspec.config.conf.setdefault("gs", {}).setdefault("use_listings_cache", False)


def _packed(state: Any) -> Any:
    return {"bytes": base64.b64encode(state).decode()} if isinstance(state, bytes) else {"json": state}


def _unpacked(document: Any) -> Any:
    return base64.b64decode(document["bytes"]) if "bytes" in document else document["json"]


def _states(data: Resumable | None) -> list[Any]:
    """Where the data iterators of all processes are: one entry where all are at the same place."""
    if data is None:
        return []
    texts = _gather(json.dumps(_packed(data.get_state()), sort_keys=True))
    return [json.loads(text) for text in (texts[:1] if len(set(texts)) == 1 else texts)]


def _gather(text: str) -> list[str]:
    """A text of every process, in their order."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return [text]
    content = np.frombuffer(text.encode(), np.uint8)
    longest = int(np.max(multihost_utils.process_allgather(np.int32(content.size))))
    padded = np.zeros(longest, np.uint8)
    padded[: content.size] = content
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(row).rstrip(b"\0").decode() for row in rows]


def _first(trouble: str) -> str:
    """The first trouble that any process has; all get the same."""
    return next(filter(None, _gather(trouble)), "")
