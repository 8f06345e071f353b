"""The same job as a JobSet manifest, for Multislice on Google Kubernetes Engine.

Orchestration, and TPU7x, live there. Every slice is one Job of the JobSet, every worker one pod; GKE's TPU
webhook gives each pod what tells libtpu and JAX about the others.

Sources: Kubernetes' JobSet API `jobset.x-k8s.io/v1alpha2`; Google's "Deploy TPU Multislices in GKE" for the
node selectors, the exclusive placement of a slice on a node pool, the resource `google.com/tpu`, and its ports.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import AcceleratorType

if TYPE_CHECKING:
    from multislice_nb.jobs.record import JobSpec

__all__ = ["GKE_ACCELERATORS", "Manifest", "jobset"]

GKE_ACCELERATORS = {
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
    "tpu7x": "tpu7x",
}
"""Values of the node label `cloud.google.com/gke-tpu-accelerator`; source: Google's "TPUs in GKE"."""

# libtpu's own ports (inside a slice, between slices, its metrics), and beside them JAX's: pods on the host's network
# must not share one.
_COORDINATOR_PORT = 8482
_PORTS = (8471, 8080, 8431, _COORDINATOR_PORT)


# A pod that is taken away (a preemption, a drained node) fails its Job for a reason of its own.
_DISRUPTION = {
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


def _literal(text: str) -> str:
    """A text in which Kubernetes expands no `$(VARIABLE)`, and takes no `$$` for its own escape."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _label(name: str) -> dict[str, Any]:
    """The value of a label that JobSet gives each pod."""
    return {"fieldRef": {"fieldPath": f"metadata.labels['jobset.sigs.k8s.io/{name}']"}}


class Manifest(dict[str, Any]):
    """A Kubernetes object; as text it is YAML, for `kubectl apply -f -`."""

    def __repr__(self) -> str:
        import yaml

        class Dumper(yaml.SafeDumper):
            """Writes texts of several lines as such."""

        def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
            style = "|" if "\n" in value else None
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

        Dumper.add_representer(str, text)
        Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
        return str(yaml.dump(dict(self), Dumper=Dumper, sort_keys=False)).rstrip()


def jobset(
    spec: JobSpec,
    image: str,
    *,
    accelerator_type: str | None = None,
    node_count: int | None = None,
    namespace: str = "default",
    service_account: str | None = None,
    queue: str | None = None,
    checkpoints: str | None = None,
) -> Manifest:
    """A JobSet that runs a job's command on every worker.

    Print it and `kubectl apply -f -` it. The code must be in the image: Kubernetes restarts the whole gang when
    a pod fails, which is what the supervisor does on TPU VMs.

    Args:
        spec: The job; `job.spec` of one that ran, or one of your own.
        image: A container image with the command and what it needs.
        accelerator_type: Other slices than the job's, as `tpu7x-32`, which Cloud TPU VMs do not have.
        node_count: Another number of slices than the job's.
        namespace: Kubernetes namespace.
        service_account: Kubernetes service account of the pods.
        queue: A Kueue local queue.
        checkpoints: Where `jobs.Checkpoints` keeps them; `job.checkpoints` goes on where the job was.

    Raises:
        AcceleratorTypeError: There are no such slices.
        InvalidRequestError: It has secrets or a setup, which a container gets in another way.
    """
    if spec.secrets or spec.setup:
        raise InvalidRequestError(
            f"Job {spec.name} has secrets or a setup command, which are the image's or Kubernetes' matter on GKE.",
            fix="Put the setup into the image and the secrets into Kubernetes Secrets, and leave them out here.",
        )
    kind = AcceleratorType.parse(accelerator_type or spec.accelerator_type)
    wanted = spec.node_count if node_count is None else node_count
    spec = replace(spec, accelerator_type=kind.name, node_count=wanted, workers_per_slice=kind.workers)
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": spec.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
        },
        "spec": {
            "network": {"enableDNSHostnames": True},
            "failurePolicy": _failure_policy(spec),
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": spec.node_count,
                    "template": {
                        "spec": {
                            "completionMode": "Indexed",
                            "parallelism": kind.workers,
                            "completions": kind.workers,
                            "backoffLimit": 0,
                            "activeDeadlineSeconds": int(spec.limits.time_limit),
                            "podFailurePolicy": _DISRUPTION,
                            "template": {"spec": _pod(spec, kind, image, service_account, checkpoints)},
                        }
                    },
                }
            ],
        },
    }
    return Manifest(document)


def _failure_policy(spec: JobSpec) -> dict[str, Any]:
    """Restart the gang; a pod that was evicted does not count, as a preemption does not."""
    return {
        "maxRestarts": spec.limits.max_restarts,
        "rules": [
            {
                "name": "disruption",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            }
        ],
    }


def _pod(
    spec: JobSpec, kind: AcceleratorType, image: str, service_account: str | None, checkpoints: str | None
) -> dict[str, Any]:
    selector = {
        "cloud.google.com/gke-tpu-accelerator": GKE_ACCELERATORS[kind.generation.name],
        "cloud.google.com/gke-tpu-topology": kind.topology,
    }
    if spec.request.get("spot"):
        selector["cloud.google.com/gke-spot"] = "true"
    if spec.request.get("reservation"):
        selector["cloud.google.com/reservation-name"] = str(spec.request["reservation"]).rsplit("/", 1)[-1]
    chips = {"google.com/tpu": kind.chips_per_worker}
    variables = {**spec.env, **({"MULTISLICE_NB_CHECKPOINTS": checkpoints} if checkpoints else {})}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": int(spec.limits.term_grace),
        "nodeSelector": selector,
        "containers": [
            {
                "name": "worker",
                "image": image,
                "command": ["bash", "-c", _literal(_script(spec, kind))],
                "env": [
                    {"name": "MULTISLICE_NB_SLICE_ID", "valueFrom": _label("job-index")},
                    {"name": "JOBSET_RESTART_ATTEMPT", "valueFrom": _label("restart-attempt")},
                    *({"name": name, "value": _literal(value)} for name, value in sorted(variables.items())),
                ],
                "ports": [{"containerPort": port} for port in _PORTS],
                "resources": {"requests": chips, "limits": chips},
            }
        ],
    }
    if service_account:
        pod["serviceAccountName"] = service_account
    return pod


def _script(spec: JobSpec, kind: AcceleratorType) -> str:
    """The command, with the same variables around it as on TPU VMs."""
    domain = f"{spec.name}-slice-0-0.{spec.name}"
    lines = [
        'export MULTISLICE_NB_WORKER_ID="$JOB_COMPLETION_INDEX"',
        f"export MULTISLICE_NB_JOB={shlex.quote(spec.name)}",
        f"export MULTISLICE_NB_SLICES={spec.node_count} MULTISLICE_NB_WORKERS={spec.workers}",
        f'export MULTISLICE_NB_RANK="$((MULTISLICE_NB_SLICE_ID * {kind.workers} + JOB_COMPLETION_INDEX))"',
        'export MULTISLICE_NB_ATTEMPT="$((JOBSET_RESTART_ATTEMPT + 1))"',
        f"export MULTISLICE_NB_COORDINATOR_ADDRESS={domain}:{_COORDINATOR_PORT}",
        'export JAX_COORDINATOR_ADDRESS="$MULTISLICE_NB_COORDINATOR_ADDRESS"',
        f'export JAX_NUM_PROCESSES={spec.workers} JAX_PROCESS_ID="$MULTISLICE_NB_RANK"',
        f"export MASTER_ADDR={domain} MASTER_PORT={_COORDINATOR_PORT}",
        f'export WORLD_SIZE={spec.workers} RANK="$MULTISLICE_NB_RANK"',
        spec.command,
    ]
    return "\n".join(lines)
