"""What the client makes of the API's answers, those that were lost included."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core import exceptions
from google.longrunning.operations_pb2 import Operation
from google.protobuf.json_format import ParseDict

from multislice_nb.cloud import QueuedResourceRequest
from multislice_nb.cloud.client import TpuApi
from multislice_nb.cloud.retry import is_transient
from multislice_nb.cloud.wire import to_json, to_message
from multislice_nb.errors import UnavailableError

LIMIT = "defaultPerMinutePerProject"


@pytest.mark.parametrize(
    ("message", "reason", "again"),
    [
        ("Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'", None, True),
        ("Resource has been exhausted (e.g. check quota).", "RATE_LIMIT_EXCEEDED", True),
        ("Resource has been exhausted (e.g. check quota).", None, False),
        (
            "Quota limit 'TPUV4PerProjectPerRegion' has been exceeded. Limit: 0 in region us-central2.",
            None,
            False,
        ),
        ("There is no more capacity to operate this separate zone.", None, False),
    ],
)
def test_too_many_requests_are_sent_again_and_a_used_up_quota_is_not(message, reason, again):
    """The message and the reason tell, whatever the details name."""
    info = {"reason": reason} if reason else None
    error = exceptions.ResourceExhausted(message, details=[f"quota_limit: {LIMIT}"], error_info=info)
    assert is_transient(error) is again


class Service:
    """The calls of a create, each with one answer."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        async def call(**_call: Any) -> Any:
            answer = self._answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def api(**answers: Any) -> TpuApi:
    """A provider that gets these answers."""
    service = Service(**answers)
    return TpuApi(SimpleNamespace(v2=service, v2alpha1=service, channels=[1]), "p")  # type: ignore[arg-type]


def request(**fields: Any) -> QueuedResourceRequest:
    """A request."""
    place = {"project": "p", "zone": "us-central2-b"}
    return QueuedResourceRequest(**{"name": "q", "accelerator_type": "v4-8", **place, **fields})


@pytest.mark.parametrize(
    "answers",
    [
        {
            "create_queued_resource": SimpleNamespace(
                operation=Operation(name="projects/p/locations/z/operations/o")
            ),
            "get_queued_resource": exceptions.PermissionDenied("You may not look."),
        },
        {
            "create_queued_resource": exceptions.AlreadyExists("It exists."),
            "get_queued_resource": exceptions.PermissionDenied("You may not look."),
        },
    ],
)
def test_what_cannot_be_looked_at_may_have_been_accepted(answers):
    """Only the answer to the create call itself is a refusal; after it nothing is known to be refused."""
    creating = api(**answers).create_queued_resource(request(), request_id="r", labels={})
    with pytest.raises(UnavailableError, match=r"is not known.*You may not look"):
        asyncio.run(creating)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"validUntilTime": -1}, {}),
        ({"validUntilTime": 1}, {"validUntilTime": 1}),
        ({"validAfterTime": -1}, {}),
        ({"validInterval": {"startTime": -2, "endTime": -1}}, {}),
        ({"validInterval": {"startTime": -1, "endTime": 1}}, {"validUntilTime": 1}),
    ],
)
def test_a_request_that_is_read_back_is_not_bound_by_what_is_over(policy, kept):
    """Whatever it waited for, and however long it was to wait, it can be asked for again."""
    now = datetime.now(UTC).replace(microsecond=0)

    def moments(given):
        if isinstance(given, dict):
            return {key: moments(value) for key, value in given.items()}
        return (now + timedelta(hours=given)).isoformat().replace("+00:00", "Z")

    message = to_message(request())
    ParseDict({"queueingPolicy": moments(policy)}, type(message).pb(message))
    read = asyncio.run(api(get_queued_resource=message).get_request("q", "us-central2-b"))
    assert to_json(read).get("queueingPolicy", {}) == moments(kept)
