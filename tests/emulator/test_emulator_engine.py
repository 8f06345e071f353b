"""The emulator's parts put together without a server: what goes wrong while something else does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from multislice_nb.emulator.clock import Clock
from multislice_nb.emulator.engine import Engine
from multislice_nb.emulator.metadata import MetadataServer
from multislice_nb.emulator.names import Parent
from multislice_nb.emulator.network import AddressPool
from multislice_nb.emulator.vm import Machine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from multislice_nb.emulator.model import QueuedRecord

    Story = Callable[[Engine, QueuedRecord], Awaitable[None]]

CHIPS = 4
"""Of a slice of v4-8."""


def tell(folder: Path, story: Story, addresses: AddressPool | None = None) -> None:
    """Ask for two spot slices, at once, and go on once they are there, or are not."""

    async def begin() -> None:
        pool = addresses or AddressPool(8)
        machine = Machine("test", folder, folder, "user", b"", pool, MetadataServer())
        engine = Engine(machine, Clock(0.0))
        node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
        spec = {"node": node, "multisliceParams": {"nodeCount": 2}}
        body: Any = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
        record = engine.provisioner.request(Parent("emulated-project", "us-central2-b"), "two", body)
        try:
            await engine.provisioner.accept(record)
            await quiet(record)
            await story(engine, record)
        finally:
            await engine.close()

    asyncio.run(begin())


async def quiet(record: QueuedRecord) -> None:
    """Wait until nothing goes on with a queued resource."""
    while record.task is not None and not record.task.done():
        await asyncio.wait([record.task])


@pytest.mark.parametrize("first", ["fail", "preempt"])
def test_a_second_misfortune_during_a_warning(tmp_path: Path, first: str) -> None:
    """A slice that is lost during the warning of its preemption is replaced once."""

    async def story(engine: Engine, record: QueuedRecord) -> None:
        node = record.nodes[1]
        misfortune = engine.repairs.fail(node, 0) if first == "fail" else engine.repairs.preempt(node)
        await asyncio.gather(engine.repairs.preempt(node, warning=0.05), misfortune)
        await quiet(record)
        assert [slice_.state for slice_ in record.slices()] == ["READY", "READY"]
        assert record.nodes[1] is not node
        assert list(engine.store.nodes.values()) == record.slices()
        assert engine.admissions.in_use() == {"us-central2-b/v4/shared": 2 * CHIPS}

    tell(tmp_path, story)


def test_a_lost_slice_that_its_user_deletes_does_not_come_back(tmp_path: Path) -> None:
    """A repair that has waited for capacity gives it back when there is nothing left to repair."""

    async def story(engine: Engine, record: QueuedRecord) -> None:
        engine.admissions.set_limit("us-central2-b", "v4", 0)
        node = record.nodes[1]
        await engine.repairs.fail(node, 0)
        await engine.nodes.delete(node)
        engine.admissions.set_limit("us-central2-b", "v4", 100)
        await quiet(record)
        assert [slice_.slice_id for slice_ in record.slices()] == [0]
        assert engine.admissions.in_use() == {"us-central2-b/v4/shared": CHIPS}

    tell(tmp_path, story)


def test_what_nobody_expected_makes_a_request_fail(tmp_path: Path) -> None:
    """A queued resource whose provisioning breaks is FAILED with the reason, holds no chips and can be deleted."""
    addresses = AddressPool(8)
    if not addresses.own_addresses:
        pytest.skip("only where workers have addresses of their own can these run out")
    with contextlib.suppress(OSError):
        while addresses.take():
            pass

    async def story(engine: Engine, record: QueuedRecord) -> None:
        assert record.state == "FAILED"
        assert "addresses" in record.data["state"]["failedData"]["error"]["message"]
        assert engine.admissions.in_use() == {}
        await engine.provisioner.delete(record)
        assert not engine.store.queued

    tell(tmp_path, story, addresses)
