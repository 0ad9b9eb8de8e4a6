"""Loaders of the data that the book is computed on, each checked against its registered sha256."""

from gkalib.datasets.benchmarks import benchmark
from gkalib.datasets.cifar import cifar10, cifar100
from gkalib.datasets.corpora import dickens, fineweb_edu, tinystories, tinystories_full
from gkalib.datasets.encoder import Heads, Reading, trained_heads
from gkalib.datasets.folders import imagenet
from gkalib.datasets.idx import fashion_mnist, mnist
from gkalib.datasets.images import Labeled, digits, picture
from gkalib.datasets.novels import novels
from gkalib.datasets.registry import DATASETS, Dataset
from gkalib.datasets.tables import Table, california_schools, co2, diabetes, mcycle, sunspots
from gkalib.datasets.text import Encoder, minilm, state_of_the_union
from gkalib.datasets.tokenizers import Tokenizer, gpt2
from gkalib.datasets.tokens import TextData, text_data

__all__ = [
    "DATASETS",
    "Dataset",
    "Encoder",
    "Heads",
    "Labeled",
    "Reading",
    "Table",
    "TextData",
    "Tokenizer",
    "benchmark",
    "california_schools",
    "cifar10",
    "cifar100",
    "co2",
    "diabetes",
    "dickens",
    "digits",
    "fashion_mnist",
    "fineweb_edu",
    "gpt2",
    "imagenet",
    "mcycle",
    "minilm",
    "mnist",
    "novels",
    "picture",
    "state_of_the_union",
    "sunspots",
    "text_data",
    "tinystories",
    "tinystories_full",
    "trained_heads",
]
