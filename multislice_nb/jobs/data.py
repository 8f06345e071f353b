"""Input for training: deterministic, shared out over processes, and resumable at any batch; made with Grain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multislice_nb.errors import ConfigurationError, InvalidRequestError

if TYPE_CHECKING:
    from jax.sharding import Mesh

__all__ = ["batches", "on_mesh"]


def batches(source: Any, *, batch_size: int, seed: int | None = 0) -> Any:
    """An endless iterator over this process's share of every global batch.

    The k-th global batch holds the same records for any number of processes, and every process is at the same
    place in its share. So a checkpoint made with four slices can be gone on from with two.

    Args:
        source: Records by index: `len(source)` and `source[i]`, as Grain's data sources.
        batch_size: Records of a global batch, all processes together.
        seed: Shuffles, anew in each epoch; None keeps the order.

    Returns:
        A Grain iterator with `get_state` and `set_state`.

    Raises:
        InvalidRequestError: The processes cannot share a batch evenly.
        ConfigurationError: Grain is not installed.
    """
    import jax

    try:
        import grain
    except ImportError as error:
        raise ConfigurationError.of_library("Reading batches", error, "jobs") from error
    index, count = jax.process_index(), jax.process_count()
    if batch_size % count:
        raise InvalidRequestError(
            f"A batch of {batch_size} records cannot be shared evenly by {count} processes.",
            fix=f"Take {batch_size // count * count or count} or {(batch_size // count + 1) * count} records.",
        )
    dataset = grain.MapDataset.source(source)
    if seed is not None:
        dataset = dataset.shuffle(seed=seed)
    dataset = dataset.repeat()[index::count].batch(batch_size // count, drop_remainder=True)
    return iter(dataset.to_iter_dataset())


def on_mesh(batch: Any, mesh: Mesh, *axes: str | tuple[str, ...]) -> Any:
    """Make global arrays of the processes' shares.

    Args:
        batch: A pytree of this process's rows.
        mesh: The mesh.
        *axes: Mesh axes over which the rows are spread; `data` and `fsdp` when none are named.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    spread = axes or (("data", "fsdp"),)
    sharding = NamedSharding(mesh, PartitionSpec(*spread))
    return jax.tree.map(lambda rows: jax.make_array_from_process_local_data(sharding, rows), batch)
