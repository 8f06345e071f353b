"""Compiles request after request in one process: `python compiler_process.py`, for tests that compile a lot.

Loading JAX and libtpu takes longer than compiling a small program. Each line of standard input names a file with a
pickled request and one for the answer; a line is printed when that is there.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

from multislice_nb.sharding import compiling

if __name__ == "__main__":
    for line in sys.stdin:
        asked, answered = map(Path, json.loads(line))
        request = pickle.loads(asked.read_bytes())  # noqa: S301 - of the test that started this
        answered.write_text(json.dumps(compiling._answer(request)))
        print("done", flush=True)
