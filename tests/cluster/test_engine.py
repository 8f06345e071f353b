"""The process that sees an engine end."""

from __future__ import annotations

import os
import signal

from multislice_nb.cluster import engine


def test_what_a_stopped_engine_does_next_is_seen() -> None:
    """Whether it goes on or is killed where it stands, its parent learns that, and once."""
    child = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    for number, seen in ((signal.SIGCONT, os.WIFCONTINUED), (signal.SIGKILL, os.WIFSIGNALED)):
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        os.kill(child, number)
        status = engine._after_stop(child)
        assert status is not None
        assert seen(status)
