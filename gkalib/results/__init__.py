"""What ran and what came out: the records that chapters quote, read from ``data/results``."""

from gkalib.results.record import BUSY, SCALES, SOURCES, Record, digest, load_average, processor, provenance
from gkalib.results.store import by_arm, experiments, find, folder, items, load, rows, save
from gkalib.results.table import Table, as_html, as_text, table

__all__ = [
    "BUSY",
    "SCALES",
    "SOURCES",
    "Record",
    "Table",
    "as_html",
    "as_text",
    "by_arm",
    "digest",
    "experiments",
    "find",
    "folder",
    "items",
    "load",
    "load_average",
    "processor",
    "provenance",
    "rows",
    "save",
    "table",
]
