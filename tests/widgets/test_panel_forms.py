from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from multislice_nb.cloud import Endpoint, NodeStatus, QueuedResourceRequest, QueuedResourceStatus
from multislice_nb.errors import InvalidRequestError
from multislice_nb.widgets import Panel
from multislice_nb.widgets.gauge import gauge_html
from multislice_nb.widgets.session import Session
from multislice_nb.widgets.snapshot import ClusterLook, Snapshot, WorkerLook
from multislice_nb.widgets.style import look_of, state_html
from multislice_nb.widgets.tables import nodes_html, static_html, static_text
from multislice_nb.widgets.worker_tables import grid_html

if TYPE_CHECKING:
    from pathlib import Path

STATES = (
    "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "FAILED", "SUSPENDING",
    "SUSPENDED", "DELETING",
)  # fmt: skip


def snapshot(text: str = "demo", state: str = "ACTIVE") -> Snapshot:
    """One queued resource whose every text is the given one."""
    status = QueuedResourceStatus(
        name=text,
        state=state,
        accelerator_type="v4-16",
        node_count=2,
        node_ids=(text,),
        zone=text,
        capacity=text,
        error=text,
        since=datetime.now(UTC) - timedelta(seconds=90),
    )
    node = NodeStatus(text, 0, text, text, text, (Endpoint(text),))
    cluster = ClusterLook(text, text, (WorkerLook(0, 0, 0, text, text, "ready"),))
    return Snapshot(text, (status,), {text: (node,)}, {}, (cluster,), text)


MARKUP = st.text(st.sampled_from("<>&\"'/= scriptimgonerror;-!"), min_size=1, max_size=60)


@example("queued")
@given(MARKUP | st.text(min_size=1, max_size=20))
def test_no_text_becomes_markup(text: str) -> None:
    """Whatever the API, a node or a worker is called, the pages have the same tags as with a harmless name."""

    def tags(word: str) -> list[str]:
        shot = snapshot(word)
        page = static_html(shot) + nodes_html(shot.nodes[word], ()) + state_html(word, title=word)
        drawn = re.sub(
            r"(?<=>)(<(circle|path|rect)[^<>]*/>)+(?=</svg>)", "", page
        )  # a state has its own shape
        return re.findall(r"<[a-z/!][^\s>]*", drawn)

    assert tags(text) == tags("harmless")


def test_what_was_not_looked_up_is_not_said_to_be_none() -> None:
    """Where nothing could be learned, the page and the text say why, and not that there is nothing."""
    unknown = Snapshot(connection="Cloud TPU API", problem="It did not answer.")
    for form in (static_html(unknown), static_text(unknown)):
        assert "It did not answer." in form
        assert "No queued resources" not in form
    assert "No queued resources" in static_text(Snapshot(connection="Cloud TPU API"))


def test_states_differ_without_colour() -> None:
    """Living, waiting, booting, failed, suspended and leaving queued resources each have a shape of their own."""
    groups = ("ACTIVE", "WAITING_FOR_RESOURCES", "PROVISIONING", "FAILED", "SUSPENDED", "DELETING")
    assert len({look_of(state).shape for state in groups}) == len(groups)
    assert len({look_of(state).mark for state in groups}) == len(groups)
    assert all(state in state_html(state) for state in STATES)


def test_every_form_says_the_same() -> None:
    """HTML and text both name the queued resource, its state, shape, chips and error."""
    shot = snapshot("broken", "FAILED")
    for form in (static_html(shot), static_text(shot)):
        for word in ("broken", "FAILED", "2 x v4-16", "16", "holds its name and quota"):
            assert word in form


def test_workers_are_counted_by_state() -> None:
    """The legend of the grid counts running and late workers, and each cell has its worker's name and state."""
    states = {3: "behind"}
    workers = tuple(
        WorkerLook(r, r // 4, r % 4, f"n{r // 4}", "10.0.0.1", states.get(r, "running")) for r in range(8)
    )
    page = grid_html(ClusterLook("c", "", workers))
    assert 'running</span><b class="msnb-count">7</b>' in page
    assert 'behind</span><b class="msnb-count">1</b>' in page
    assert "rank 3 (slice 0, worker 3): behind" in page


@given(st.floats(1e-3, 1e9), st.floats(1.0, 1e6))
def test_the_gauge_agrees_with_the_numbers(intensity: float, threshold: float) -> None:
    """The verdict is that of the ratio, and the bar crosses the first mark exactly above the threshold."""
    page = gauge_html(intensity, threshold, "v4")
    length = float(re.findall(r'width="([\d.]+)" height="12"', page)[1])
    assert ("slows training down" in page) == (intensity < threshold)
    mark = float(re.findall(r'x1="([\d.]+)"', page)[0])
    assert length >= mark - 0.1 if intensity >= threshold else length <= mark + 0.1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"accelerator_type": "v4-18"}, "type"),
        ({"accelerator_type": "v3-8"}, "type"),
        ({"runtime_version": "v2-alpha-tpuv6e"}, "runtime"),
        ({"valid_until_duration": "soon"}, "until"),
        ({"zone": "us-central2"}, "zone"),
        ({"node_count": 300}, "slices"),
        ({"accelerator_type": "tpu7x-8"}, "type"),
    ],
)
def test_faults_stand_beside_their_field(fields: dict[str, Any], field: str) -> None:
    """Each fault of a request is shown at the field that it is about."""
    from multislice_nb.widgets.create_form import faults_by_field

    values: dict[str, Any] = {"name": "demo", "accelerator_type": "v4-16", "node_count": 2, **fields}
    with pytest.raises(InvalidRequestError) as caught:
        QueuedResourceRequest(**values)
    assert set(faults_by_field(caught.value)) == {field}


