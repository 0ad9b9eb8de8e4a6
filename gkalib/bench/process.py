"""The process of a job: started ahead, told to begin, and ended with all that it has started."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from gkalib.bench.job import PACKAGE


@final
class Process:
    """A process that imports what a call needs and waits with the call itself for the word.

    Args:
        call: ``"module:function"``.
        arguments: of the call, beside ``device``.
        device: ``"cuda"`` or ``"cpu"``.
        store: where the call saves results.
        threads: of its arithmetic and its compilers; those of the machine where not given.
    """

    def __init__(
        self,
        call: str,
        arguments: Mapping[str, Any],
        *,
        device: str,
        store: Path,
        threads: int | None = None,
    ):
        path = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        surroundings = {
            **os.environ,
            "GKALIB_RESULTS": str(store.resolve()),
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONUNBUFFERED": "1",
        }
        if device == "cpu":
            surroundings["TRITON_INTERPRET"] = "1"
        if threads is not None:
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
            surroundings |= dict.fromkeys(names, str(threads))
        stated = json.dumps({"call": call, "arguments": {**arguments, "device": device}})
        command = [sys.executable, "-c", "from gkalib.bench.job import perform; perform()", stated]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  it lives as long as the process
        # A group, so that the processes it starts end with it; no session, so that it ends with its caller's.
        self._process = subprocess.Popen(
            command,
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._start, self._limit = time.monotonic(), float("inf")

    def begin(self, limit: float) -> None:
        """Let it call what it waits with; it may take so many seconds."""
        self._start, self._limit = time.monotonic(), limit
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it failed to import: its status says so
            self._process.stdin.write(b"\n")
            self._process.stdin.close()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._start

    def wait(self, seconds: float) -> str | None:
        """How it ended, or None if it still runs after so many seconds."""
        left = self._limit - self.seconds
        if left <= 0:
            return f"stopped at its limit of {self._limit:.0f} s"
        try:
            status = self._process.wait(min(left, seconds))
        except subprocess.TimeoutExpired:
            return None
        return "done" if status == 0 else f"failed with status {status}"

    def close(self) -> str:
        """End it, and what it left behind; what it printed."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        with self._log:
            self._log.seek(0)
            return self._log.read()
