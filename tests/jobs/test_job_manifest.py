from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from multislice_nb.errors import InvalidRequestError
from multislice_nb.jobs import JobSpec, jobset

SPEC = JobSpec(
    name="train",
    command="python3 train.py --name 'a b'",
    accelerator_type="v5p-32",
    node_count=3,
    workers_per_slice=4,
    env={"LEVEL": "1"},
    request={"spot": True},
)


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """A schema of an object that has no other properties than these."""
    document = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**document, "required": required.split()} if required else document


def every(item: Any) -> dict[str, Any]:
    """A schema of a list that is not empty."""
    return {"type": "array", "items": item, "minItems": 1}


TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
QUANTITIES = {"type": "object", "additionalProperties": COUNT}
CONTAINER = closed(
    "name image",
    name=TEXT,
    image=TEXT,
    command=every(TEXT),
    env=every(
        closed(
            "name",
            name=TEXT,
            value=TEXT,
            valueFrom=closed(fieldRef=closed("fieldPath", fieldPath=TEXT, apiVersion=TEXT)),
        )
    ),
    ports=every(closed("containerPort", containerPort=COUNT)),
    resources=closed(requests=QUANTITIES, limits=QUANTITIES),
)
POD = closed(
    "containers",
    containers=every(CONTAINER),
    restartPolicy={"enum": ["Never", "OnFailure"]},
    hostNetwork={"type": "boolean"},
    dnsPolicy={"enum": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    terminationGracePeriodSeconds=COUNT,
    nodeSelector=TEXTS,
    serviceAccountName=TEXT,
)
DISRUPTION = closed(
    "rules",
    rules=every(
        closed(
            "action",
            action={"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
            onPodConditions=every(closed("type", type=TEXT, status={"enum": ["True", "False", "Unknown"]})),
        )
    ),
)
JOB = closed(
    "template",
    completionMode={"enum": ["Indexed", "NonIndexed"]},
    parallelism=COUNT,
    completions=COUNT,
    backoffLimit=COUNT,
    activeDeadlineSeconds=COUNT,
    podFailurePolicy=DISRUPTION,
    template=closed(spec=POD),
)
ACTIONS = ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]
REASONS = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
]
# The part of the definition of jobset.x-k8s.io/v1alpha2 (and of batch/v1 within it) that a manifest of ours uses.
JOBSET = closed(
    "apiVersion kind metadata spec",
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=closed("name", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS),
    spec=closed(
        "replicatedJobs",
        network=closed(enableDNSHostnames={"type": "boolean"}, subdomain=TEXT),
        failurePolicy=closed(
            maxRestarts=COUNT,
            rules=every(
                closed(
                    "action name",
                    name={"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                    action={"enum": ACTIONS},
                    onJobFailureReasons=every({"enum": REASONS}),
                )
            ),
        ),
        replicatedJobs=every(closed("name template", name=TEXT, replicas=COUNT, template=closed(spec=JOB))),
    ),
)


def pod(manifest: dict[str, Any]) -> Any:
    """What a pod is made from."""
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_the_manifest_fits_the_schema() -> None:
    """Every field is one that JobSet and Kubernetes know, of the right type."""
    every_option = {"queue": "team", "service_account": "trainer", "checkpoints": "gs://b/c", "node_count": 2}
    for options in ({}, every_option):
        jsonschema.validate(json.loads(json.dumps(jobset(SPEC, "image:1", **options))), JOBSET)  # type: ignore[arg-type]


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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "9 9 12 2\n"


def test_other_slices_than_the_jobs_can_be_asked_for() -> None:
    """TPU7x is on GKE alone: ranks, chips and node pools follow the slices that are named."""
    manifest = jobset(SPEC, "image:1", accelerator_type="tpu7x-32", node_count=2)
    jsonschema.validate(json.loads(json.dumps(manifest)), JOBSET)
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
    assert len(set(ports)) == 3
    assert {8471, 8080} < set(ports)


def test_what_a_container_gets_otherwise_is_refused() -> None:
    """Nothing of the job is dropped in silence."""
    with pytest.raises(InvalidRequestError, match="setup"):
        jobset(replace(SPEC, setup="apt-get install x"), "image:1")