def test_the_form_speaks_magic_and_gcloud() -> None:
    """The form's magic parses back to the request that its gcloud command asks for."""
    from multislice_nb.magics import parser

    form = made_form()
    form.fields["name"].control.value = "mine"
    form.fields["capacity"].control.value = "spot"
    form.fields["until"].control.value = "6h"
    call = parser.parse(form.magic().removeprefix("%multislice "))
    assert QueuedResourceRequest(**call.values) == QueuedResourceRequest.from_gcloud(
        QueuedResourceRequest(name="mine", **form.values()).to_gcloud()
    )


def made_form() -> Any:
    """The form, of a session that is not connected."""
    from multislice_nb.widgets.create_form import CreateForm
    from multislice_nb.widgets.loop import KernelLoop
    from multislice_nb.widgets.outcome import Desk

    return CreateForm(Session(), Desk(KernelLoop(), lambda: None), lambda _: None)


def test_each_choice_narrows_the_next() -> None:
    """A zone offers its types, a type its shapes and its runtime version, and reserved capacity asks which."""
    form = made_form()
    fields = form.fields
    fields["zone"].control.value = "us-central2-b"
    assert set(fields["type"].control.options) <= {f"v4-{2**power}" for power in range(14)}
    fields["type"].control.value = "v4-256"
    assert fields["topology"].control.options == (("4x4x8, the default", ""),)
    assert "tpu-ubuntu2204-base" in fields["runtime"].control.options
    fields["type"].control.value = "v6e-256"
    assert "v6e is offered in" in fields["zone"]._fault.value
    assert fields["topology"].control.disabled
    assert fields["reservation"].view.layout.display == "none"
    fields["capacity"].control.value = "reserved"
    fields["reservation"].control.value = "mine"
    assert fields["reservation"].view.layout.display is None
    assert "--reservation mine" in form.magic()


def test_another_shape_of_as_many_chips_can_be_asked_for() -> None:
    """A topology that is not the default makes the request one by type and topology, in magic and gcloud alike."""
    form = made_form()
    form.fields["type"].control.value = "v4-1024"
    choices = [value for _, value in form.fields["topology"].control.options]
    assert len(choices) > 1
    form.fields["topology"].control.value = choices[1]
    assert form.values()["topology"] == choices[1]
    assert "accelerator_type" not in form.values()
    assert f"--topology {choices[1]}" in form.magic()
    form.fields["type"].control.value = "v4-16"
    assert form.values()["accelerator_type"] == "v4-16"


def test_sliders_land_on_valid_products_only() -> None:
    """Every position of both sliders of the planner is a parallelism of exactly those slices and chips."""
    from multislice_nb.widgets.planner import Planner

    planner = Planner()
    planner.type.control.value = "v5litepod-16"
    planner.slices.control.value = 4
    for ici in [option[1] for option in planner.ici.control.options]:
        for dcn in [option[1] for option in planner.dcn.control.options]:
            planner.ici.control.value, planner.dcn.control.value = ici, dcn
            found = planner.parallelism
            assert found is not None
            assert found.resolve(16, 4) == found
    planner.type.control.value = "v4-18"
    assert planner.parallelism is None


def test_a_panel_without_a_page_is_a_table(emulator_home: Path) -> None:
    """Where nobody can press a button, the panel is text and HTML, and makes no widget."""
    session = Session()
    session.connect(emulator=True)
    shown = Panel(session, live=False)
    forms = shown._repr_mimebundle_()
    assert set(forms) == {"text/plain", "text/html"}
    assert "emulator" in forms["text/plain"]
    assert str(shown) == forms["text/plain"]


def test_a_panel_with_a_page_has_all_three_forms(emulator_home: Path) -> None:
    """A live panel is a widget view, HTML and text, and shows what it does as a magic."""
    session = Session()
    session.connect(emulator=True)
    forms = Panel(session, live=True)._repr_mimebundle_()
    assert set(forms) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}


def test_without_ipywidgets_the_panel_is_a_table() -> None:
    """With ipywidgets missing a panel degrades to text and HTML instead of failing."""
    code = (
        "import sys\nsys.modules['ipywidgets'] = None\n"
        "from multislice_nb.widgets import panel\nprint(sorted(panel(live=True)._repr_mimebundle_()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "['text/html', 'text/plain']", run.stderr
