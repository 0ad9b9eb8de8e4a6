"""Says of this machine what another one would: how large its cache and memory are, how many cores it has."""

import builtins
import io
import os
import re
from pathlib import Path

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


def files() -> dict[str, str]:
    """What the system's files say of another machine, by their paths: caches and memory of half the size.

    Half, since what a chapter makes larger than the cache has to be larger in fact too.
    """
    said = {str(CACHE): "16384K\n"}
    memory, processor = Path("/proc/meminfo"), Path("/proc/cpuinfo")
    caches = CACHE.parents[1].glob("index*/size")
    for path in (path for path in (memory, *caches) if path.exists()):
        said[str(path)] = re.sub(r"\d+(?= kB|K)", lambda size: str(int(size[0]) // 2), path.read_text())
    if processor.exists():
        said[str(processor)] = re.sub(r"(?m)^(model name\s*: ).*", r"\1Another", processor.read_text())
    return said


def start() -> None:
    """From here on this process is told of the other machine, by the system's files and by Python."""
    said, read, stat, configured = files(), open, os.stat, os.sysconf
    cores = (os.cpu_count() or 1) + 3

    def name(file) -> str | None:
        return os.fspath(file) if isinstance(file, str | os.PathLike) else None

    def opened(file, mode="r", *arguments, **options):
        if (text := said.get(name(file))) is None:
            return read(file, mode, *arguments, **options)
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

    def found(file, **options):
        return stat(__file__ if name(file) in said else file, **options)

    def of_system(what):
        # Pages of memory, and processors by both of their names.
        if "NPROCESSORS" in str(what):
            return cores
        return configured(what) // 2 if "PAGES" in str(what) else configured(what)

    builtins.open = io.open = opened
    os.stat, os.sysconf = found, of_system
    os.cpu_count = os.process_cpu_count = lambda: cores
    os.sched_getaffinity = lambda process: set(range(cores))
