"""What a reader sees of a fetch: one line on where from, and a bar while the bytes arrive."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module


def say(line: str) -> None:
    """One line on the standard error stream, which a program's output is not mixed with."""
    print(f"data: {line}", file=sys.stderr, flush=True)


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of bytes: what it yields is called with how many are there.

    Without a terminal, or without the package rich, nothing is shown.

    Args:
        label: what stands before it.
        total: how many bytes there will be; None shows a bar without an end.
    """
    if not sys.stderr.isatty():
        yield lambda here: None
        return
    try:
        console, shown = import_module("rich.console"), import_module("rich.progress")
    except ModuleNotFoundError:
        yield lambda here: None
        return
    columns = (
        shown.TextColumn("{task.description}"),
        shown.BarColumn(),
        shown.DownloadColumn(),
        shown.TransferSpeedColumn(),
        shown.TimeRemainingColumn(),
    )
    with shown.Progress(*columns, console=console.Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda here: progress.update(task, completed=here)
