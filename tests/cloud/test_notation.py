"""The three notations of one request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.cloud import DataDisk, QueuedResourceRequest
from multislice_nb.cloud.gcloud_flags import join_dict, join_list, split_dict, split_list
from multislice_nb.cloud.shelltext import read_paste
from multislice_nb.errors import InvalidRequestError
from multislice_nb.tpu import AcceleratorType

OVERVIEW = Path(__file__).parent / "overview"
FILLED = {
    "your-accelerator-type": "v4-8",
    "tpu-vm-runtime-version": "tpu-ubuntu2204-base",
    "=node-count": "=2",
}
TAGS = {"EXAMPLE_TAG_1": "tag-1", "EXAMPLE_TAG_2": "tag-2", "QR_ID": "demo"}


def page(name: str, placeholders: dict[str, str] | None = None) -> str:
    """A command or body as it stands on the page, placeholders filled."""
    text = (OVERVIEW / name).read_text(encoding="utf-8")
    for old, new in (placeholders or {}).items():
        text = text.replace(old, new)
    return text


def again(request: QueuedResourceRequest) -> QueuedResourceRequest:
    """The request after a trip through its gcloud command."""
    return QueuedResourceRequest.from_gcloud(request.to_gcloud(), {})


@pytest.mark.parametrize("edition", ["ja", "fr"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_create_command_of_the_overview_round_trips(edition, number):
    """A command pasted from the page with its export lines gives a request that renders to an equal one."""
    text = page(f"{edition}_exports.txt") + page(f"{edition}_create_{number}.txt", FILLED)
    request = QueuedResourceRequest.from_gcloud(text, TAGS)
    assert (request.node_count > 1) == (number > 1)
    assert request.capacity == "on-demand"
    assert request.name in {"YOUR_QR_ID", "your-queued-resource-id"}
    assert again(request) == request


def test_the_overviews_full_command_is_read_whole():
    """Tags, network, metadata and slices of the page's largest command all arrive, slips and all."""
    exports = page("ja_exports.txt")
    request = QueuedResourceRequest.from_gcloud(exports + page("ja_create_3.txt"), TAGS)
    assert request.name == "your-queued-resource-id"
    assert (request.project, request.zone) == ("your-project-id", "your-zone")
    assert (request.node_count, request.accelerator_type) == (4, "v4-16")
    assert request.tags == ("tag-1", "tag-2")
    assert (request.network, request.subnetwork) == ("your-network-name", "your-subnetwork-name")
    assert request.startup_script == r"#!/bin/bash\n ..."


@pytest.mark.parametrize("edition", ["ja", "fr"])
def test_both_bodies_of_the_overview_round_trip(edition):
    """A body pasted from the page, its missing comma included, comes back as the same body."""
    filled = {
        "slice-count": "4",
        '"accelerator-type"': '"v4-16"',
        "tpu-vm-runtime-version": "tpu-ubuntu2204-base",
    }
    text = page(f"{edition}_body.json.txt", filled)
    request = QueuedResourceRequest.from_rest(text, "demo")
    assert request.reserved
    assert request.api_version == "v2alpha1"
    assert (request.node_count, request.node_prefix) == (4, "your-queued-resource-id")
    assert request.startup_script == "your-startup-script"
    body = request.to_rest()
    assert body["guaranteed"] == {"reserved": True}
    assert body["tpu"]["nodeSpec"][0]["parent"] == "projects/your-project-number/locations/your-zone"
    assert QueuedResourceRequest.from_rest(body, "demo") == request
    assert again(request) == request


WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1
)


@given(st.lists(WORDS, min_size=1))
def test_lists_survive_gclouds_notation(items):
    """Any list that can be written as a gcloud flag is read back as it was."""
    try:
        text = join_list(items)
    except InvalidRequestError:
        return
    assert split_list(text) == tuple(items)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), st.text(), min_size=1))
