"""The panel as people see it: in JupyterLab, in a browser, on the emulator."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.widgets.labdriver import Lab

PANEL = "%load_ext multislice_nb\n%multislice connect\n%multislice panel"
POLLER = (
    "from multislice_nb.widgets.poller import poller_of\nfrom multislice_nb.widgets.session import current\n"
    "poller = poller_of(current())\n"
)


@pytest.mark.timeout(150)
def test_the_whole_way(opened: Callable[..., Any], pictures: Path) -> None:
    """Create with the form, watch to ACTIVE, attach, run a cell on all workers, interrupt one, delete with confirm."""
    notebook = opened(
        PANEL,
        "%%multislice\nimport jax\njax.device_count()",
        "%%multislice\nimport time\nprint('begun')\nwhile True: time.sleep(0.1)",
        "'the kernel is free'",
    )
    page = notebook.page
    notebook.run(0)
    notebook.button("New…").click()
    page.get_by_label("Name", exact=True).fill("bad name")
    page.get_by_label("Accelerator type").fill("v4-18")
    page.get_by_label("Accelerator type").press("Tab")
    page.get_by_text("Nearest: v4-16, v4-32.").wait_for()
    page.get_by_text("'bad name' is not allowed").wait_for()
    assert notebook.button("Create").is_disabled()
    page.screenshot(path=pictures / "form_faults.png")
    page.get_by_label("Name", exact=True).fill("demo")
    page.get_by_label("Accelerator type").fill("v4-16")
    page.get_by_label("Accelerator type").press("Tab")
    page.get_by_text("16 chips · 4 workers").wait_for()
    page.get_by_text("gcloud compute tpus queued-resources create demo").wait_for()
    page.screenshot(path=pictures / "form.png")
    notebook.button("Create").click()
    notebook.told("demo was asked for").wait_for()
    page.locator(".msnb-chosen", has_text="ACTIVE").wait_for()
    notebook.button("Attach").click()
    notebook.told("4 of 4 workers ready").wait_for()
    notebook.run(1)
    assert "[all 4] 16" in notebook.output(1).inner_text()
    notebook.start(2)
    notebook.output(2).get_by_text("begun").wait_for()
    page.screenshot(path=pictures / "running.png")
    page.get_by_role("button", name="Interrupt the kernel").click()
    notebook.output(2).get_by_text("Interrupted: the cell was stopped on the workers of demo").wait_for()
    notebook.tab("Workers").click()
    page.get_by_text("begun").last.wait_for()
    page.screenshot(path=pictures / "workers.png")
    notebook.tab("Run").click()
    page.locator(".msnb-editor textarea").fill(
        "import time, jax\ntime.sleep(1.5)\nprint('from', jax.process_index())"
    )
    notebook.button("Run on all workers").click()
    notebook.run(3)
    assert notebook.button("Interrupt").last.is_enabled(), "the kernel answers while the panel's cell runs"
    notebook.told("demo: done on 4 workers").wait_for()
    page.locator(".msnb-log", has_text="from 3").wait_for()
    notebook.tab("Queued resources").click()
    notebook.button("Delete…").click()
    page.get_by_text("Delete demo (2 slices, 4 workers, 16 chips) and everything that runs on it?").wait_for()
    page.screenshot(path=pictures / "confirm.png")
    notebook.button("Keep").click()
    notebook.button("Delete…").click()
    notebook.button("Delete demo").click()
    notebook.told("demo deleted · 4 workers, 16 chips released").wait_for()
    page.get_by_text("No queued resources.").wait_for()


def test_plans_land_on_valid_products(opened: Callable[..., Any]) -> None:
    """The planner shows intensity against the threshold and the advice, and sliders change them."""
    notebook = opened(PANEL)
    notebook.run(0)
    notebook.tab("Plan").click()
    page = notebook.page
    page.get_by_text("44,000 of 22,000 FLOPs per bit (2.00 x): DCN is hidden with margin").wait_for()
    slider = page.locator(".widget-slider, .jupyter-widgets.widget-inline-hbox", has_text="Tokens per slice")
    handle = slider.locator(".noUi-handle").first
    handle.focus()
    for _ in range(3):
        handle.press("ArrowLeft")
    page.get_by_text("DCN slows training down").wait_for()


def test_a_sweep_is_explored_and_kept(opened: Callable[..., Any], lab: Lab) -> None:
    """A results file becomes a chart by choices, and the chart becomes output that is saved with the notebook."""
    rows = [
        {
            "key": f"{name}{batch}",
            "status": "ok",
            "strategy": name,
            "batch_per_device": batch,
            "step_seconds": 0.1,
        }
        | {"tflops_per_chip": batch * scale, "spread": 0.02, "embedding": 256, "layers": 4}
        for name, scale in (("fsdp", 1e-4), ("<img src=x onerror=alert(1)>", 5e-5))
        for batch in (64, 128, 256)
    ]
    (lab.folder / "explored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notebook = opened(PANEL)
    alerts: list[Any] = []

    def noted(dialog: Any) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    notebook.page.on("dialog", noted)
    notebook.run(0)
    notebook.tab("Sweep").click()
    notebook.page.locator("img.widget-image").wait_for()
    notebook.page.get_by_label("Up", exact=True).select_option("step_seconds")
    notebook.button("Keep chart").click()
    notebook.output(0).locator("img[src^='data:image/png']").wait_for()
    assert alerts == []


def test_the_panel_in_the_dark(opened: Callable[..., Any]) -> None:
    """In the dark theme text is light on dark ground, by JupyterLab's own colours."""
    notebook = opened(PANEL, dark=True)
    notebook.run(0)
    notebook.page.get_by_text("No queued resources.").wait_for()
    notebook.button("New…").click()
    notebook.page.get_by_text("16 chips · 4 workers").wait_for()
    colour = notebook.page.locator(".msnb-facts").evaluate("element => getComputedStyle(element).color")
    assert all(int(part) > 180 for part in re.findall(r"\d+", colour)[:3]), colour


