"""Every block size that the tuner may choose, compiled for an H100, so that none fails where it is timed.

``python -m gkalib.gpu.candidates`` compiles them all, some minutes of one core without a card,
and writes candidates.json; with names, those programs alone, and keeps the other rows.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gkalib.gpu import tune
from gkalib.gpu.ahead import build
from gkalib.gpu.survey import SHARED_LIMIT
from gkalib.smoothing.fused import configs

COMPILED = Path(__file__).with_name("candidates.json")
COLUMNS = ("registers", "spills", "shared", "per_score")


def compiled(table: tune.Table, programs: Sequence[str] = ()) -> Iterator[dict[str, object]]:
    """What the machine code of each candidate of each entry says, in every sample call."""
    for program, width, kind, sizes, case, launches in tune.launches(table, programs):
        for launch in launches:
            if launch.name != f"{program}_kernel":
                continue
            report = build(launch)
            entry = {"program": program, "width": width, "kind": kind, "config": sizes, "case": case.name}
            yield entry | {name: getattr(report, name) for name in COLUMNS}


def main() -> int:
    """Compile every candidate and record it; fails if one needs more shared memory than there is."""
    programs, failures = sys.argv[1:], 0
    rows = [row for row in json.loads(COMPILED.read_text()) if programs and row["program"] not in programs]
    for row in compiled(configs.table(), programs):
        rows.append(row)
        too_large = int(str(row["shared"])) > SHARED_LIMIT
        failures += too_large
        print(json.dumps(row), "too much shared memory" if too_large else "", flush=True)
    rows.sort(key=lambda row: str(row["program"]))
    COMPILED.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    print(f"{len(rows)} candidates compiled, {failures} cannot start")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