def test_dictionaries_survive_gclouds_notation(items):
    """Any metadata that can be written as a gcloud flag is read back as it was."""
    try:
        text = join_dict(items)
    except InvalidRequestError:
        return
    assert split_dict(text) == items


@given(
    script=st.one_of(
        st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1)
    ),
    count=st.integers(1, 256),
    until=st.one_of(st.none(), st.integers(1, 10**6)),
    spot=st.booleans(),
    internal=st.booleans(),
)
def test_requests_survive_both_notations(script, count, until, spot, internal):
    """A request is equal to what its command and its body say, whatever its startup script holds."""
    request = QueuedResourceRequest(
        name="demo",
        project="p",
        zone="us-central2-b",
        accelerator_type="v4-16",
        node_count=count,
        node_id="demo" if count == 1 else None,
        spot=spot,
        internal_ips=internal,
        network="default",
        startup_script=script,
        valid_until_duration=None if until is None else f"{until}s",
        data_disks=(DataDisk("projects/p/zones/us-central2-b/disks/d", "read-only"),),
        labels={"team": "a"},
    )
    assert again(request) == request
    assert QueuedResourceRequest.from_rest(json.dumps(request.to_rest()), "demo") == request


def test_a_single_quoted_script_keeps_its_own_variables():
    """What a shell leaves alone inside single quotes is left alone here."""
    text = "gcloud compute tpus queued-resources create q --accelerator-type=v4-8 --metadata=startup-script='cd $HOME'"
    assert QueuedResourceRequest.from_gcloud(text, {}).startup_script == "cd $HOME"


def test_a_double_quoted_script_has_its_variables_filled():
    """Inside double quotes a variable is filled in and its value stays as it is."""
    text = 'gcloud compute tpus queued-resources create q --accelerator-type=v4-8 --metadata=startup-script="${S}"'
    script = 'echo "a $b" \\ `c`'
    assert QueuedResourceRequest.from_gcloud(text, {"S": script}).startup_script == script


def test_unknown_variables_are_named_all_at_once():
    """A command with unset variables says which they are."""
    with pytest.raises(InvalidRequestError, match=r"A, B\."):
        QueuedResourceRequest.from_gcloud("gcloud compute tpus queued-resources create $A --zone=${B}", {})


def test_command_substitution_is_never_run():
    """Text between $( and ) is refused, not run."""
    with pytest.raises(InvalidRequestError, match="command substitution"):
        read_paste('gcloud x --zone="$(touch /tmp/never)"', {})


def test_an_unknown_flag_gets_the_nearest_one():
    """A misspelt flag is answered with the flag that was meant."""
    with pytest.raises(InvalidRequestError) as caught:
        QueuedResourceRequest.from_gcloud("create q --acelerator-type=v4-8", {})
    assert caught.value.fix == "Did you mean --accelerator-type?"


def test_metadata_that_gcloud_would_misread_is_explained():
    """A comma inside a metadata value is refused with the way to write it."""
    with pytest.raises(InvalidRequestError, match=r"\^;\^key=value"):
        QueuedResourceRequest.from_gcloud(
            "create q --accelerator-type=v4-8 --metadata=startup-script=a,b", {}
        )


