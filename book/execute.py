"""Execute chapters: text -> cells, a fresh kernel -> outputs, and a stamp that says what was run."""

import argparse
import ast
import asyncio
import datetime
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  builds its cache here: the notice would land in a chapter
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from pairs import ROOT, check, code_hash, outputs_hash, paths, read_text, record_hash, slugs, write_set_up

SECONDS = 60.0  # on two quiet cores
BYTES = int(1.5 * 2**20)
THREADS = 2

# Notes which records a chapter reads, whichever way it opens them.
_BEFORE = """
_records = set()
def _note(event, arguments):
    if event == "open" and str(arguments[0]).endswith("run.json"):
        _records.add("/".join(str(arguments[0]).replace("\\\\", "/").split("/")[-3:-1]))
__import__("sys").addaudithook(_note)
"""
_AFTER = {
    "records": "sorted(_records)",
    "asked": "sorted(getattr(__import__('sys').modules.get('gkalib.results.store'), 'ASKED', ()))",
    # The high-water mark of the kernel alone: getrusage would start at the parent's, from before the exec.
    "peak": r"__import__('re').search(r'VmHWM:\s+(\d+)', open('/proc/self/status').read()).group(1)",
    # Its own work and that of processes that it waited for; with these, less than the clock where others run.
    "work": "sum(__import__('os').times()[:4])",
    "python": "__import__('platform').python_version()",
    "torch": "__import__('importlib.metadata').metadata.version('torch')",
}


def environment() -> dict[str, str]:
    """The kernel's environment: at most two threads, and the library importable without installing it.

    Whether Triton's interpreter is on is for the chapter to say, whoever runs it.
    """
    threads = str(min(THREADS, os.cpu_count() or 1))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    around = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return {
        **around,
        **dict.fromkeys(names, threads),
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",
    }


async def run(
    notebook: NotebookNode,
    root: Path,
    *,
    settings: Mapping[str, str] | None = None,
    go_on=False,
) -> dict:
    """Execute a notebook's cells in a fresh kernel, in place, and return what its stamp says of that.

    Args:
        notebook: its outputs are replaced.
        root: of the book; cells run in its ``chapters``.
        settings: what the kernel's environment has beside ``environment()``.
        go_on: whether to go on after a cell that fails; its error is an output then.
    """
    manager = AsyncKernelManager(kernel_name="python3")
    # A kernel specification installed elsewhere may name another interpreter: take this one.
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.kernel_spec.argv.append("--IPKernelApp.log_level=40")  # it warns of loopback without encryption
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=600,
        allow_errors=go_on,
        coalesce_streams=True,  # on a busy machine a cell's lines arrive in pieces
        resources={"metadata": {"path": root / "chapters"}},
    )
    around = {**environment(), **(settings or {})}
    async with client.async_setup_kernel(env=around, cwd=str(root / "chapters"), cleanup_kc=True):
        await client.kc.execute(_BEFORE, silent=True, reply=True, timeout=600)
        start = time.perf_counter()
        for index, cell in enumerate(notebook.cells):
            await client.async_execute_cell(cell, index)
        seconds = time.perf_counter() - start
        reply = await client.kc.execute("", silent=True, user_expressions=_AFTER, reply=True, timeout=60)
    found = reply["content"]["user_expressions"]
    after = {
        name: ast.literal_eval(one["data"]["text/plain"])
        for name, one in found.items()
        if one["status"] == "ok"
    }
    return {
        "records": {run: record_hash(root, run) for run in after["records"]},
        "asked": after["asked"],
        "seconds": round(min(seconds, after["work"]), 1),  # the clock's, or on a busy machine the work
        "peak_mib": round(int(after["peak"]) / 1024) if "peak" in after else None,
        "versions": {name: after[name] for name in ("python", "torch") if name in after},
    }


def clean(notebook: NotebookNode, root: Path) -> None:
    """Remove what belongs to the machine: paths, widget state and the times of cells."""
    notebook.metadata.pop("widgets", None)
    places = {
        str(root): ".",
        str(ROOT): ".",
        sys.prefix: "python",
        sys.base_prefix: "python",
        str(Path.home()): "~",
    }
    # A prefix such as /usr is too short to be anyone's: it would spoil other words.
    places = {place: name for place, name in places.items() if len(place) > 4}

    def shorten(value):
        if isinstance(value, str):
            for place in sorted(places, key=len, reverse=True):
                value = value.replace(place, places[place])
            return re.sub(r"/[\w/.-]*ipykernel_\d+/\d+\.py", "<cell>", value)
        if isinstance(value, list):
            return [shorten(one) for one in value]
        if isinstance(value, dict):
            return NotebookNode({key: shorten(one) for key, one in value.items()})
        return value

    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [shorten(output) for output in cell.outputs]


def execute(slug: str, *, root: Path = ROOT) -> dict:
    """Run a chapter and store its outputs and stamp; return the stamp.

    Raises:
        ValueError: when a cell writes to stderr or shows a widget, or the chapter exceeds 60 s or 1.5 MiB.
        nbclient.exceptions.CellExecutionError: when a cell fails.
    """
    write_set_up(root, slug)
    notebook = read_text(root, slug)
    measured = asyncio.run(run(notebook, root))
    clean(notebook, root)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                raise ValueError(
                    f"execute: {slug}: a page has no kernel for a widget; show explore(...) itself"
                )
            if output.output_type == "stream" and output.name == "stderr":
                raise ValueError(
                    f"execute: {slug}: a cell wrote to stderr:\n{cell.source}\n---\n{output.text}"
                )
    if measured["seconds"] > SECONDS:
        raise ValueError(f"execute: {slug} took {measured['seconds']} s, more than {SECONDS:g} s")
    stamp = {
        "code": code_hash(notebook),
        "outputs": outputs_hash(notebook),
        **measured,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    notebook.metadata.setdefault("gkalib", NotebookNode())["stamp"] = stamp
    content = nbformat.writes(notebook) + "\n"
    if len(content.encode()) > BYTES:
        raise ValueError(f"execute: {slug} has {len(content.encode())} bytes, more than {BYTES}")
    paths(root, slug)[0].write_text(content, encoding="utf-8")
    return stamp


def main(arguments: list[str] | None = None) -> int:
    """Execute or check the chapters named, all of them unless told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "slugs", nargs="*", metavar="slug", help="chapters, all unless given: 01-nadaraya-watson"
    )
    parser.add_argument("--check", action="store_true", help="verify pairs and stamps, execute nothing")
    options = parser.parse_args(arguments)
    chosen = [Path(slug).stem for slug in options.slugs] or slugs(ROOT)
    if options.check:
        faults = [fault for slug in chosen for fault in check(slug)]
        print("\n".join(faults) or f"{len(chosen)} chapters: pairs and stamps agree")
        return bool(faults)
    for slug in chosen:
        stamp = execute(slug)
        print(f"{slug}: {stamp['seconds']} s, {stamp['peak_mib']} MiB, {len(stamp['records'])} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
