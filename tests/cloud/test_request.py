"""What a request is checked for, and times as gcloud writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.cloud import DataDisk, QueuedResourceRequest
from multislice_nb.cloud.times import format_duration, parse_duration, parse_time
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError
from multislice_nb.tpu import AcceleratorType


def ask(**fields):
    """A request that is right but for what is given."""
    return QueuedResourceRequest(**{"name": "q", "accelerator_type": "v4-16", **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "two words"}, "not allowed"),
        ({"node_count": 0}, "1 to 256 slices"),
        ({"node_count": 257}, "1 to 256 slices"),
        ({"node_count": 2, "node_id": "n"}, "Use --node-prefix"),
        ({"node_prefix": "p"}, "--node-prefix is for several slices"),
        ({"accelerator_type": None}, "No accelerator type"),
        ({"type": "v4", "topology": "2x2x2"}, "Give one of the two"),
        ({"accelerator_type": "tpu7x-8"}, "through GKE only"),
        ({"accelerator_type": "v3-8", "node_count": 2}, "Multislice needs TPU v4 or later"),
        (
            {"accelerator_type": "v5litepod-16", "runtime_version": "tpu-ubuntu2204-base"},
            "v2-alpha-tpuv5-lite",
        ),
        ({"runtime_version": "v2-alpha-tpuv6e"}, "is not made for v4-16"),
        ({"spot": True, "reserved": True}, "exclude each other"),
        ({"reservation": "bad name!"}, "not a reservation's name"),
        ({"reservation_host": "somebody"}, "projects/ID, folders/ID"),
        ({"zone": "us-central2"}, "Name one: us-central2-b"),
        ({"tags": ("Upper",)}, "Tag 'Upper'"),
        ({"labels": {"A": "b"}}, "Label A=b"),
        ({"metadata": {"a b": "c"}}, "Metadata key"),
        ({"startup_script": "x" * 300_000}, "under 256 KiB"),
        ({"startup_script": "a", "metadata": {"startup-script": "b"}}, "given twice"),
        ({"valid_until_duration": "soon"}, "no duration"),
        ({"valid_until_duration": "9" * 30}, "from 0 to 100 years"),
        ({"valid_until_duration": timedelta(days=-1)}, "from 0 to 100 years"),
        ({"valid_until_time": 5}, "no time"),
        ({"valid_until_time": "0001-01-01"}, "--valid-until-time"),
        ({"valid_until_time": "2001-01-01T00:00:00Z"}, "in the past"),
        ({"valid_until_duration": "1h", "valid_after_duration": "2h"}, "before it may start"),
        ({"valid_until_duration": "1h", "valid_until_time": "2099-01-01"}, "Give one of the two"),
        ({"service_account": "me"}, "no email address"),
        ({"cidr_range": "10.0.0.0/8"}, "/29"),
        ({"data_disks": (DataDisk("d"),)}, "no full name"),
        ({"data_disks": (DataDisk("projects/p/zones/z/disks/d"),)}, "cannot be written by 2 workers"),
        ({"workload_type": "FAST", "node_count": 2}, "--workload-type"),
        ({"api_version": "v3"}, "API version"),
    ],
)
def test_what_cannot_be_is_refused_with_its_fix(fields, words):
    """Each fault is found before anything is sent, and says how to mend it."""
    with pytest.raises(InvalidRequestError) as caught:
        ask(**fields)
    assert words in str(caught.value)


def test_a_misnamed_type_keeps_its_own_error():
    """A type that does not exist names the nearest ones, as an AcceleratorTypeError."""
    with pytest.raises(AcceleratorTypeError, match=r"Nearest: v4-16, v4-32") as caught:
        ask(accelerator_type="v4-18")
    assert "v4-18 is not a v4 slice" in caught.value.what


def test_all_faults_come_at_once():
    """A request with five faults is told of five."""
    with pytest.raises(InvalidRequestError, match="has 5 faults"):
        ask(name="", node_count=999, tags=("A",), spot=True, reserved=True, cidr_range="x")


def test_a_wrong_runtime_version_can_be_forced():
    """`force` sends a version that is not the type's own."""
    assert ask(runtime_version="v2-alpha-tpuv6e", force=True).runtime_version == "v2-alpha-tpuv6e"


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("v4-8", "tpu-vm-tf-2.18.0-pjrt"),
        ("v4-8", "v2-alpha-tpuv4"),
        ("v5p-8", "v2-alpha-tpuv5"),
        ("v5litepod-8", "v2-tpuv5-litepod"),
        ("v6e-8", "v2-alpha-tpuv6e"),
    ],
)
def test_versions_of_the_types_own_generation_are_accepted(kind, version):
    """Older and special images of the same generation need no force."""
    assert ask(accelerator_type=kind, runtime_version=version).runtime_version == version


