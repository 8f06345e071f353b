from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from multislice_nb._ports import free_port
from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs.distributed import environment
from multislice_nb.jobs.machine import Machine, parse_tpu_env
from multislice_nb.jobs.record import JobSpec, Limits

SPEC = JobSpec(
    name="train",
    command="python3 train.py",
    accelerator_type="v4-16",
    node_count=2,
    workers_per_slice=2,
    env={"XLA_FLAGS": "--x"},
    requirements=("jax==0.10.2",),
    limits=Limits(max_restarts=1),
)


def test_a_job_survives_json() -> None:
    """What was read back equals what was written."""
    assert JobSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_fields_of_later_versions_are_left_out() -> None:
    """An older worker can read a newer record."""
    document = {**SPEC.to_json(), "colour": "red"}
    document["limits"] = {**document["limits"], "patience": 3}
    assert JobSpec.from_json(document) == SPEC


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "my_secret"])
def test_secrets_are_kept_out_of_the_record(name: str) -> None:
    """A variable that is called like a secret is refused, and its value is not repeated."""
    with pytest.raises(InvalidRequestError, match="Secret Manager") as caught:
        replace(SPEC, env={name: "hunter22"})
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_" + "a1" * 18,
        "hf_" + "aB" * 17,
        "AIza" + "x" * 35,
        "sk-" + "proj-" + "y" * 20,
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "postgres://me:hunter22@db/x",
    ],
)
@pytest.mark.parametrize("place", ["env", "command", "setup", "requirements"])
def test_what_looks_like_a_secret_is_none_of_the_records_either(place: str, secret: str) -> None:
    """Whatever it is called and wherever it stands, it is refused, and not repeated."""
    values: dict[str, Any] = {"env": {"WANDB": secret}, "requirements": (f"x @ {secret}",)}
    with pytest.raises(InvalidRequestError, match="looks like") as caught:
        replace(SPEC, **{place: values.get(place, f"run --with '{secret}'")})
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "command", ["pip install git+https://host/x@v1", "python3 t.py --task-sk-" + "x" * 30]
)
def test_what_looks_a_little_like_a_secret_is_none(command: str) -> None:
    """Versions in URLs and long options are words as others."""
    assert replace(SPEC, command=command).command == command


def test_all_faults_are_told_at_once() -> None:
    """A bad name, no command and a limit of nought make one error."""
    with pytest.raises(InvalidRequestError) as caught:
        replace(SPEC, name="Train!", command=" ", limits=Limits(time_limit=0))
    assert str(caught.value).count("\n  - ") == 3


@pytest.mark.parametrize(
    "limits",
    [
        {"time_limit": timedelta(hours=1)},
        {"stall_timeout": "1h"},
        {"backoff": -1},
        {"max_restarts": 1.5},
        {"lost_after": float("inf")},
    ],
)
def test_a_limit_that_is_no_number_is_refused(limits: dict[str, Any]) -> None:
    """The workers would fall over it, one after the other."""
    (name,) = limits
    with pytest.raises(InvalidRequestError, match=f"{name} cannot be {limits[name]}"):
        replace(SPEC, limits=Limits(**limits))


def test_the_environment_is_explicit_and_never_stale() -> None:
    """Rank, slices and coordinator are of this attempt; what an earlier gang left is gone, tuning stays."""
    machine = Machine(1, 1, "train-1", "p", "z", "10.0.0.4")
    stale = {
        "MEGASCALE_NUM_SLICES": "9",
        "MEGASCALE_GRPC_ENABLE_XOR_TRACER": "false",
        "JAX_COORDINATOR_BIND_ADDRESS": "old",
        "PATH": "/bin",
    }
    made = environment(SPEC, machine, rank=3, attempt=2, coordinator="10.0.0.1:8476", base=stale)
    assert made["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:8476"
    assert (made["JAX_PROCESS_ID"], made["JAX_NUM_PROCESSES"]) == ("3", "4")
    assert (made["MEGASCALE_SLICE_ID"], made["MEGASCALE_NUM_SLICES"]) == ("1", "2")
    assert made["MEGASCALE_COORDINATOR_ADDRESS"] == "10.0.0.1:8080"
    assert made["MEGASCALE_GRPC_ENABLE_XOR_TRACER"] == "false"
    assert (made["RANK"], made["WORLD_SIZE"], made["MASTER_ADDR"]) == ("3", "4", "10.0.0.1")
    assert made["JAX_COORDINATOR_BIND_ADDRESS"] == "10.0.0.1:8476"
    assert made["PATH"] == "/bin"


def test_a_single_slice_has_no_megascale() -> None:
    """For libtpu would look for other slices."""
    alone = replace(SPEC, node_count=1)
    machine = Machine(0, 0, "train", "p", "z", "10.0.0.1")
    made = environment(
        alone, machine, rank=0, attempt=1, coordinator="10.0.0.1:8476", base={"MEGASCALE_SLICE_ID": "1"}
    )
    assert not [name for name in made if name.startswith("MEGASCALE_")]


def test_a_port_in_use_is_passed_over() -> None:
    """The coordinator gets a port that nobody holds."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port("127.0.0.1", port) > port


def test_tpu_env_is_read_as_the_metadata_server_writes_it() -> None:
    """Keys and quoted values, one a line."""
    text = "ACCELERATOR_TYPE: 'v4-16'\nWORKER_ID: '1'\nMEGASCALE_COORDINATOR_ADDRESS: '10.0.0.1:8080'\n"
    assert parse_tpu_env(text) == {
        "ACCELERATOR_TYPE": "v4-16",
        "WORKER_ID": "1",
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1:8080",
    }
