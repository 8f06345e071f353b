"""From what the Cloud TPU API says to one sentence of cause and one of what to do.

The original stays in the sentence or in `__cause__`. Patterns are of messages that users have reported; what
matches none is passed on as it is, under the class of its status code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb import errors
from multislice_nb.tpu import GENERATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multislice_nb.cloud.status import QueuedResourceStatus

__all__ = ["Trouble", "advise", "failure", "patience", "translate"]

PATIENCE_SECONDS = 15 * 60
"""The Multislice overview: after 15 minutes of WAITING_FOR_RESOURCES or PROVISIONING, ask Google."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong, as the API put it.

    Attributes:
        doing: What was tried, as in "Creating demo".
        code: Name of the gRPC status code, as RESOURCE_EXHAUSTED.
        message: The API's message.
        reason: The API's machine-readable reason, as SERVICE_DISABLED.
        project: Project it was tried in.
        zone: Zone it was tried in.
    """

    doing: str
    code: str
    message: str
    reason: str = ""
    project: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    error: type[errors.CloudError]
    cause: str
    fix: str


def _rule(pattern: str, error: type[errors.CloudError], cause: str, fix: str) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE | re.DOTALL), error, cause, fix)


_QUOTA_PAGE = "Ask for more on the console's Quotas page (service Cloud TPU API), or free some: `reclaim` lists dead requests that hold quota."

_RULES: tuple[_Rule, ...] = (
    _rule(
        r"SERVICE_DISABLED|has not been used in project|API .{0,40}(is|it is) (not enabled|disabled)",
        errors.PermissionDeniedError,
        "the Cloud TPU API is not enabled in project {project}",
        "Enable it, wait a minute, and try again: gcloud services enable tpu.googleapis.com --project={project}",
    ),
    _rule(
        r"BILLING_DISABLED|billing .{0,80}(disabled|enabled|not|closed)",
        errors.PermissionDeniedError,
        "project {project} has no active billing account",
        "Link one: gcloud billing projects link {project} --billing-account=…",
    ),
    _rule(
        r"permissions? '?(?P<permission>tpu\.[\w.]+)'?",
        errors.PermissionDeniedError,
        "the account lacks permission {permission} in project {project}",
        "Have an owner grant it: gcloud projects add-iam-policy-binding {project} --member=user:YOU --role=roles/tpu.admin",
    ),
    _rule(
        r"Quota(?: limit)? '(?P<quota>[^']+)'.{0,40}?(?:exceeded|exhausted)\.?\s*Limit:?\s*(?P<limit>\d+) in (?P<where>(?:region|zone) [\w-]+)",
        errors.QuotaExceededError,
        "quota {quota} is used up: the limit is {limit} in {where}",
        _QUOTA_PAGE,
    ),
    _rule(
        r"quota metric '(?P<quota>[^']+)'(?P<rate>.{0,60}per minute)",
        errors.QuotaExceededError,
        "too many requests were sent for {quota}",
        "Wait a minute and try again; watching many queued resources with one `watch` costs one request.",
    ),
    _rule(
        r"quota metric '(?P<quota>[^']+)'",
        errors.QuotaExceededError,
        "quota {quota} is used up",
        _QUOTA_PAGE,
    ),
    _rule(
        r"insufficient reserved capacity|reservation .{0,80}(not found|insufficient|does not)",
        errors.UnavailableError,
        "the reservation has not enough free capacity in {zone}",
        "Check what else uses it (gcloud alpha compute tpus reservations list --zone={zone}), or use spot or on-demand.",
    ),
    _rule(
        r"no more capacity|stock ?-?out|RESOURCE_POOL_EXHAUSTED|not enough (available )?(resources|capacity)|insufficient capacity",
        errors.UnavailableError,
        "zone {zone} has no capacity for it now",
        "Queue for it (leave it waiting), ask for smaller slices, or try several zones at once: zones=[…].",
    ),
    _rule(
        r"accelerator ?type .{0,80}(not (found|available|supported)|unavailable|invalid)|no (such )?accelerator type",
        errors.NotFoundError,
        "zone {zone} does not offer this accelerator type",
        "Zones that do, by Google's pages: {zones_by_type}.",
    ),
    _rule(
        r"runtime ?version .{0,80}(not (found|available|supported)|invalid|does not exist)|image .{0,60}not found",
        errors.NotFoundError,
        "there is no such runtime version in {zone}",
        "Leave the runtime version out to get the type's own, or list them: gcloud compute tpus tpu-vm versions list --zone={zone}",
    ),
    _rule(
        r"CONSUMER_INVALID|project .{0,60}(not found|does not exist|is invalid|has been deleted)",
        errors.NotFoundError,
        "there is no project {project} that this account can see",
        "Check its id: gcloud projects describe {project}",
    ),
    _rule(
        r"queuedResources/(?P<name>[^/' ]+)'? (was )?not found",
        errors.NotFoundError,
        "there is no queued resource {name} in {zone}",
        "See which there are: %multislice list, or cloud.list(); what is in another zone needs --zone, or zone=….",
    ),
    _rule(
        r"location .{0,80}(not found|is not found|unknown)|locations/[\w-]+'? \(or it may not exist\)|zone .{0,60}does not exist",
        errors.NotFoundError,
        "zone {zone} does not exist for Cloud TPU, or the account may not use it",
        "List the zones: gcloud compute tpus locations list --project={project}",
    ),
    _rule(
        r"service account .{0,120}(does not exist|not found)|actAs|iam\.serviceAccounts",
        errors.PermissionDeniedError,
        "the service account does not exist or may not be used by this account",
        "Grant roles/iam.serviceAccountUser on it; for Cloud TPU's own, run gcloud compute tpus tpu-vm service-identity create --zone={zone}",
    ),
    _rule(
        r"(sub)?network .{0,80}(not found|does not exist|invalid)",
        errors.NotFoundError,
        "the VPC network or subnetwork does not exist in project {project}",
        "List them: gcloud compute networks list --project={project}; name one with --network and --subnetwork.",
    ),
    _rule(
        r"^(?=.*(force|nodes?))(?=.*(ACTIVE|has nodes|not empty|nodes? .*exist|delete the node)).*delet",
        errors.FailedPreconditionError,
        "it still has nodes",
        "Delete with force=True (--force), which deletes its nodes with it.",
    ),
)  # fmt: skip

_BY_CODE: Mapping[str, tuple[type[errors.CloudError], str]] = {
    "UNAUTHENTICATED": (
        errors.PermissionDeniedError,
        "Log in: gcloud auth application-default login",
    ),
    "PERMISSION_DENIED": (
        errors.PermissionDeniedError,
        "Check the account (gcloud auth list) and its roles in project {project}; roles/tpu.admin is enough.",
    ),
    "NOT_FOUND": (errors.NotFoundError, "List what there is in {zone}, or name another zone."),
    "ALREADY_EXISTS": (
        errors.AlreadyExistsError,
        "Use another name, get the one that exists, or recreate it: create … --recreate, or create(…, recreate=True).",
    ),
    "RESOURCE_EXHAUSTED": (errors.QuotaExceededError, _QUOTA_PAGE),
    "FAILED_PRECONDITION": (
        errors.FailedPreconditionError,
        "Look at its state, and wait until that state allows it.",
    ),
    "ABORTED": (errors.FailedPreconditionError, "Another operation was faster; refresh and try again."),
    "UNAVAILABLE": (
        errors.UnavailableError,
        "Try again in a minute; check the network to tpu.googleapis.com.",
    ),
    "DEADLINE_EXCEEDED": (errors.UnavailableError, "Try again in a minute; the service was slow to answer."),
    "INVALID_ARGUMENT": (
        errors.FailedPreconditionError,
        "Correct what the message names, and send it again.",
    ),
    "INTERNAL": (
        errors.UnavailableError,
        "This is the service's own fault: try again in a few minutes, then tell Google support.",
    ),
}

_FAILED_FIX = (
    "It holds its name and quota until it is deleted: delete it, then create it again, "
    "or recreate it in one go with recreate()."
)


def advise(trouble: Trouble) -> errors.CloudError:
    """The error to raise for it."""
    text = f"{trouble.reason} {trouble.message}"
    original = _original(trouble.message)
    for rule in _RULES:
        found = rule.pattern.search(text)
        if found:
            words = _words(trouble, found.groupdict())
            what = f"{trouble.doing} failed: {rule.cause.format_map(words)}. The API said: {original}"
            return _class(rule, trouble)(what, fix=rule.fix.format_map(words))
    kind, fix = _BY_CODE.get(trouble.code, (errors.CloudError, "Read the API's own words above."))
    return kind(
        f"{trouble.doing} failed ({trouble.code}): {original}", fix=fix.format_map(_words(trouble, {}))
    )


def translate(error: Exception, doing: str, *, project: str = "", zone: str = "") -> errors.CloudError:
    """The error to raise for an exception of the client library or of google-auth."""
    code = getattr(getattr(error, "grpc_status_code", None), "name", None) or _code_of(error)
    message = str(getattr(error, "message", None) or error)
    reason = str(getattr(error, "reason", None) or "")
    return advise(Trouble(doing, code, message, reason, project, zone))


def failure(status: QueuedResourceStatus) -> errors.QueuedResourceFailedError:
    """The error for a queued resource that cannot become ACTIVE any more."""
    if status.state == "SUSPENDED":
        spot = status.capacity == "spot"
        cause = "its spot slices were taken back" if spot else "its slices were taken back or deleted"
        what = f"{status.name} is SUSPENDED in {status.zone}: {cause}."
        return errors.QueuedResourceFailedError(what, fix=_FAILED_FIX)
    if status.state in {"DELETING", "SUSPENDING"}:
        what = f"{status.name} is {status.state} in {status.zone} and will not become ACTIVE."
        return errors.QueuedResourceFailedError(what, fix="Wait until it is gone, then create it again.")
    if not status.error:
        what = f"{status.name} is {status.state} in {status.zone}, and the API gives no reason."
        return errors.QueuedResourceFailedError(what, fix=_FAILED_FIX)
    told = advise(
        Trouble(f"Provisioning {status.name}", "FAILED", status.error, "", status.project, status.zone)
    )
    return errors.QueuedResourceFailedError(told.what, fix=f"{told.fix} {_FAILED_FIX}")


def patience(status: QueuedResourceStatus) -> str | None:
    """After 15 minutes of waiting: what the overview advises; before that nothing."""
    seconds = status.time_in_state()
    if seconds is None or seconds < PATIENCE_SECONDS or status.is_active or status.is_dead:
        return None
    return (
        f"Over 15 minutes in {status.state}: Google's advice is to contact your account team. "
        f"Or try other zones at once: zones=[{_zones_text(status.accelerator_type)}]."
    )


def _class(rule: _Rule, trouble: Trouble) -> type[errors.CloudError]:
    """What may not be seen is not known to be gone, and may well be paid for."""
    hidden = trouble.code in {"PERMISSION_DENIED", "UNAUTHENTICATED"}
    return errors.PermissionDeniedError if hidden and rule.error is errors.NotFoundError else rule.error


def _original(message: str) -> str:
    return " ".join(message.split()) or "(nothing)"


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "…"


def _words(trouble: Trouble, found: Mapping[str, str | None]) -> _Words:
    named = {key: value for key, value in found.items() if value}
    by_type = "; ".join(
        f"{kind.name}: {', '.join(kind.zones)}" for kind in GENERATIONS if kind.in_cloud_tpu_api
    )
    base = {"project": trouble.project or "PROJECT", "zone": trouble.zone or "ZONE", "zones_by_type": by_type}
    return _Words({**base, **named})


def _zones_text(accelerator_type: str) -> str:
    for kind in GENERATIONS:
        if accelerator_type.startswith(f"{kind.prefix}-"):
            return ", ".join(repr(zone) for zone in kind.zones)
    return "…"


def _code_of(error: Exception) -> str:
    """google-auth's and the standard library's exceptions have no status code."""
    names = {
        "RefreshError": "UNAUTHENTICATED",
        "DefaultCredentialsError": "UNAUTHENTICATED",
        "TransportError": "UNAVAILABLE",
        "RetryError": "UNAVAILABLE",
        "TimeoutError": "DEADLINE_EXCEEDED",
    }
    return names.get(type(error).__name__, "UNKNOWN")
