"""`python -m multislice_nb.widgets.painting`: the process that draws charts, one for each line that it is asked.

A line is JSON: results files, and the keywords of `explore`. The answer is a line of JSON and, unless that says what
is wrong, the picture.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from typing import BinaryIO

__all__ = ["draw", "main", "named"]

_IDLE = 60.0
"""Seconds without a question after which it ends."""


def draw(files: list[str], **choices: str) -> tuple[list[str], bytes]:
    """The groups that there are, and the chart as PNG."""
    import pandas as pd

    from multislice_nb.experiments import Results
    from multislice_nb.widgets.chart import explore

    frames = {name: Results.load(Path(file)).frame for name, file in named(files).items()}
    columns = (frame.get(choices["colour"], pd.Series()) for frame in frames.values())
    groups = list(dict.fromkeys(str(value) for column in columns for value in column.dropna()))
    return groups, explore(frames, **choices)._repr_png_()[0]  # type: ignore[arg-type]  # the form's own choices


def named(files: list[str]) -> dict[str, str]:
    """Each file by its name, with as much of its folder as tells it from the others."""
    unique = list(dict.fromkeys(files))
    parts = [Path(file).with_suffix("").parts for file in unique]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(unique):
            return dict(zip(names, unique, strict=True))
    return {file: file for file in unique}


def main(questions: int, answers: BinaryIO) -> None:
    """Answer until nobody asks any more."""
    from multislice_nb.errors import MultisliceError

    waiting = b""
    while select.select([questions], [], [], _IDLE)[0]:
        read = os.read(questions, 2**16)
        if not read:
            return
        *lines, waiting = (waiting + read).split(b"\n")
        for line in lines:
            files, choices = json.loads(line)
            picture = b""
            try:
                groups, picture = draw(files, **choices)
                answer = {"groups": groups, "bytes": len(picture)}
            except MultisliceError as error:
                answer = {"what": error.what, "fix": error.fix}
            except Exception as error:  # noqa: BLE001 - shown in the panel, which would else stand still and say nothing
                answer = {"what": f"The chart could not be drawn: {type(error).__name__}: {error}", "fix": ""}
            answers.write(json.dumps(answer).encode() + b"\n" + picture)
            answers.flush()


if __name__ == "__main__":
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    main(sys.stdin.fileno(), out)
