"""What ran and what came out: the records that chapters quote, read from ``data/results``."""

from gkalib.results.checkout import find_or_clone, repository
from gkalib.results.record import BUSY, SCALES, SOURCES, Record, digest, load_average, processor, provenance
from gkalib.results.store import by_arm, experiments, find, folder, items, load, missing, rows, save
from gkalib.results.table import Table, table

__all__ = [
    "BUSY",
    "SCALES",
    "SOURCES",
    "Record",
    "Table",
    "by_arm",
    "digest",
    "experiments",
    "find",
    "find_or_clone",
    "folder",
    "items",
    "load",
    "load_average",
    "missing",
    "processor",
    "provenance",
    "repository",
    "rows",
    "save",
    "table",
]
