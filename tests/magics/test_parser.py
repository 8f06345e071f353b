from __future__ import annotations

import inspect
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.errors import MagicError
from multislice_nb.magics import parser
from multislice_nb.magics.actions import Actions
from multislice_nb.magics.arguments import ranks
from multislice_nb.magics.grammar import CELL, SUBCOMMANDS, SYNONYMS, subcommand
from multislice_nb.magics.values import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(read: Callable[[str], object], line: str) -> MagicError | None:
    """The error of a line, if it has one."""
    try:
        read(line)
    except MagicError as error:
        return error
    return None


WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=12)


@given(
    st.lists(WORDS | st.sampled_from([flag for c in SUBCOMMANDS for a in c.arguments for flag in a.flags]))
)
def test_any_line_is_understood_or_refused_as_a_magic_error(words: list[str]) -> None:
    """No line ends the process or raises anything but a MagicError that says what to do."""
    for line in (" ".join(words), "create " + shlex.join(words)):
        for read in (parser.parse, parser.parse_cell):
            error = refusal(read, line)
            assert error is None or (error.what and error.fix)


@given(
    name=st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True),
    count=st.integers(-5, 300),
    tags=st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), min_size=1),
    zone=st.sampled_from(["us-central2-b", "-"]),
    order=st.randoms(),
)
def test_flags_may_stand_in_any_order(name, count, tags, zone, order) -> None:
    """What a line says does not depend on the order of its words, nor on `=` or a blank after a flag."""
    pieces = [
        [name],
        ["--node-count", str(count)],
        [f"--tags={','.join(tags)}"],
        ["--zone", zone],
        ["--spot"],
    ]
    order.shuffle(pieces)
    call = parser.parse("create " + shlex.join(word for piece in pieces for word in piece))
    assert call.values == {"name": name, "node_count": count, "tags": tuple(tags), "zone": zone, "spot": True}


@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranks_are_read_as_they_are_written(chosen: set[int]) -> None:
    """Every set of ranks that is told in ranges is read back as that set."""
    from multislice_nb.cluster.inventory import ranks_text

    text = ranks_text(chosen).partition(" ")[2].replace(" ", "")
    assert ranks(text) == tuple(sorted(chosen))


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("creat demo", "%multislice create"),
        ("ls", "%multislice list"),
        ("run", "%%multislice"),
        ("create demo --nod-count 2", "--node-count"),
        ("create demo --accelerator_type v4-16", "--accelerator-type"),
        ("create demo --nodes 2", "--node-count"),
        ("create demo --preemptible", "--spot"),
        ("emulator stat", "status"),
        ("plot tflosp", "tflops"),
        ("help craete", "%multislice create"),
        ("job lgos train", "%multislice job logs"),
        ("jobs", "%multislice job list"),
    ],
)
def test_a_wrong_word_gets_the_right_one(line: str, meant: str) -> None:
    """A misspelt subcommand, flag or choice is answered with the one that was meant."""
    with pytest.raises(MagicError) as caught:
        parser.parse(line)
    assert f"Did you mean {meant}?" in caught.value.fix


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("create", "needs NAME"),
        ("create --zones a --zone b c", "exclude each other"),
        ("sh", "needs COMMAND"),
        ("sh --ranks 0", "needs COMMAND"),
        ("sh --rnaks 0 ls", "no flag --rnaks"),
        ("job", "needs an action"),
        ("job submit x --accelerator-type v4-8", "needs COMMAND"),
        ("create a b", "no place for 'b'"),
        ("create a --node-count two", "takes a whole number, not 'two'"),
        ("create a --spot --reserved", "exclude each other"),
        ("create a --zone", "needs a value"),
        ("experiment 05 -p", "-p of %multislice experiment needs KEY and VALUE"),
        ("create a --zone --spot", "needs a value"),
        ("create 'a", "cannot be read"),
        ("create a --labels b", "KEY=VALUE"),
        ("sweep --strategies fsdp", "--batch-sizes"),
        ("sweep --file a --local 1 --cluster b", "exclude each other"),
        ("describe --frobnicate", "describe has no flag --frobnicate"),
        ("plan --batch 8 --embeding 64", "plan has no flag --embeding"),
        ("job logs x --lines -3", "1 or more, not '-3'"),
        ("job logs x --attempt 0", "1 or more, not '0'"),
        ("logs x --tail -1", "0 or more, not '-1'"),
        ("plan --layers 0", "1 or more, not '0'"),
        ("emulator", "emulator needs {status,start,stop,env,fault}."),
        ("authorize-ssh demo", "authorize-ssh needs USER, FILE."),
        ("plan", "plan needs --accelerator-type ACCELERATOR_TYPE, --batch ROWS"),
    ],
)
def test_what_is_wrong_is_said(line: str, said: str) -> None:
    """Each kind of mistake is named in the error."""
    with pytest.raises(MagicError, match=said):
        parser.parse(line)


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("sh", "%multislice sh [FLAGS] COMMAND;"),
        ("job submit", "%multislice job submit NAME --accelerator-type ACCELERATOR_TYPE [FLAGS] COMMAND;"),
        ("describe", "%multislice describe NAME [FLAGS];"),
    ],
)
def test_what_takes_the_rest_of_the_line_is_last(line: str, usage: str) -> None:
    """A mistake's usage has the words in an order in which they can be written."""
    with pytest.raises(MagicError) as caught:
        parser.parse(line)
    assert f"Usage: {usage}" in caught.value.fix


