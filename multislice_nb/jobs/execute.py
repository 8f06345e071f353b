"""Execute a job's notebook on this worker: `python3 -m multislice_nb.jobs.execute FILE PARAMETERS`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

__all__ = ["main"]


def main(notebook: str, parameters: str) -> int:
    """Execute it, keep the executed copy among the results, and tell by the exit status how it went."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    output = Path(os.environ.get("MULTISLICE_NB_RESULTS", ".")) / "notebook.ipynb"
    try:
        papermill.execute_notebook(
            notebook,
            str(output),
            parameters=json.loads(parameters),
            kernel_name="python3",
            language="python",
            log_output=True,
            progress_bar=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
        )
    except PapermillExecutionError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