def test_defaults_come_from_the_type():
    """Runtime version, node names and counts follow from the accelerator type."""
    request = ask(node_count=4)
    assert request.runtime_version == "tpu-ubuntu2204-base"
    assert (request.chips, request.capacity) == (32, "on-demand")
    assert request.node_ids == ("q-0", "q-1", "q-2", "q-3")
    assert ask(accelerator_type=None, type="V5LITE_POD", topology="4x4").slice_type.name == "v5litepod-16"


def test_a_type_of_another_shape_is_asked_for_by_its_shape():
    """The name of an accelerator type means its usual topology; an object of another one is no less meant."""
    unusual = AcceleratorType.from_topology("v4", "4x4x32")
    assert not unusual.has_default_topology
    request = ask(accelerator_type=unusual)
    assert request.slice_type == unusual
    assert request.to_rest()["tpu"]["nodeSpec"][0]["node"]["acceleratorConfig"] == {
        "type": "V4",
        "topology": "4x4x32",
    }
    usual = AcceleratorType.parse("v4-16")
    assert ask(accelerator_type=usual).accelerator_type == "v4-16"


def test_another_type_brings_its_own_runtime_version():
    """What followed from the old type goes with it, and what was asked for by name stays."""
    request = ask(valid_until_duration="1h")
    assert request.replace(accelerator_type="v5litepod-16").runtime_version == "v2-alpha-tpuv5-lite"
    shaped = request.replace(type="v6e", topology="4x4")
    assert (shaped.slice_type.name, shaped.runtime_version) == ("v6e-16", "v2-alpha-tpuv6e")
    assert shaped.replace(accelerator_type="v4-8").slice_type.name == "v4-8"
    named = ask(runtime_version="v2-alpha-tpuv4")
    assert named.replace(accelerator_type="v4-32").runtime_version == "v2-alpha-tpuv4"
    with pytest.raises(InvalidRequestError, match="is not made for v6e-8"):
        named.replace(accelerator_type="v6e-8")


def test_a_startup_script_is_read_from_its_file(tmp_path):
    """A Path is read when the request is made, and a missing one is a fault."""
    script = tmp_path / "boot.sh"
    script.write_text("#! /bin/bash\n")
    assert ask(startup_script=script).startup_script == "#! /bin/bash\n"
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        ask(startup_script=tmp_path / "none")


@given(st.integers(1, 10**8))
def test_durations_survive_gclouds_notation(seconds):
    """Any whole number of seconds is written as gcloud does and read back."""
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@given(st.integers(1, 10**10))
def test_fractions_of_a_second_survive_too(microseconds):
    """Any duration in microseconds is written and read back."""
    assert parse_duration(format_duration(timedelta(microseconds=microseconds))) == timedelta(
        microseconds=microseconds
    )


@pytest.mark.parametrize("text", ["6h", "21600s", "360m", "PT6H", "P0DT6H", "21600", "0.25d"])
def test_six_hours_can_be_written_many_ways(text):
    """Gcloud's and ISO's notations, and seconds."""
    assert parse_duration(text) == timedelta(hours=6)


@pytest.mark.parametrize("text", ["", "P", "PT", "6", "h6", "6 h", "1y", "-6h"])
def test_what_is_no_duration_is_refused(text):
    """Nonsense is refused, and a bare number is seconds."""
    if text == "6":
        assert parse_duration(text) == timedelta(seconds=6)
        return
    with pytest.raises(InvalidRequestError, match="no duration"):
        parse_duration(text)


def test_times_without_a_zone_are_local():
    """A time without a zone is this machine's, as with gcloud."""
    assert parse_time("2099-01-01T00:00:00Z") == datetime(2099, 1, 1, tzinfo=UTC)
    assert parse_time("2099-01-01T00:00:00").tzinfo is not None
    with pytest.raises(InvalidRequestError, match="no time"):
        parse_time("tomorrow")
