from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("jupyter_client")


class Kernel:
    """A real kernel, spoken to as a front end does."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, code: str, *, watched: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell; the reply's content and what was published meanwhile."""
        published: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(
            code, allow_stdin=watched, stdin_hook=lambda _: None, output_hook=published.append, timeout=60
        )
        return reply["content"], published

    def ask(self, kind: str, code: str, position: int | None = None) -> dict[str, Any]:
        """A complete or inspect request at a place of a cell, or at its end; the reply's content."""
        self_ = getattr(self.client, kind)(code, len(code) if position is None else position)
        while True:
            reply = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == self_:
                return dict(reply["content"])


@pytest.fixture(scope="module")
def kernel(emulator_home: Path) -> Iterator[Kernel]:
    """With the extension loaded and connected to the emulator."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=os.environ | {"MULTISLICE_NB_HOME": str(emulator_home)})
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    made = Kernel(client)
    made.run("%load_ext multislice_nb")
    made.run("%multislice connect --emulator")
    yield made
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def texts(published: list[dict[str, Any]], kind: str) -> list[str]:
    """What messages of a kind show as text."""
    return [m["content"]["data"]["text/plain"] for m in published if m["msg_type"] == kind]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%multislice des", ["describe"]),
        ("%multislice create demo --accelerator-ty", ["--accelerator-type"]),
        ("%multislice create demo --accelerator-type v5litepod-3", ["v5litepod-32"]),
        ("x = 1\nqr = %multislice create demo --runtime-v", ["--runtime-version"]),
        ("%multislice sweep --strategies fsdp+t", ["fsdp+tensor"]),
        ("%%multislice --group", ["--group-outputs"]),
    ],
)
def test_tab_completes_through_the_kernel(kernel: Kernel, code: str, expected: list[str]) -> None:
    """A complete_request is answered with the table's words alone, replacing the word that was begun."""
    reply = kernel.ask("complete", code)
    assert reply["matches"] == expected
    completed = code[: reply["cursor_start"]] + expected[0]
    assert completed.startswith(code)


def test_the_question_mark_shows_the_overview(kernel: Kernel) -> None:
    """An inspect_request on the magic is answered with all subcommands."""
    reply = kernel.ask("inspect", "%multislice")
    assert reply["found"]
    assert "Ask for slices: a queued resource." in reply["data"]["text/plain"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("%multislice cre|ate demo", "Usage: %multislice create"),
        ("x = 1\nqr = %multislice create demo --node-cou|nt 2", "  --node-count NODE_COUNT"),
        ("%multislice create demo --node-count 2|", "  --node-count NODE_COUNT"),
        ("%multislice create demo \\\n  --spot|", "  --spot"),
        ("%multislice experiment 03 -p embedding 256|", "  -p, --parameter KEY VALUE"),
        ("%multislice job| submit", "Usage: %multislice job {"),
        ("%multislice job submit|", "Usage: %multislice job submit"),
        ("%%multislice --ranks| 0\n1", "  --ranks, --targets, -t RANKS"),
        ("%%multislice sh|\nls", "Usage: %multislice sh"),
    ],
)
def test_a_word_of_a_line_is_explained(kernel: Kernel, code: str, said: str) -> None:
    """An inspect_request on a subcommand is answered with its help, and on a flag or its value with the flag's first."""
    reply = kernel.ask("inspect", code.replace("|", ""), code.index("|"))
    assert reply["found"]
    assert reply["data"]["text/plain"].startswith(said)


def test_other_words_are_still_explained_by_ipython(kernel: Kernel) -> None:
    """Python's own names are, also below `%%multislice` and in a line's `{}`; a wrong subcommand is not found."""
    kernel.run("countable = 12345")
    for code in ("countable", "%%multislice\ncountable", "%multislice create x --node-count $countable"):
        assert "12345" in kernel.ask("inspect", code)["data"]["text/plain"], code
    assert not kernel.ask("inspect", "%multislice creat")["found"]


def test_a_question_mark_after_a_subcommand_shows_its_help(kernel: Kernel) -> None:
    """`%multislice create?` is `%multislice create --help`; after other words IPython looks for them as ever."""
    for code, said in (
        ("%multislice create?", "%multislice create"),
        ("%multislice job ?", "%multislice job {"),
    ):
        _, published = kernel.run(code)
        assert texts(published, "execute_result")[0].startswith(f"Usage: {said}")
    _, published = kernel.run("%multislice nothing?")
    assert texts(published, "execute_result") == []


def test_waiting_is_one_output_that_changes(kernel: Kernel) -> None:
    """Where somebody watches, waiting publishes one output and updates it, and the handle is displayed once."""
    reply, published = kernel.run("%multislice create seen --accelerator-type v4-8 --wait")
    assert reply["status"] == "ok"
    assert len(texts(published, "display_data")) == 1
    last = texts(published, "update_display_data")[-1]
    assert last.startswith("WAITING_FOR_RESOURCES")
    assert last.endswith("→ ACTIVE")
    assert len(texts(published, "execute_result")) == 1
    assert [m for m in published if m["msg_type"] == "stream"] == []


def test_without_a_watcher_each_state_is_a_line(kernel: Kernel) -> None:
    """For papermill and its like, nothing is updated: each state is printed once."""
    _, published = kernel.run("%multislice create unseen --accelerator-type v4-8 --wait", watched=False)
    streamed = "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream")
    assert streamed.splitlines() == ["unseen WAITING_FOR_RESOURCES", "unseen PROVISIONING", "unseen ACTIVE"]
    assert texts(published, "update_display_data") == []


