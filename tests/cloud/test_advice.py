"""From the API's words to cause and fix."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from multislice_nb import errors
from multislice_nb.cloud.advice import Trouble, advise, failure
from multislice_nb.cloud.status import QueuedResourceStatus

MESSAGES = [
    (
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
        errors.QuotaExceededError,
        "quota TPUV6EPreemptiblePerProjectPerRegionForTPUAPI is used up: the limit is 0 in region us-east5",
    ),
    (
        "RESOURCE_EXHAUSTED",
        "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
        errors.QuotaExceededError,
        "the limit is 20800 in region us-central2",
    ),
    (
        "RESOURCE_EXHAUSTED",
        (
            'There is no more capacity in the zone "europe-west4-a"; you can try in another zone where Cloud TPU '
            "Nodes are offered"
        ),
        errors.UnavailableError,
        "has no capacity",
    ),
    (
        "RESOURCE_EXHAUSTED",
        "Insufficient reserved capacity. Contact customer support to increase your reservation.",
        errors.UnavailableError,
        "reservation has not enough free capacity",
    ),
    (
        "PERMISSION_DENIED",
        "Cloud TPU API has not been used in project 12 before or it is disabled.",
        errors.PermissionDeniedError,
        "the Cloud TPU API is not enabled in project p",
    ),
    (
        "PERMISSION_DENIED",
        "Permission 'tpu.queuedresources.create' denied on resource",
        errors.PermissionDeniedError,
        "lacks permission tpu.queuedresources.create",
    ),
    (
        "PERMISSION_DENIED",
        (
            "Permission 'tpu.queuedresources.list' denied on resource "
            "'//tpu.googleapis.com/projects/p/locations/us-west4-a' (or it may not exist)."
        ),
        errors.PermissionDeniedError,
        "lacks permission tpu.queuedresources.list",
    ),
    (
        "PERMISSION_DENIED",
        "Permission denied on 'locations/us-west4-a' (or it may not exist).",
        errors.PermissionDeniedError,
        "zone us-west4-a does not exist for Cloud TPU, or the account may not use it",
    ),
    (
        "FAILED_PRECONDITION",
        "Billing account for project 12 is not found. Billing must be enabled",
        errors.PermissionDeniedError,
        "no active billing account",
    ),
    (
        "INVALID_ARGUMENT",
        "Accelerator type v4-16 is not available in zone us-west4-a",
        errors.NotFoundError,
        "does not offer this accelerator type",
    ),
    (
        "INVALID_ARGUMENT",
        "Runtime version 'tpu-x' not found",
        errors.NotFoundError,
        "no such runtime version",
    ),
    ("UNAUTHENTICATED", "Request had invalid credentials", errors.PermissionDeniedError, "UNAUTHENTICATED"),
    ("INTERNAL", "An internal error has occurred", errors.UnavailableError, "An internal error has occurred"),
    ("DATA_LOSS", "something new", errors.CloudError, "something new"),
]


@pytest.mark.parametrize(("code", "message", "kind", "words"), MESSAGES)
def test_known_messages_become_cause_and_fix(code, message, kind, words):
    """Each gives its class, one sentence of cause, one of fix, and keeps the original."""
    error = advise(Trouble("Creating q", code, message, "", "p", "us-west4-a"))
    assert type(error) is kind
    assert words in error.what
    assert message.split()[0] in error.what
    assert error.fix
    assert "{" not in error.fix


def test_a_wrong_zone_is_answered_with_right_ones():
    """The fix for a type in the wrong zone lists zones by type."""
    message = "Accelerator type v4-16 is not available in zone us-west4-a"
    error = advise(Trouble("Creating q", "INVALID_ARGUMENT", message, "", "p", "us-west4-a"))
    assert "v4: us-central2-b" in error.fix


def test_a_suspended_spot_resource_says_that_it_was_taken_back():
    """SUSPENDED spot capacity is told apart from other suspensions."""
    status = QueuedResourceStatus("q", "SUSPENDED", capacity="spot", zone="z")
    assert "spot slices were taken back" in failure(status).what
    assert "recreate()" in failure(status).fix


def test_after_fifteen_minutes_the_overviews_advice_is_given():
    """Waiting longer than 15 minutes brings the advice, with the zones of the type; before that nothing."""
    now = datetime.now(UTC)
    fresh = QueuedResourceStatus("q", "PROVISIONING", since=now, accelerator_type="v6e-8")
    late = QueuedResourceStatus(
        "q", "WAITING_FOR_RESOURCES", since=now - timedelta(minutes=17), accelerator_type="v6e-8"
    )
    assert fresh.advice is None
    assert "account team" in str(late.advice)
    assert "us-east1-d" in str(late.advice)


def test_statuses_escape_what_came_from_the_api():
    """A status shows the API's words as text, never as HTML."""
    status = QueuedResourceStatus("q", "FAILED", error="<script>")
    assert "<script>" not in status._repr_html_()
    assert "<script>" in str(status)
