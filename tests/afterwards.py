"""Waits beside a run of the tests until it is gone, then kills all that it started, in any session.

Whatever the run started has the run's number in its environment.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


def living(mark: bytes) -> list[int]:
    """The processes that were started with that word in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if mark in words:
            found.append(int(process.name))
    return found


if __name__ == "__main__":
    tests = int(sys.argv[1])
    while os.getppid() == tests:
        time.sleep(0.2)
    while left := living(b"STARTED_BY_TESTS=%d" % tests):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
