"""Folding equal output of many workers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from multislice_nb.cluster.fold import Terminal, fold, interleave
from multislice_nb.cluster.inventory import ranks_text

ranks = st.sets(st.integers(0, 200), min_size=1)
texts = st.dictionaries(st.integers(0, 40), st.sampled_from(["", "a", "b\nc", "d"]), min_size=1)


@given(ranks)
def test_ranks_text_can_be_read_back(chosen: set[int]) -> None:
    """Every rank is named once and no other is."""
    named: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", ranks_text(chosen)):
        run = set(range(int(first), int(last or first) + 1))
        assert not named & run
        named |= run
    assert named == chosen


def test_ranks_text_says_all() -> None:
    """All of several workers are called all; a lone worker is called by its rank."""
    assert ranks_text(range(16), total=16) == "all 16"
    assert ranks_text([0], total=1) == "rank 0"
    assert ranks_text([0, 1, 3], total=4) == "ranks 0-1, 3"


@given(texts)
def test_fold_loses_nothing_and_repeats_nothing(by_rank: dict[int, str]) -> None:
    """Each distinct text appears once, with as many ranks as printed it."""
    rows = fold(by_rank, total=len(by_rank))
    assert sorted(text for _, text in rows) == sorted(set(by_rank.values()))


def members(who: str, total: int) -> set[int]:
    """The ranks that a caption names."""
    if who == f"all {total}":
        return set(range(total))
    runs = re.findall(r"(\d+)(?:-(\d+))?", who)
    return {rank for first, last in runs for rank in range(int(first), int(last or first) + 1)}


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=8), min_size=1, max_size=6))
def test_interleave_gives_every_worker_its_lines_back(printed: list[list[str]]) -> None:
    """Read by one worker's rank, the merged lines are what it printed, in order."""
    texts = {rank: "\n".join(lines) for rank, lines in enumerate(printed)}
    rows = interleave(texts, total=len(printed))
    for rank, lines in enumerate(printed):
        seen = [
            line for who, block in rows if rank in members(who, len(printed)) for line in block.splitlines()
        ]
        assert seen == lines


def test_interleave_gathers_what_all_print() -> None:
    """Lines that all print are shown once, around those that single workers print."""
    texts = {rank: f"start\nI am {rank}\ndone" for rank in range(3)}
    assert interleave(texts, total=3) == [
        ("all 3", "start"),
        ("rank 0", "I am 0"),
        ("rank 1", "I am 1"),
        ("rank 2", "I am 2"),
        ("all 3", "done"),
    ]


@given(st.lists(st.text(alphabet="ab\r\n", max_size=8)))
def test_terminal_does_not_depend_on_how_a_stream_is_cut(pieces: list[str]) -> None:
    """Text written in pieces and text written at once look the same."""
    whole, cut = Terminal(), Terminal()
    whole.write("".join(pieces))
    for piece in pieces:
        cut.write(piece)
    assert whole.text == cut.text


@given(st.text(alphabet="abc \n", max_size=50))
def test_terminal_keeps_plain_text(text: str) -> None:
    """Without carriage returns, nothing changes."""
    terminal = Terminal()
    terminal.write(text)
    assert terminal.text == text


def test_terminal_shows_a_progress_bar_once() -> None:
    """A carriage return overwrites its line, as tqdm means it to."""
    terminal = Terminal()
    terminal.write("  0%|    |\r 50%|##  |\r100%|####|\ndone\n")
    assert terminal.text == "100%|####|\ndone\n"


def test_terminal_tail_counts_what_it_hides() -> None:
    """A short view says how many lines stand above it, and the whole is whole."""
    terminal = Terminal()
    for i in range(5000):
        terminal.write(f"{i}\n")
    assert terminal.tail(2) == "… 4 998 lines above\n4998\n4999\n"
    assert terminal.text == "".join(f"{i}\n" for i in range(5000))
