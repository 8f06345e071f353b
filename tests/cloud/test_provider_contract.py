"""What every provider promises, as tests: a second one adds its subclass with its own `provider` fixture."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import pytest

from multislice_nb._portal import sync
from multislice_nb.cloud import Provider, QueuedResourceRequest
from multislice_nb.cloud.lifecycle import Deadlines, until_active, until_gone
from multislice_nb.cloud.provider import REQUEST_LABEL
from multislice_nb.cloud.watch import EMULATOR_PACE, Watchtower
from multislice_nb.errors import (
    AlreadyExistsError,
    CloudError,
    FailedPreconditionError,
    NotFoundError,
)

if TYPE_CHECKING:
    from tests.cloud.memory_provider import ZONE, MemoryProvider
else:
    from memory_provider import ZONE, MemoryProvider  # pytest puts this folder on the path


class ProviderContract:
    """Subclasses give fixtures `provider` and `zone`, where v4-16 can be had at once."""

    @pytest.fixture
    def name(self, provider: Provider, zone: str):
        """A free name; what a test made under it is deleted."""
        name = f"contract-{uuid.uuid4().hex[:6]}"
        yield name
        with contextlib.suppress(NotFoundError):
            self.delete(provider, name, zone)

    def ask(self, provider, zone, name, request_id=None, **fields):
        """Ask for slices."""
        request = QueuedResourceRequest(
            name=name, project=provider.project, zone=zone, **{"accelerator_type": "v4-16", **fields}
        )

        async def run():
            await provider.create_queued_resource(
                request, request_id=request_id or str(uuid.uuid4()), labels={"by": "contract"}
            )

        sync(run)
        return request

    def wait(self, provider, zone, name):
        """Wait until it is ACTIVE."""

        async def run():
            tower = Watchtower(provider, zone, EMULATOR_PACE)
            async for _ in until_active(provider, tower.follow(name), name, Deadlines(600, None, None)):
                pass
            await tower.close()

        sync(run)

    def delete(self, provider, name, zone):
        """Delete it and wait until it is gone."""

        async def run():
            operation = await provider.delete_queued_resource(name, zone, force=True)
            await until_gone(provider, name, zone, operation, 900)

        sync(run)

    def test_it_is_a_provider(self, provider):
        """It has every method of the protocol."""
        assert isinstance(provider, Provider)

    def test_a_request_is_listed_once_it_is_accepted(self, provider, zone, name):
        """When create returns, get and list know it, with its nodes named in slice order."""
        self.ask(provider, zone, name, request_id="r0", node_count=2)
        status = sync(provider.get_queued_resource, name, zone)
        assert status.name in {listed.name for listed in sync(provider.list_queued_resources, zone)}
        assert (status.node_count, status.node_ids) == (2, (f"{name}-0", f"{name}-1"))
        assert (status.zone, status.accelerator_type) == (zone, "v4-16")
        assert status.create_time is not None
        assert status.labels["by"] == "contract"
        assert status.labels[REQUEST_LABEL] == "r0"

    def test_a_taken_name_is_refused_and_a_repeated_call_is_not(self, provider, zone, name):
        """The same request id twice is one request; another one under the name is an error."""
        self.ask(provider, zone, name, request_id="r1")
        self.ask(provider, zone, name, request_id="r1")
        with pytest.raises(AlreadyExistsError):
            self.ask(provider, zone, name, request_id="r2")

    def test_active_slices_have_their_workers_in_order(self, provider, zone, name):
        """ACTIVE means READY nodes with an endpoint per worker, each with its own guest attributes."""
        self.ask(provider, zone, name, node_count=2)
        self.wait(provider, zone, name)
        nodes = [node for node in sync(provider.list_nodes, zone) if node.queued_resource == name]
        assert {node.state for node in nodes} == {"READY"}
        assert [len(node.endpoints) for node in nodes] == [2, 2]
        keys = sync(provider.get_guest_attributes, f"{name}-0", zone, "hostkeys/")
        assert len({tuple(worker.values()) for worker in keys}) == 2

    def test_metadata_is_added_to_what_is_there(self, provider, zone, name):
        """Setting metadata keeps the other entries."""
        self.ask(provider, zone, name, metadata={"kept": "1"})
        self.wait(provider, zone, name)
        sync(provider.set_node_metadata, name, zone, {"added": "2"})
        (node,) = (node for node in sync(provider.list_nodes, zone) if node.node_id == name)
        assert (node.metadata["kept"], node.metadata["added"]) == ("1", "2")

    def test_a_deleted_one_is_gone(self, provider, zone, name):
        """After a deletion is finished the name is free and its nodes are gone; without force it is refused."""
        self.ask(provider, zone, name)
        self.wait(provider, zone, name)
        with pytest.raises(FailedPreconditionError):
            sync(provider.delete_queued_resource, name, zone, force=False)
        self.delete(provider, name, zone)
        with pytest.raises(NotFoundError):
            sync(provider.get_queued_resource, name, zone)
        assert name not in {node.node_id for node in sync(provider.list_nodes, zone)}

    def test_a_request_can_be_read_back(self, provider, zone, name):
        """The request of an existing queued resource asks for the same again."""
        asked = self.ask(provider, zone, name, node_count=2, tags=("t",), startup_script="true")
        read = sync(provider.get_request, name, zone)
        assert (read.node_ids, read.tags, read.startup_script) == (asked.node_ids, ("t",), "true")
        assert read.slice_type == asked.slice_type

    def test_what_does_not_exist_is_not_found(self, provider, zone):
        """Get, delete and reset of what does not exist raise NotFoundError."""
        for call in (provider.get_queued_resource, provider.reset_queued_resource):
            with pytest.raises(NotFoundError):
                sync(call, "no-such-one", zone)
        with pytest.raises(NotFoundError):
            sync(provider.delete_queued_resource, "no-such-one", zone, force=True)

    def test_zones_tell_what_they_offer(self, provider, zone):
        """Zones, their accelerator types and their runtime versions can be listed."""
        assert zone in sync(provider.list_zones)
        assert "v4-16" in sync(provider.list_accelerator_types, zone)
        assert sync(provider.list_runtime_versions, zone)

    def test_errors_are_the_projects_own(self, provider):
        """A zone that does not exist gives an error of this project, with advice."""
        with pytest.raises(CloudError) as caught:
            sync(provider.get_queued_resource, "any", "nowhere-1-x")
        assert caught.value.fix


class TestTpuApi(ProviderContract):
    """google-cloud-tpu against the emulator."""

    @pytest.fixture
    def provider(self, cloud):
        """The connection's provider."""
        return cloud.provider

    @pytest.fixture
    def zone(self, cloud):
        """A zone with v4."""
        return cloud.zone


class TestInMemory(ProviderContract):
    """The least that keeps the promises, with no API behind it: whatever needs more of a provider fails here."""

    @pytest.fixture
    def provider(self):
        """A new one, without anything."""
        return MemoryProvider()

    @pytest.fixture
    def zone(self):
        """Its only zone."""
        return ZONE
