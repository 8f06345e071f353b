from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs import JobSpec, jobset
from tests.jobs.jobset_schema import SCHEMA

SPEC = JobSpec(
    name="train",
    command="python3 train.py --name 'a b'",
    accelerator_type="v5p-32",
    node_count=3,
    workers_per_slice=4,
    env={"LEVEL": "1"},
    request={"spot": True},
)


# What JobSet's admission webhook wants besides (kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go).
RULE = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
REASONS = {
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
}
LONGEST_POD = 63


def check(manifest: dict[str, Any]) -> None:
    """Fail where a cluster would refuse it."""
    jsonschema.validate(json.loads(json.dumps(manifest)), SCHEMA)
    for rule in manifest["spec"]["failurePolicy"]["rules"]:
        assert RULE.fullmatch(rule["name"])
        assert set(rule["onJobFailureReasons"]) <= REASONS
    (slices,) = manifest["spec"]["replicatedJobs"]
    last = f"{slices['replicas'] - 1}-{slices['template']['spec']['completions'] - 1}"
    assert len(f"{manifest['metadata']['name']}-{slices['name']}-{last}-abcde") <= LONGEST_POD


def pod(manifest: dict[str, Any]) -> Any:
    """What a pod is made from."""
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def expanded(text: str, known: dict[str, str]) -> str:
    """A command or a value as Kubernetes passes it on (k8s.io/kubernetes, third_party/forked/golang/expansion)."""
    return re.sub(
        r"\$(?:\$|\(([^)]*)\))",
        lambda found: "$" if found[1] is None else known.get(found[1], found[0]),
        text,
    )


def test_the_manifest_fits_the_schema() -> None:
    """Every field is one that JobSet and Kubernetes know, of the right type."""
    every_option = {"queue": "team", "service_account": "trainer", "checkpoints": "gs://b/c", "node_count": 2}
    for options in ({}, every_option):
        check(jobset(SPEC, "image:1", **options))  # type: ignore[arg-type]


def test_the_longest_name_of_the_largest_job_is_short_enough() -> None:
    """Pods are named after the job, the slice and the worker, in the 63 letters that DNS allows."""
    spec = replace(SPEC, name="x" * 40, accelerator_type="v5p-4096", node_count=256)
    check(jobset(spec, "image:1"))


@pytest.mark.parametrize("at", ["spec", "metadata"])
def test_the_schema_knows_what_it_does_not_know(at: str) -> None:
    """A field that JobSet lacks is found, so that the check above says something."""
    manifest = jobset(SPEC, "image:1")
    manifest[at]["replicas"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replicas"):
        check(manifest)


def test_slices_workers_and_chips_are_the_jobs() -> None:
    """One Job for a slice, one pod for a worker, all its chips for the container."""
    manifest = jobset(SPEC, "image:1")
    (slices,) = manifest["spec"]["replicatedJobs"]
    assert slices["replicas"] == 3
    assert slices["template"]["spec"]["parallelism"] == 4
    assert pod(manifest)["containers"][0]["resources"]["limits"] == {"google.com/tpu": 4}
    assert pod(manifest)["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
        "cloud.google.com/gke-spot": "true",
    }


def test_the_command_finds_its_rank(tmp_path: Any) -> None:
    """The script around the command computes the same variables as on TPU VMs."""
    spec = replace(
        SPEC, command='echo "$MULTISLICE_NB_RANK $JAX_PROCESS_ID $JAX_NUM_PROCESSES $MULTISLICE_NB_SLICE_ID"'
    )
    command = pod(jobset(spec, "image:1"))["containers"][0]["command"]
    environment = {"PATH": "/usr/bin:/bin", "MULTISLICE_NB_SLICE_ID": "2", "JOB_COMPLETION_INDEX": "1"}
    command = [expanded(word, environment) for word in command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "9 9 12 2\n"


def test_what_kubernetes_would_expand_arrives_as_it_was_written() -> None:
    """`$(LEVEL)` is the output of a command, to bash, and `$$` a process's number."""
    command = 'echo $$ $(LEVEL) "$(echo $LEVEL)" $((1 + 1)) $$$(LEVEL) $'
    (container,) = pod(jobset(replace(SPEC, command=command, env={"LEVEL": "$$(LEVEL)$("}), "image:1"))[
        "containers"
    ]
    known = {"LEVEL": "expanded"}
    assert expanded(container["command"][-1], known).splitlines()[-1] == command
    assert [expanded(one["value"], known) for one in container["env"] if one["name"] == "LEVEL"] == [
        "$$(LEVEL)$("
    ]


def test_other_slices_than_the_jobs_can_be_asked_for() -> None:
    """TPU7x is on GKE alone: ranks, chips and node pools follow the slices that are named."""
    manifest = jobset(SPEC, "image:1", accelerator_type="tpu7x-32", node_count=2)
    check(manifest)
    (slices,) = manifest["spec"]["replicatedJobs"]
    (container,) = pod(manifest)["containers"]
    assert (slices["replicas"], slices["template"]["spec"]["parallelism"]) == (2, 4)
    assert pod(manifest)["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu7x"
    assert pod(manifest)["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x2x4"
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert "JAX_NUM_PROCESSES=8 " in container["command"][-1]


def test_the_text_is_what_kubectl_reads() -> None:
    """Printed, the manifest is YAML that gives the same document back, the script in lines."""
    manifest = jobset(SPEC, "image:1", checkpoints="gs://bucket/jobs/train/checkpoints")
    assert yaml.safe_load(str(manifest)) == manifest
    assert "command:\n" in str(manifest)
    assert "\\n" not in str(manifest)


def test_no_two_listeners_share_a_port() -> None:
    """Pods are on the host's network: JAX's coordinator must leave libtpu's ports alone."""
    (container,) = pod(jobset(SPEC, "image:1"))["containers"]
    ports = [port["containerPort"] for port in container["ports"]]
    assert len(set(ports)) == len(ports)
    assert {8471, 8080, 8431} < set(ports)  # those of Google's own manifests


def test_what_a_container_gets_otherwise_is_refused() -> None:
    """Nothing of the job is dropped in silence."""
    with pytest.raises(InvalidRequestError, match="setup"):
        jobset(replace(SPEC, setup="apt-get install x"), "image:1")
