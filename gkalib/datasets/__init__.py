"""Loaders of the data that the book is computed on, each checked against its registered sha256."""

from gkalib.datasets.benchmarks import benchmark
from gkalib.datasets.corpora import dickens, tinystories
from gkalib.datasets.encoder import Heads, Reading, trained_heads
from gkalib.datasets.idx import fashion_mnist, mnist
from gkalib.datasets.images import Labeled, digits, picture
from gkalib.datasets.registry import DATASETS, Dataset
from gkalib.datasets.tables import Table, california_schools, co2, diabetes, mcycle, sunspots
from gkalib.datasets.text import Encoder, minilm, state_of_the_union

__all__ = [
    "DATASETS",
    "Dataset",
    "Encoder",
    "Heads",
    "Labeled",
    "Reading",
    "Table",
    "benchmark",
    "california_schools",
    "co2",
    "diabetes",
    "dickens",
    "digits",
    "fashion_mnist",
    "mcycle",
    "minilm",
    "mnist",
    "picture",
    "state_of_the_union",
    "sunspots",
    "tinystories",
    "trained_heads",
]