def test_a_wrong_word_fails_the_cell(kernel: Kernel) -> None:
    """The reply is an error with our class and two sentences, which no notebook runner lets pass."""
    reply, _ = kernel.run("%multislice creat x")
    assert reply["status"] == "error"
    assert reply["ename"] == "MagicError"
    assert "Did you mean %multislice create?" in reply["traceback"][0]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("%%multislice", "nothing to run"),
        ("%%multislice --ranks 0\n", "nothing to run"),
        ("%%multislice\n   \n", "nothing to run"),
        ("%%multislice list", "has no subcommand list"),
        ("%%multislice --rnaks 0\n1", "Did you mean --ranks?"),
        ("%%multislice sh", "needs COMMAND"),
        ("%%multislice -o class\n1", "cannot be 'class'"),
        ("%multislice 'open", "cannot be read"),
        ("x = %multislice nothing", "no subcommand 'nothing'"),
        ("%multislice delete {", "no queued resource"),
    ],
)
def test_every_mistake_fails_the_cell_with_an_error_of_ours(kernel: Kernel, code: str, said: str) -> None:
    """An empty cell too ends in our error and not in IPython's UsageError, after which runners go on."""
    reply, _ = kernel.run(code)
    assert reply["status"] == "error"
    assert reply["ename"] in {"MagicError", "NotFoundError"}
    assert said in reply["traceback"][0]


def test_help_of_the_cell_magic_needs_no_cell(kernel: Kernel) -> None:
    """`%%multislice --help` alone in a cell shows its flags."""
    _, published = kernel.run("%%multislice --help")
    assert "--ranks" in texts(published, "execute_result")[0]


def test_variables_are_put_into_lines_only(kernel: Kernel) -> None:
    """`$name` and `{expression}` are replaced in a line, and stay as they are in a cell's body."""
    kernel.run("kind, count = 'v4-8', 1")
    _, published = kernel.run(
        "%multislice create x --accelerator-type $kind --node-count {count + 1} --dry-run"
    )
    assert "2 x v4-8" in texts(published, "execute_result")[0]
    _, published = kernel.run(
        "%%multislice create --dry-run\n" + "gcloud compute tpus queued-resources create "
        'body --accelerator-type=v4-8 --description="{count} $kind" --runtime-version=tpu-ubuntu2204-base'
    )
    shown = texts(published, "execute_result")[0]
    assert "{count} v4-8" in shown  # $kind is the shell's notation in a pasted command, {count} is nobody's


def test_settings_of_the_magics_are_shown_and_set(kernel: Kernel) -> None:
    """`%config MultisliceMagics` lists them with their help, and what is set there counts."""
    _, published = kernel.run("%config MultisliceMagics")
    shown = "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream")
    assert "MultisliceMagics.progress" in shown
    assert "Default of --timeout" in shown
    kernel.run("%config MultisliceMagics.progress = 'lines'")
    _, published = kernel.run("%multislice create printed --accelerator-type v4-8 --wait")
    kernel.run("%config MultisliceMagics.progress = 'auto'")
    kernel.run("%multislice delete printed")
    assert texts(published, "display_data") == []


def test_names_of_queued_resources_are_offered(kernel: Kernel) -> None:
    """What was created is completed without a listing in between."""
    assert {"seen", "unseen"} <= set(kernel.ask("complete", "%multislice delete ")["matches"])
    _, published = kernel.run("%multislice delete seen unseen")
    assert "seen deleted" in texts(published, "execute_result")[0]
    assert "seen" not in kernel.ask("complete", "%multislice delete ")["matches"]


SWEEP = """
import multislice_nb as ms, tempfile, pathlib
with tempfile.TemporaryDirectory() as folder, ms.experiments.LocalCluster(2) as here:
    done = ms.sweep("fsdp", [8, 16, 32], embedding=16, layers=1, steps=2, cluster=here, path=pathlib.Path(folder) / "r")
"""


def test_a_watched_sweep_is_a_line_and_a_chart(kernel: Kernel) -> None:
    """Two outputs that are replaced, at most five times a second; the last picture stays, and no widget is made."""
    reply, published = kernel.run(SWEEP)
    assert reply["status"] == "ok"
    shown = [m for m in published if m["msg_type"] in {"display_data", "update_display_data"}]
    made = [m["content"] for m in shown if m["msg_type"] == "display_data"]
    assert ["image/png" in one["data"] for one in made] == [False, True]
    places = [one["transient"]["display_id"] for one in made]
    line, chart = ([m for m in shown if m["content"]["transient"]["display_id"] == one] for one in places)
    assert "3 configurations · 3 done" in line[-1]["content"]["data"]["text/plain"]
    assert len(chart) <= len(line) <= 4
    assert not [m for m in published if m["msg_type"] == "comm_open"]


def test_nobody_watches_a_sweep(kernel: Kernel) -> None:
    """Under nbclient or papermill each measurement is one printed line, and there is no picture."""
    _, published = kernel.run(SWEEP, watched=False)
    assert {m["msg_type"] for m in published} <= {"stream", "status", "execute_input"}
    printed = "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream")
    assert [line.split(":")[0] for line in printed.splitlines()] == [
        f"{n}/3 fsdp batch {batch}" for n, batch in enumerate((8, 16, 32), 1)
    ]
