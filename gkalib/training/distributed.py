"""The processes of a run: what each computes, how they agree, who may write, and what stops them."""

import atexit
import itertools
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")
PATIENCE = timedelta(days=30)  # with which the others wait for what the main process does alone
LOCK, HOLDER = ".lock", ".holder"  # a locked file cannot be read everywhere: another says who has it
_FIRSTS = itertools.count()  # every process asks for the same ones in the same order


def start(device: str | None = None) -> "Processes":
    """This process's place among those that ``torchrun`` started, or alone without it.

    Args:
        device: ``cpu`` or ``cuda``; None takes the GPU where there is one. Processes talk through gloo about
            what is on the CPU and through NCCL about what is on GPUs.

    Raises:
        ValueError: if there is no such device, or fewer GPUs than processes on this machine.
    """
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"train: the device must be cpu or cuda, not {kind!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("train: no GPU can be reached from here; --device cpu computes without one")
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if kind == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"train: process {local_rank} of this machine has no GPU of its own: there are "
                f"{torch.cuda.device_count()}; launch as many processes (--nproc-per-node)"
            )
        torch.cuda.set_device(local_rank)
    place = torch.device(kind, local_rank) if kind == "cuda" else torch.device("cpu")
    if "RANK" not in os.environ:
        return Processes(0, 1, place)
    if not dist.is_initialized():
        dist.init_process_group(backend="gloo" if kind == "cpu" else "cpu:gloo,cuda:nccl")
        # Several runs may follow one another in a process, so the group lasts as long as it does.
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size(), place)


def wrap(processes: "Processes", model: nn.Module, *, compiled: bool) -> nn.Module:
    """The module to call in training, whose gradients are averaged over the processes.

    Args:
        processes: the processes.
        model: on its device.
        compiled: whether it goes through ``torch.compile``.

    References:
        Li et al., PyTorch distributed, 2020. Chapter 22 uses it.
    """
    if processes.size > 1:
        ids = None if processes.device.type == "cpu" else [processes.device]
        model = DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False)
    return torch.compile(model) if compiled else model  # pyright: ignore[reportReturnType]


@final
@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them.

    Args:
        rank: this process's number, from 0.
        size: how many there are.
        device: what this one computes on.

    Chapter 22 uses it.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def share(self, parts: int) -> range:
        """The parts of a step that this process computes: every ``size``-th from its own number."""
        if parts % self.size:
            raise ValueError(
                f"train: {self.size} processes cannot share the {parts} parts of a step evenly (a step has "
                "batch / device_batch parts). Set --device-batch so that the parts are a multiple of "
                f"{self.size}"
            )
        return range(self.rank, parts, self.size)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in each of them."""
        tensor = tensor.detach().to(self.device)
        if self.size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def most(self, number: int) -> int:
        """The largest of the processes' numbers. It does not wait for the GPU."""
        if self.size == 1:
            return number
        largest = torch.tensor(number)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest)

    def first(self, action: Callable[[], object]) -> None:
        """Let the main process do something while the others wait, however long it takes.

        What it does may outlast the time after which a group of processes gives up a message: a large text is
        prepared for hours. So the others wait for a note that it leaves where the processes met.

        Raises:
            ValueError: in every process, if it raises one in the main process.
        """
        note, problem = f"gkalib/first/{next(_FIRSTS)}", ""
        if self.main:
            try:
                action()
            except ValueError as error:
                problem = str(error)
        if self.size > 1:
            store = _get_default_store()
            if self.main:
                store.set(note, problem)
            store.wait([note], PATIENCE)
            problem = store.get(note).decode()
        if problem:
            raise ValueError(problem)

    def in_turn(self, make: Callable[[], T]) -> T:
        """What each process makes, the main one first: what it fetches and prepares is then there for all."""
        results: list[T] = []
        self.first(lambda: results.append(make()))
        return results[0] if results else make()


@contextmanager
def stop_signals(*, catch: bool = True) -> Iterator[list[int]]:
    """SIGTERM, or SIGINT once, is put into the list inside; the second does what it did before.

    Args:
        catch: whether to catch them; if not, the list stays empty.
    """
    caught: list[int] = []
    handlers: dict[int, Any] = {}
    process = os.getpid()

    def on_signal(number: int, _: object) -> None:
        signal.signal(number, handlers[number])
        if os.getpid() == process:
            caught.append(number)
        elif number == signal.SIGTERM:  # a child that inherited this; the terminal's SIGINT is its parent's
            os.kill(os.getpid(), number)

    if catch and threading.current_thread() is threading.main_thread():  # no other can catch them
        for number in (signal.SIGTERM, signal.SIGINT):
            handlers[number] = signal.signal(number, on_signal)
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def lock_folder(folder: Path) -> FileLock:
    """Make a folder this process's, until the lock is released or the process ends, however it ends.

    No child of this process keeps the lock when this process is gone.

    Raises:
        ValueError: if another process has the folder, which the message names, or it cannot be made.
    """
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        (folder / HOLDER).write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
    except Timeout:
        path = folder / HOLDER
        holder = path.read_text(encoding="utf-8") if path.exists() else "another process"
        raise ValueError(
            f"train: {folder} is being written to by {holder}. Wait for it, stop it, or choose another "
            "folder with --out"
        ) from None
    except OSError as error:
        lock.release()
        raise ValueError(f"train: {folder} cannot be written to: {error.strerror}") from None
    return lock
