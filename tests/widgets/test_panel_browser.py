"""The panel as people see it: in JupyterLab, in a browser, on the emulator."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.widgets.labdriver import Lab

pytestmark = pytest.mark.timeout(600)

PANEL = "%load_ext multislice_nb\n%multislice connect\n%multislice panel"
POLLER = (
    "from multislice_nb.widgets.poller import poller_of\nfrom multislice_nb.widgets.session import current\n"
    "poller = poller_of(current())\n"
)
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_the_whole_way(opened: Callable[..., Any]) -> None:
    """Create with the form, watch to ACTIVE, attach, run a cell on all workers, interrupt one, delete with confirm."""
    notebook = opened(
        PANEL,
        "%%multislice\nimport jax\njax.device_count()",
        "%%multislice\nimport time\nprint('begun')\nwhile True: time.sleep(0.1)",
        "'the kernel is free'",
    )
    page = notebook.page
    notebook.run(0)
    create(notebook)
    notebook.button("Attach").click()
    notebook.told("4 of 4 workers ready").wait_for()
    notebook.run(1)
    assert "[all 4] 16" in notebook.output(1).inner_text()
    notebook.start(2)
    notebook.output(2).get_by_text("begun").wait_for()
    notebook.shoot("running")
    page.get_by_role("button", name="Interrupt the kernel").click()
    notebook.output(2).get_by_text("Interrupted: the cell was stopped on the workers of demo").wait_for()
    look_at_workers(notebook)
    run_in_the_panel(notebook)
    notebook.tab("Queued resources").click()
    notebook.button("Delete…").click()
    page.get_by_text("Delete demo (2 slices, 4 workers, 16 chips) and everything that runs on it?").wait_for()
    page.get_by_text("You are attached: variables on its workers are lost.").wait_for()
    notebook.shoot("confirm")
    notebook.button("Keep").click()
    notebook.button("Delete…").click()
    notebook.button("Delete demo").click()
    notebook.told("demo deleted · 4 workers, 16 chips released").wait_for()
    page.get_by_text("No queued resources.").wait_for()


def create(notebook: Any) -> None:
    """Fill in the form wrongly, then rightly, and see the slices come."""
    page = notebook.page
    notebook.button("New…").click()
    page.get_by_label("Name", exact=True).fill("bad name")
    page.get_by_label("Accelerator type").fill("v4-18")
    page.get_by_label("Accelerator type").press("Tab")
    page.get_by_text("Nearest: v4-16, v4-32.").wait_for()
    page.get_by_text("'bad name' is not allowed").wait_for()
    assert notebook.button("Create").is_disabled()
    notebook.shoot("form_faults")
    page.get_by_label("Name", exact=True).fill("demo")
    page.get_by_label("Accelerator type").fill("v4-256")
    page.get_by_label("Topology").locator("option", has_text="4x4x8, the default").wait_for(state="attached")
    page.get_by_label("Accelerator type").fill("v4-16")
    page.get_by_label("Accelerator type").press("Tab")
    page.get_by_text("16 chips · 4 workers").wait_for()
    page.get_by_text("gcloud compute tpus queued-resources create demo").wait_for()
    notebook.shoot("form")
    notebook.button("Create").click()
    notebook.told("demo was asked for").wait_for()
    page.locator(".msnb-chosen", has_text="ACTIVE").wait_for()
    page.locator(".msnb-path", has_text="ACTIVE").wait_for()
    notebook.shoot("panel-queued-resources", panel=True)


def look_at_workers(notebook: Any) -> None:
    """Each worker has its numbers, and a click on one opens its log."""
    page = notebook.page
    notebook.tab("Workers").click()
    page.locator(".msnb-log", has_text="begun").wait_for()
    page.locator(".msnb-table td", has_text=re.compile(r"\d+ %")).first.wait_for()
    page.get_by_role("button", name="3", exact=True).click()
    page.locator("p", has_text="rank 3 (slice 1, worker 1)").wait_for()
    assert page.get_by_role("spinbutton", name="Log of rank").input_value() == "3"
    notebook.shoot("panel-workers", panel=True)


def run_in_the_panel(notebook: Any) -> None:
    """Run code from the panel, whose output is text, while the kernel stays free."""
    page = notebook.page
    notebook.tab("Run").click()
    page.locator(".msnb-editor textarea").fill(
        f"import time, jax\ntime.sleep(1.5)\nprint('from', jax.process_index(), {MARKUP!r})"
    )
    notebook.button("Run on all workers").click()
    notebook.run(3)
    notebook.told("demo: done on 4 workers").wait_for()
    page.locator(".msnb-log", has_text="from 3").wait_for()
    assert page.locator(".msnb img, .msnb script").count() == 0
    assert page.title() != "owned"
    notebook.shoot("panel-run", panel=True)


def test_plans_land_on_valid_products(opened: Callable[..., Any]) -> None:
    """The planner shows intensity against the threshold and the advice, and sliders change them."""
    notebook = opened(PANEL)
    notebook.run(0)
    notebook.tab("Plan").click()
    page = notebook.page
    page.get_by_text("44 000 of 22 000 FLOPs per bit (2.00 x): DCN is hidden with margin").wait_for()
    notebook.shoot("panel-plan", panel=True)
    slider = page.locator(".widget-slider, .jupyter-widgets.widget-inline-hbox", has_text="Tokens per slice")
    handle = slider.locator(".noUi-handle").first
    handle.focus()
    for _ in range(3):
        handle.press("ArrowLeft")
    page.get_by_text("DCN slows training down").wait_for()


def test_a_sweep_is_explored_and_kept(opened: Callable[..., Any], lab: Lab) -> None:
    """Results become a chart by choices, two files are compared, and the chart becomes output that is saved."""
    for file, factor in (("explored", 1.0), ("before", 0.8)):
        rows = [
            {"key": f"{name}{batch}", "status": "ok", "strategy": name, "batch_per_device": batch}
            | {"tflops_per_chip": batch * scale * factor, "spread": 0.02, "embedding": 256, "layers": 4}
            | {"step_seconds": 0.1}
            for name, scale in (("fsdp", 1e-4), (MARKUP, 5e-5))
            for batch in (64, 128, 256)
        ]
        (lab.folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notebook = opened(PANEL)
    page = notebook.page
    notebook.run(0)
    notebook.tab("Sweep").click()
    chart = page.locator("img.widget-image")
    chart.wait_for()
    page.get_by_label("Results").select_option("explored.jsonl")
    page.get_by_label("Compare").select_option("before.jsonl")
    page.get_by_label("Up", exact=True).select_option("step_seconds")
    before = chart.get_attribute("src")
    page.get_by_label("Only").select_option("fsdp")
    page.wait_for_function("before => document.querySelector('img.widget-image').src != before", arg=before)
    notebook.shoot("panel-sweep", panel=True)
    notebook.button("Keep chart").click()
    notebook.output(0).locator("img[src^='data:image/png']").wait_for()
    assert page.title() != "owned"


@pytest.mark.parametrize(("dark", "width"), [(False, 1000), (True, 1400)], ids=["light", "dark"])
def test_every_tab_fits(opened: Callable[..., Any], dark: bool, width: int) -> None:
    """In a theme and a width each, every tab is no wider than its place, and text stands out from its ground."""
    notebook = opened(
        PANEL,
        "%multislice create seen --accelerator-type v4-16 --node-count 2 --wait",
        dark=dark,
        width=width,
    )
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    page.locator(".msnb-chosen", has_text="ACTIVE").wait_for()
    for tab in ("Queued resources", "Workers", "Run", "Plan", "Sweep", "Jobs"):
        notebook.tab(tab).click()
        page.locator(f".lm-mod-current:has-text('{tab}')").wait_for()
        page.locator(SEEN_IN[tab]).first.wait_for()
        assert page.locator(".msnb-board").evaluate("board => board.scrollWidth <= board.clientWidth"), tab
        notebook.shoot(f"tab_{tab.split()[0].lower()}_{'dark' if dark else 'light'}_{width}", panel=True)
    notebook.tab("Queued resources").click()
    notebook.button("New…").click()
    facts = page.locator(".msnb-facts:visible")
    facts.wait_for()
    notebook.shoot(f"tab_form_{'dark' if dark else 'light'}_{width}", panel=True)
    arrow = page.get_by_label("Capacity").evaluate("choice => getComputedStyle(choice).backgroundImage")
    assert "808080" in arrow  # seen on light and on dark
    colour = facts.evaluate("element => getComputedStyle(element).color")
    parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    assert all(part > 180 for part in parts) if dark else all(part < 80 for part in parts), colour


SEEN_IN = {
    "Queued resources": ".msnb-table",
    "Workers": ".msnb-workers button",
    "Run": ".msnb-editor",
    "Plan": ".msnb-inktext",
    "Sweep": ".msnb-empty:visible, img.widget-image:visible",
    "Jobs": ".msnb-empty:visible",
}


def test_one_poller_for_all_panels_and_none_without(opened: Callable[..., Any]) -> None:
    """Two panels share one poller, which stops when both are closed and starts again with the next."""
    notebook = opened(
        PANEL,
        "%multislice panel",
        POLLER + "print(poller.running, len(poller._subscribers))",
        "import time\nseen = poller.looks\ntime.sleep(1.2)\nprint(poller.running, poller.looks - seen)",
        "print(poller.running, len(poller._subscribers))",
    )
    for number in (0, 1):
        notebook.run(number)
        notebook.output(number).get_by_text("No queued resources.").wait_for()
    notebook.run(2)
    assert "True 2" in notebook.output(2).inner_text()
    notebook.shoot("two_panels")
    notebook.clear()
    notebook.run(3)
    notebook.run(3)
    assert "False 0" in notebook.output(3).inner_text()
    notebook.run(0)
    notebook.output(0).get_by_text("No queued resources.").wait_for()
    notebook.run(4)
    assert "True 1" in notebook.output(4).inner_text()


def test_a_thousand_workers_stay_readable(opened: Callable[..., Any]) -> None:
    """256 slices with 1024 workers are one grid that fits; what happens to a slice is seen, and a click opens a worker."""
    notebook = opened(
        PANEL,
        "%multislice create big --accelerator-type v4-32 --node-count 256 --spot --wait",
        "from multislice_nb.emulator.control import connect\n"
        "with connect() as emulator:\n    emulator.stock_out('v4')  # so that it is not repaired\n    emulator.preempt('big-199')",
    )
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    notebook.tab("Workers").click()
    buttons = page.locator(".msnb-workers button")
    buttons.nth(1023).wait_for(state="attached")
    assert buttons.count() == 1024
    page.locator(".msnb-rows", has_text="slices 248–255 · 992–1023").wait_for(state="attached")
    buttons.nth(777).click()
    page.locator("p", has_text="rank 777 (slice 194, worker 1)").wait_for()
    go_about_with_keys(page)
    notebook.run(2)
    page.locator(".msnb-flat", has_text="PREEMPTED4").wait_for()
    notebook.shoot("panel-workers-1024", panel=True)
    page.locator(".msnb-table td", has_text="rank 799 (slice 199, worker 3)").wait_for()
    colours = buttons.evaluate_all("all => all.map(one => getComputedStyle(one, '::before').backgroundColor)")
    assert [rank for rank, colour in enumerate(colours) if colour != colours[0]] == [796, 797, 798, 799]
    assert page.locator(".msnb-board").evaluate("board => board.scrollWidth <= board.clientWidth")


RING_IS_SEEN = """button => {
  const own = button.getBoundingClientRect(), view = button.closest(".msnb-workers").parentElement.getBoundingClientRect();
  return own.top - 3 >= view.top && own.bottom + 3 <= view.bottom;
}"""
"""Whether what is drawn around the button that has the focus is within what the grid shows of itself."""


def go_about_with_keys(page: Any) -> None:
    """The grid is one stop of the Tab key; arrows, Home and End move in it, and Enter opens the worker there."""
    page.locator(".msnb-workers [role=toolbar]").wait_for()
    stops = ".msnb-workers button[tabindex='0']"
    page.locator(f"{stops}[value='777'][aria-pressed='true']").wait_for()
    page.get_by_role("spinbutton", name="Log of rank").focus()
    page.keyboard.press("Tab")
    for key, rank in (
        ("ArrowRight", 778),
        ("ArrowDown", 810),
        ("ArrowLeft", 809),
        ("ArrowUp", 777),
        ("Home", 768),
        ("End", 799),
        ("Control+Home", 0),
        ("ArrowUp", 0),
        ("Control+End", 1023),
        ("ArrowRight", 1023),
    ):
        page.keyboard.press(key)
        page.locator(f"{stops}[value='{rank}']:focus").wait_for()
        assert page.locator(stops).count() == 1
        assert page.locator(f"{stops}[value='{rank}']").evaluate(RING_IS_SEEN), rank
    page.keyboard.press("Enter")
    page.locator("p", has_text="rank 1023 (slice 255, worker 3)").wait_for()
    page.keyboard.press("Tab")
    assert page.locator(".msnb-workers button:focus").count() == 0


def test_markup_from_elsewhere_is_text(opened: Callable[..., Any]) -> None:
    """What the API, a node, a label or a worker says is shown as text: no markup of theirs becomes part of the page."""
    notebook = opened(
        "import time, warnings; warnings.simplefilter('ignore')\n"
        "from multislice_nb.cloud import QueuedResourceStatus, NodeStatus, Endpoint\n"
        "from multislice_nb.widgets.snapshot import ClusterLook, Snapshot, WorkerLook\n"
        "from multislice_nb.widgets.outcome import Desk\nfrom multislice_nb.widgets.loop import KernelLoop\n"
        "from multislice_nb.widgets.resources import Resources\nfrom multislice_nb.widgets.workers import Workers\n"
        "from multislice_nb.widgets.session import Session\nimport ipywidgets\n"
        f"bad = {MARKUP!r}\n"
        "status = QueuedResourceStatus(name=bad, state=bad, error=bad, zone=bad, accelerator_type=bad, capacity=bad, labels={bad: bad})\n"
        "node = NodeStatus(node_id=bad, slice_id=0, state=bad, health=bad, accelerator_type=bad, endpoints=(Endpoint(bad),), labels={bad: bad})\n"
        "worker = WorkerLook(0, 0, 0, bad, bad, bad, bad, time.time())\n"
        "snapshot = Snapshot(bad, (status,), {bad: (node,)}, {}, (ClusterLook(bad, bad, (worker,)),), bad)\n"
        "desk = Desk(KernelLoop(), lambda: None)\ndesk.note(bad, magic=bad)\n"
        "tabs = Resources(Session(), desk), Workers(Session(), KernelLoop())\n"
        "tabs[1].open(shown=True)\n"
        "for tab in tabs: tab.show(snapshot)\n"
        "tabs[0].delete.click()\n"
        "ipywidgets.VBox([*(tab.view for tab in tabs), desk.view])",
        "from multislice_nb.widgets.tables import static_html\nfrom IPython.display import HTML\nHTML(static_html(snapshot))",
        "status",
    )
    for number in (0, 1, 2):
        notebook.run(number)
    notebook.page.get_by_text("<img src=x").first.wait_for()
    assert notebook.page.locator(".jp-OutputArea img, .jp-OutputArea script").count() == 0
    assert notebook.page.title() != "owned"


def test_it_comes_back(opened: Callable[..., Any]) -> None:
    """A page that is loaded again shows the panel, and one poller works for it; after a restart its cell brings it back."""
    notebook = opened(
        PANEL,
        "%multislice create kept --accelerator-type v4-8 --wait",
        "%multislice delete kept",
        POLLER + "print(poller.running, len(poller._subscribers))",
    )
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    notebook.output(0).locator(".msnb-chosen", has_text="kept").wait_for()
    page.get_by_role("button", name="Save and create checkpoint").click()
    notebook.reload()
    notebook.output(0).locator(".msnb-chosen", has_text="kept").wait_for()
    notebook.shoot("after_reload")
    notebook.run(3)
    assert "True 1" in notebook.output(3).inner_text()
    notebook.clear()
    notebook.run(3)
    assert "False 0" in notebook.output(3).inner_text()
    notebook.restart()
    notebook.run(0)
    notebook.output(0).locator(".msnb-chosen", has_text="kept").wait_for()
    notebook.shoot("after_restart")
    notebook.run(2)
    notebook.output(0).get_by_text("No queued resources.").wait_for()


def test_a_closed_browser_ends_the_polling(opened: Callable[..., Any], lab: Lab) -> None:
    """When no page answers any more nobody is polled for; when one is there again, the panel goes on."""
    notebook = opened(
        "from multislice_nb.widgets import pulse\npulse.EVERY, pulse.LONGEST = 0.5, 2.0\n" + PANEL,
        POLLER + "import threading, time, pathlib\nboard = next(iter(poller._subscribers))\n"
        "def note():\n"
        "    while not pathlib.Path('over').exists():\n"
        "        pathlib.Path('polls').write_text(f'{poller.running} {board.pulse._answers}'); time.sleep(0.1)\n"
        "threading.Thread(target=note, daemon=True).start()",
    )
    page = notebook.page
    polls = lab.folder / "polls"

    def told(text: str) -> None:
        limit = time.monotonic() + 60
        while not polls.exists() or polls.read_text() != text:
            assert time.monotonic() < limit, f"polling: {polls.read_text()}"
            page.wait_for_timeout(100)

    notebook.run(0)
    notebook.output(0).get_by_text("No queued resources.").wait_for()
    notebook.run(1)
    notebook.save()
    told("True True")
    address = page.url
    page.goto("about:blank")
    told("False True")
    page.goto(address)
    told("True True")
    notebook.output(0).get_by_text("No queued resources.").wait_for()
    (lab.folder / "over").touch()


def test_a_job_is_followed_and_cancelled(opened: Callable[..., Any]) -> None:
    """A job that runs unattended is in its tab with its state, shows its log, and is cancelled after a question."""
    notebook = opened(
        PANEL,
        "%multislice job submit endless --accelerator-type v4-8 "
        "echo a job was here; while true; do sleep 0.2; done",
    )
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    notebook.tab("Jobs").click()
    page.locator(".msnb-chosen", has_text="running").wait_for()
    notebook.button("Logs").click()
    page.locator(".msnb-log", has_text="a job was here").wait_for()
    notebook.shoot("panel-jobs", panel=True)
    notebook.button("Cancel…").click()
    page.get_by_text("End endless (v4-8) on all its workers?").wait_for()
    notebook.button("Cancel it").click()
    notebook.told("endless ends; its logs and results are kept.").wait_for()
    page.locator(".msnb-chosen", has_text="cancelled").wait_for()


def test_notebook_7_shows_it_too(opened: Callable[..., Any]) -> None:
    """In Notebook 7 the panel opens, its tabs too, and its form answers as one types."""
    pytest.importorskip("notebook")
    notebook = opened(PANEL, classic=True)
    page = notebook.page
    notebook.run(0)
    page.get_by_text("No queued resources.").wait_for()
    notebook.button("New…").click()
    page.get_by_text("16 chips · 4 workers").wait_for()
    notebook.shoot("notebook_7")
    notebook.tab("Plan").click()
    page.locator(".msnb-inktext").first.wait_for()
