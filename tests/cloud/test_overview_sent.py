"""The overview's own commands and bodies, sent to the emulator."""

from __future__ import annotations

import itertools

import pytest

from multislice_nb._portal import sync
from multislice_nb.cloud import QueuedResourceRequest
from tests.cloud.test_notation import FILLED, TAGS, page

BODY = {
    "slice-count": "4",
    '"accelerator-type"': '"v4-16"',
    "tpu-vm-runtime-version": "tpu-ubuntu2204-base",
}


def written(edition: str, which: str) -> QueuedResourceRequest:
    """A request as the page gives it, placeholders filled."""
    if which == "body":
        return QueuedResourceRequest.from_rest(page(f"{edition}_body.json.txt", BODY), "demo")
    text = page(f"{edition}_exports.txt") + page(f"{edition}_create_{which}.txt", FILLED)
    return QueuedResourceRequest.from_gcloud(text, TAGS)


@pytest.mark.parametrize(("edition", "which"), list(itertools.product(["ja", "fr"], ["1", "2", "3", "body"])))
def test_what_the_page_asks_for_arrives(cloud, edition, which):
    """Sent and read back from the API, it is what the page's own text asks for, with the service's defaults."""
    zone = "us-central1-a" if "v5lite" in written(edition, which).slice_type.name else "us-central2-b"
    asked = written(edition, which).replace(name=f"page-{edition}-{which}", project=cloud.project, zone=zone)
    qr = cloud.create(asked)
    try:
        read = sync(cloud.provider.get_request, qr.name, zone)
        filled = {"network": asked.network or "default", "api_version": read.api_version}
        if asked.node_count > 1:
            filled["node_prefix"] = asked.node_prefix or asked.name
        assert read.to_gcloud() == asked.replace(**filled).to_gcloud()
        assert read.reserved == asked.reserved
    finally:
        qr.delete()