def test_a_subcommand_after_two_percent_signs_is_explained() -> None:
    """`%%multislice list` says that a subcommand takes one percent sign."""
    with pytest.raises(MagicError) as caught:
        parser.parse_cell("list")
    assert "%multislice list" in caught.value.fix


def test_a_pasted_gcloud_line_is_understood() -> None:
    """Flags with line continuations, as people paste them, mean the same."""
    call = parser.parse("create demo \\\n  --accelerator-type=v4-16 \\\n  --node-count=2 --async")
    assert call.values["accelerator_type"] == "v4-16"
    assert call.values["node_count"] == 2


PASTED = "gcloud compute tpus queued-resources create demo --zone=us-central2-b --data-disk=source=a"


@pytest.mark.parametrize(
    "line",
    [
        f"create --wait --ttl 8h {PASTED}",
        f"create {PASTED} --ttl=8h --wait",
        f"create --ttl 8h '{PASTED}' --wait",
        "create --wait --ttl=8h " + PASTED.replace(" --", " \\\n    --"),
    ],
)
def test_our_flags_stand_around_a_pasted_command(line: str) -> None:
    """A whole gcloud command after `create` is kept as it is, flags that only we know included or not."""
    values = parser.parse(line).values
    assert " ".join(values.pop("request").split()) == PASTED
    assert values == {"wait": True, "ttl": "8h"}


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1))
def test_a_shell_command_is_handed_on_as_it_is_written(command: str) -> None:
    """Quotation marks, dashes and pipes after the flags are the shell's own."""
    call = refusal(parser.parse, f"sh --ranks 0 --timeout=5 -- {command}")
    if command.strip():
        assert call is None
        values = parser.parse(f"sh --ranks 0 --timeout=5 -- {command}").values
        assert values == {"ranks": (0,), "timeout": 5.0, "command": command.strip()}


def test_a_command_begins_at_the_first_word_that_is_no_flag() -> None:
    """What looks like a flag of ours after that belongs to the command."""
    values = parser.parse("sh --cwd 'a b' grep --ranks \"x  y\" it's").values
    assert values == {"cwd": "a b", "command": 'grep --ranks "x  y" it\'s'}
    values = parser.parse("job submit n --accelerator-type v4-8 python3 t.py --node-count 4").values
    assert values["command"] == "python3 t.py --node-count 4"


def test_a_cell_is_the_text_of_subcommands_that_take_one() -> None:
    """`%%multislice sh` and its like get their cell; a command in both places is refused."""
    assert parser.parse_cell("sh -t 1", "ls $x\n").values == {"ranks": (1,), "command": "ls $x\n"}
    assert parser.parse_cell("create --wait", PASTED).values == {"wait": True, "request": PASTED}
    assert parser.parse_cell("--ranks 1", "x").command is CELL
    with pytest.raises(MagicError, match="no place for 'ls'"):
        parser.parse_cell("sh ls", "pwd")


def test_names_with_values_are_a_dictionary() -> None:
    """`-p KEY VALUE` may be repeated, and a value may begin with a dash."""
    call = parser.parse("job submit n --accelerator-type v4-8 --notebook a.ipynb -p steps 10 -p low -1")
    assert call.values["parameters"] == {"steps": "10", "low": "-1"}


@pytest.mark.parametrize("line", ["job --help", "help job"])
def test_a_group_has_help_of_its_own(line: str) -> None:
    """Help of a first word that several subcommands share is asked for by it alone."""
    call = parser.parse(line)
    assert (call.help, call.group, call.command) == (True, "job", None)


@pytest.mark.parametrize("command", SUBCOMMANDS, ids=lambda command: command.name)
def test_every_subcommand_has_its_method(command) -> None:
    """A method of Actions takes exactly the arguments that the table gives it."""
    parameters = inspect.signature(getattr(Actions, command.method)).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    names = {argument.name for argument in (*command.arguments, *filter(None, [command.body]))}
    assert takes_any or set(parameters) - {"self"} == names
    required = {n for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    assert required - {"self"} <= {a.name for a in command.arguments if a.required}


def test_the_table_has_no_doubles() -> None:
    """Names and flags are unique, values can be looked up, and synonyms lead to subcommands that exist."""
    names = [command.name for command in SUBCOMMANDS]
    assert len(set(names)) == len(names)
    for command in (*SUBCOMMANDS, CELL):
        flags = [flag for argument in command.arguments for flag in argument.flags]
        assert len(set(flags)) == len(flags)
        assert {argument.values for argument in command.arguments} <= {*SOURCES, "files", ""}
    for word, meant in SYNONYMS.items():
        assert subcommand(word) is None
        assert meant.startswith("%%") or subcommand(meant)


def test_create_takes_every_flag_of_gcloud_that_a_request_has() -> None:
    """Each field of a request can be given by a flag of its own name, or is left out for a reason."""
    from multislice_nb.cloud import QueuedResourceRequest

    left_out = {
        "api_version",
        "data_disks",
        "workload_type",
        "autocheckpoint_enabled",
        "cidr_range",
        "min_duration",
    }
    create = subcommand("create")
    assert create is not None
    taken = {argument.name for argument in create.arguments}
    assert set(QueuedResourceRequest.__dataclass_fields__) - taken == left_out
