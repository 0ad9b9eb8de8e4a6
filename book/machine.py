"""Shows a process another machine than it runs on: the size of its cache, its cores, its memory."""

import os
from pathlib import Path

CORES, CACHE, PAGES = 7, "99304K\n", 5 * 2**18  # 97 MiB of cache, and 5 GiB in pages of 4 KiB


def start() -> None:
    """From here on Python says that the machine is this one."""
    sizes, read, told = Path("/sys/devices/system/cpu"), Path.read_text, os.sysconf
    pages = {"SC_PHYS_PAGES": PAGES, "SC_AVPHYS_PAGES": PAGES, "SC_NPROCESSORS_ONLN": CORES}

    def read_text(path: Path, *arguments, **settings) -> str:
        asked = path.name == "size" and sizes in path.parents
        return CACHE if asked else read(path, *arguments, **settings)

    Path.read_text = read_text
    os.cpu_count = lambda: CORES
    os.sched_getaffinity = lambda pid: set(range(CORES))
    os.sysconf = lambda name: pages[name] if name in pages else told(name)