def test_one_poller_for_all_panels_and_none_without(opened: Callable[..., Any]) -> None:
    """Two panels share one poller, which stops when both are closed and starts again with the next."""
    notebook = opened(
        PANEL,
        "%multislice panel",
        POLLER + "print(poller.running, len(poller._subscribers))",
        "import time\nseen = poller.looks\ntime.sleep(1.2)\nprint(poller.running, poller.looks - seen)",
        "print(poller.running, len(poller._subscribers))",
    )
    page = notebook.page
    for number in (0, 1):
        notebook.run(number)
        notebook.output(number).get_by_text("No queued resources.").wait_for()
    notebook.run(2)
    assert "True 2" in notebook.output(2).inner_text()
    page.get_by_role("menuitem", name="Edit").click()
    page.get_by_role("menuitem", name="Clear Outputs of All Cells").click()
    notebook.run(3)
    notebook.run(3)
    assert "False 0" in notebook.output(3).inner_text()
    notebook.run(0)
    notebook.output(0).get_by_text("No queued resources.").wait_for()
    notebook.run(4)
    assert "True 1" in notebook.output(4).inner_text()


def test_a_thousand_workers_stay_readable(opened: Callable[..., Any]) -> None:
    """A grid of 1024 workers fits the panel's width, each worker with its name."""
    notebook = opened(
        "from IPython.display import HTML, display\n"
        "from multislice_nb.widgets.snapshot import ClusterLook, Snapshot, WorkerLook\n"
        "from multislice_nb.widgets.tables import static_html\n"
        "states = {5: 'lost', 700: 'PREEMPTED'}\n"
        "workers = tuple(WorkerLook(r, r // 64, r % 64, f'big-{r // 64}', '10.0.0.1', states.get(r, 'ready')) for r in range(1024))\n"
        "display(HTML(static_html(Snapshot(connection='a', clusters=(ClusterLook('big', '16 x v4-512', workers),)))))"
    )
    notebook.run(0)
    assert notebook.page.locator(".msnb-cells svg").count() == 1024
    assert notebook.page.get_by_text("slice 15 · 960–1023").is_visible()
    width = notebook.page.locator(".msnb-grid").evaluate(
        "element => element.scrollWidth <= element.clientWidth"
    )
    assert width


def test_markup_from_elsewhere_is_text(opened: Callable[..., Any]) -> None:
    """What the API, a node or a worker says is shown as text: no markup of theirs becomes part of the page."""
    notebook = opened(
        "import warnings; warnings.simplefilter('ignore')\n"
        "from multislice_nb.cloud import QueuedResourceStatus, NodeStatus, Endpoint\n"
        "from multislice_nb.widgets.snapshot import ClusterLook, Snapshot, WorkerLook\n"
        "from multislice_nb.widgets.outcome import Desk\nfrom multislice_nb.widgets.loop import KernelLoop\n"
        "from multislice_nb.widgets.resources import Resources\nfrom multislice_nb.widgets.workers import Workers\n"
        "from multislice_nb.widgets.session import Session\nimport ipywidgets\n"
        'bad = \'<img src=x onerror="document.title=`owned`"><script>document.title="owned"</script>\'\n'
        "status = QueuedResourceStatus(name=bad, state=bad, error=bad, zone=bad, accelerator_type=bad, capacity=bad)\n"
        "node = NodeStatus(node_id=bad, slice_id=0, state=bad, health=bad, accelerator_type=bad, endpoints=(Endpoint(bad),))\n"
        "worker = WorkerLook(0, 0, 0, bad, bad, bad)\n"
        "snapshot = Snapshot(bad, (status,), {bad: (node,)}, {}, (ClusterLook(bad, bad, (worker,)),), bad)\n"
        "desk = Desk(KernelLoop(), lambda: None)\ndesk.note(bad, magic=bad)\n"
        "tabs = Resources(Session(), desk), Workers(Session())\n"
        "for tab in tabs: tab.show(snapshot)\n"
        "tabs[0].delete.click()\n"
        "ipywidgets.VBox([*(tab.view for tab in tabs), desk.view])",
        "from multislice_nb.widgets.tables import static_html\nfrom IPython.display import HTML\nHTML(static_html(snapshot))",
    )
    notebook.run(0)
    notebook.run(1)
    notebook.page.get_by_text("<img src=x").first.wait_for()
    assert notebook.page.locator(".msnb img, .msnb script").count() == 0
    assert notebook.page.title() != "owned"


def test_it_comes_back_after_a_kernel_restart(opened: Callable[..., Any]) -> None:
    """After a restart of the kernel the same cell opens the panel again, with what is there."""
    notebook = opened(
        PANEL, "%multislice create kept --accelerator-type v4-8 --wait", "%multislice delete kept"
    )
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    page.get_by_role("button", name="Restart the kernel", exact=True).click()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.locator(".jp-Dialog").wait_for(state="detached")
    notebook.idle()
    notebook.run(0)
    notebook.output(0).locator(".msnb-chosen", has_text="kept").wait_for()
    notebook.run(2)
    notebook.output(0).get_by_text("No queued resources.").wait_for()


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
    notebook.button("Cancel…").click()
    page.get_by_text("End endless (v4-8) on all its workers?").wait_for()
    notebook.button("Cancel it").click()
    notebook.told("endless ends; its logs and results are kept.").wait_for()
    page.locator(".msnb-chosen", has_text="cancelled").wait_for()