def test_a_broken_body_names_its_line():
    """JSON that cannot be mended is refused with line and column."""
    with pytest.raises(InvalidRequestError, match="line 2, column"):
        QueuedResourceRequest.from_rest('{\n"tpu": slice-count}')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (5, "no JSON object"),
        ({("a", "b"): 1}, "cannot be written as JSON"),
        ({"tpu": []}, "Field tpu of the body cannot be []. Give an object"),
        ({"tpu": {"nodeSpec": {}}}, "Give a list"),
        ({"tpu": {"nodeSpec": ["n"]}}, "Give an object for each"),
        ({"guaranteed": 5}, "Give an object"),
        ({"reservationName": 5}, "Give a text"),
        ({"queueingPolicy": "6h"}, "Give an object"),
        ({"queueingPolicy": {"validUntilTime": 5}}, "no time"),
        ({"multisliceParams": {"nodeCount": "two"}}, "Give a number"),
        ({"node": {"acceleratorType": 5}}, "5"),
        ({"node": {"acceleratorType": "v4-8", "tags": "a"}}, "Give a list"),
        ({"node": {"acceleratorType": "v4-8", "tags": [5]}}, "a list of texts"),
        ({"node": {"acceleratorType": "v4-8", "labels": ["a"]}}, "Give an object"),
        ({"node": {"acceleratorType": "v4-8", "dataDisks": ["d"]}}, "Give an object for each"),
        ({"node": {"acceleratorType": "v4-8", "dataDisks": [{"sourceDisk": 5}]}}, "Give a text"),
        ({"node": {"acceleratorType": "v4-8", "serviceAccount": {"scope": 5}}}, "Give a list"),
    ],
)
def test_a_body_with_values_of_the_wrong_kind_is_refused(body, words):
    """Whatever stands where something else is wanted is named, with what is wanted."""
    if isinstance(body, dict):
        spec = {key: body.pop(key) for key in ("node", "multisliceParams") if key in body}
        spec = {"nodeId": "n", "node": {"acceleratorType": "v4-8"}, **spec}
        body = {"tpu": {"nodeSpec": [spec]}, **body}
    with pytest.raises(InvalidRequestError) as caught:
        QueuedResourceRequest.from_rest(body, "q")
    assert words in str(caught.value).replace("\n", " ")


def test_an_answer_keeps_its_shape():
    """Where an answer has both, the topology decides what the type's name means."""
    shape = {"type": "V4", "topology": "4x4x32"}
    kind = AcceleratorType.from_topology("v4", "4x4x32")
    node = {"acceleratorType": kind.name, "acceleratorConfig": shape}
    read = QueuedResourceRequest.from_rest({"tpu": {"nodeSpec": [{"nodeId": "n", "node": node}]}}, "q")
    assert read.slice_type == kind
    node["acceleratorConfig"] = {"type": "V4", "topology": AcceleratorType.parse(kind.name).topology}
    read = QueuedResourceRequest.from_rest({"tpu": {"nodeSpec": [{"nodeId": "n", "node": node}]}}, "q")
    assert read.accelerator_type == kind.name


def test_fields_that_would_be_lost_are_faults():
    """A body's field that this tool cannot send is named instead of dropped."""
    body = {
        "tpu": {
            "nodeSpec": [{"nodeId": "n", "node": {"acceleratorType": "v4-8", "bootDiskConfig": {"x": 1}}}]
        }
    }
    with pytest.raises(InvalidRequestError, match=r"node\.bootDiskConfig"):
        QueuedResourceRequest.from_rest(body, "q")


def test_an_answer_becomes_the_request_it_came_from():
    """The API's answer to a GET, one entry per slice, gives the request for as many slices."""
    node = {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base", "state": "READY"}
    specs = [{"parent": "projects/p/locations/z", "nodeId": f"x-{n}", "node": node} for n in range(3)]
    answer = {
        "name": "projects/p/locations/z/queuedResources/q",
        "tpu": {"nodeSpec": specs},
        "state": {"state": "ACTIVE"},
    }
    request = QueuedResourceRequest.from_rest(answer)
    assert (request.name, request.node_count, request.node_prefix) == ("q", 3, "x")


def test_curl_quotes_what_it_sends():
    """The curl command is safe to paste whatever the startup script holds."""
    import shlex

    request = QueuedResourceRequest(
        name="q", project="p", zone="z", accelerator_type="v4-8", startup_script="echo 'hi'; $(boom)"
    )
    words = shlex.split(request.to_curl().replace("\\\n", ""))
    assert json.loads(words[words.index("-d") + 1]) == request.to_rest()
