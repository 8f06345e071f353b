"""What a manifest for JobSet may hold: its API `jobset.x-k8s.io/v1alpha2` with Kubernetes' Job and Pod in it.

Fields, types and choices are those of the definition that kubernetes-sigs/jobset installs into a cluster
(jobset.x-k8s.io_jobsets.yaml, commit 08dfbdfd of 2026-08-18), but for fields of pods that have nothing to do with running
a program, such as volumes and probes. A field that is not named here is refused.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMA"]

Schema = dict[str, Any]


def _an_object(*required: str, **fields: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": fields,
        "additionalProperties": False,
    }


def _all_of_type(kind: str, names: str) -> dict[str, Schema]:
    return {name: {"type": kind} for name in names.split()}


def _a_list(of: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": of} | limits


def _texts(names: str) -> dict[str, Schema]:
    return _all_of_type("string", names)


def _numbers(names: str) -> dict[str, Schema]:
    return _all_of_type("integer", names)


def _switches(names: str) -> dict[str, Schema]:
    return _all_of_type("boolean", names)


def _one_of(*choices: str) -> Schema:
    return {"enum": list(choices)}


TEXT: Schema = {"type": "string"}
TEXTS = _a_list(TEXT)
BY_NAME: Schema = {"type": "object", "additionalProperties": TEXT}
QUANTITY: Schema = {
    "anyOf": [
        {"type": "integer"},
        {"type": "string", "pattern": r"^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$"},
    ]
}
QUANTITIES: Schema = {"type": "object", "additionalProperties": QUANTITY}
METADATA = _an_object(annotations=BY_NAME, labels=BY_NAME, finalizers=TEXTS, **_texts("name namespace"))

_VALUE_FROM = _an_object(
    fieldRef=_an_object("fieldPath", **_texts("apiVersion fieldPath")),
    resourceFieldRef=_an_object("resource", divisor=QUANTITY, **_texts("containerName resource")),
)
_CONTAINER = _an_object(
    "name",
    args=TEXTS,
    command=TEXTS,
    env=_a_list(_an_object("name", valueFrom=_VALUE_FROM, **_texts("name value"))),
    ports=_a_list(
        _an_object("containerPort", **_numbers("containerPort hostPort"), **_texts("hostIP name protocol"))
    ),
    resources=_an_object(limits=QUANTITIES, requests=QUANTITIES),
    **_texts(
        "image imagePullPolicy name restartPolicy workingDir terminationMessagePath terminationMessagePolicy"
    ),
    **_switches("stdin stdinOnce tty"),
)
_POD = _an_object(
    "containers",
    containers=_a_list(_CONTAINER),
    hostAliases=_a_list(_an_object("ip", hostnames=TEXTS, ip=TEXT)),
    imagePullSecrets=_a_list(_an_object(name=TEXT)),
    nodeSelector=BY_NAME,
    os=_an_object("name", name=TEXT),
    overhead=QUANTITIES,
    readinessGates=_a_list(_an_object("conditionType", conditionType=TEXT)),
    resources=_an_object(limits=QUANTITIES, requests=QUANTITIES),
    schedulingGates=_a_list(_an_object("name", name=TEXT)),
    schedulingGroup=_an_object(podGroupName=TEXT),
    tolerations=_a_list(_an_object(**_texts("effect key operator value"), **_numbers("tolerationSeconds"))),
    **_texts(
        "dnsPolicy hostname hostnameOverride nodeName preemptionPolicy priorityClassName restartPolicy"
        " runtimeClassName schedulerName serviceAccount serviceAccountName subdomain"
    ),
    **_numbers("activeDeadlineSeconds priority terminationGracePeriodSeconds"),
    **_switches(
        "automountServiceAccountToken enableServiceLinks hostIPC hostNetwork hostPID hostUsers"
        " setHostnameAsFQDN shareProcessNamespace"
    ),
)
_POD_FAILURE = _an_object(
    "action",
    action=TEXT,
    onExitCodes=_an_object(
        "operator", "values", values=_a_list({"type": "integer"}), **_texts("containerName operator")
    ),
    onPodConditions=_a_list(_an_object("type", **_texts("status type"))),
)
_JOB = _an_object(
    "template",
    podFailurePolicy=_an_object("rules", rules=_a_list(_POD_FAILURE)),
    successPolicy=_an_object(
        "rules", rules=_a_list(_an_object(**_numbers("succeededCount"), **_texts("succeededIndexes")))
    ),
    template=_an_object(metadata=METADATA, spec=_POD),
    **_texts("completionMode managedBy podReplacementPolicy"),
    **_numbers(
        "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completions maxFailedIndexes parallelism"
        " ttlSecondsAfterFinished"
    ),
    **_switches("manualSelector suspend"),
)
_FAILURE_RULE = _an_object(
    "action",
    "name",
    action=_one_of(
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
    ),
    name=TEXT,
    onJobFailureMessagePatterns=TEXTS,
    onJobFailureReasons=TEXTS,
    targetReplicatedJobs=TEXTS,
)
_REPLICATED_JOB = _an_object(
    "name",
    "template",
    dependsOn=_a_list(
        _an_object("name", "status", name=TEXT, status=_one_of("Ready", "Complete")), maxItems=5
    ),
    replicas={"type": "integer", "minimum": 0},
    template=_an_object(metadata=METADATA, spec=_JOB),
    **_texts("groupName name"),
)

SCHEMA = _an_object(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion=_one_of("jobset.x-k8s.io/v1alpha2"),
    kind=_one_of("JobSet"),
    metadata=METADATA,
    spec=_an_object(
        failurePolicy=_an_object(
            restartStrategy=_one_of("Recreate", "BlockingRecreate", "InPlaceRestart"),
            rules=_a_list(_FAILURE_RULE),
            **_numbers("maxRestarts"),
        ),
        network=_an_object(**_switches("enableDNSHostnames publishNotReadyAddresses"), subdomain=TEXT),
        replicatedJobs=_a_list(_REPLICATED_JOB),
        startupPolicy=_an_object("startupPolicyOrder", startupPolicyOrder=_one_of("AnyOrder", "InOrder")),
        successPolicy=_an_object("operator", operator=_one_of("All", "Any"), targetReplicatedJobs=TEXTS),
        ttlSecondsAfterFinished={"type": "integer", "minimum": 0},
        suspend={"type": "boolean"},
        managedBy=TEXT,
    ),
)
