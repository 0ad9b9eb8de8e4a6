"""Loaders of the data that the book is computed on, each checked against its registered sha256."""

from gkalib.data.benchmarks import benchmark
from gkalib.data.cifar import cifar10, cifar100
from gkalib.data.corpora import dickens, fineweb_edu, tinystories, tinystories_full
from gkalib.data.encoder import Heads, Reading, trained_heads
from gkalib.data.folders import imagenet
from gkalib.data.idx import fashion_mnist, mnist
from gkalib.data.images import Labeled, digits, picture
from gkalib.data.novels import novels
from gkalib.data.registry import DATASETS, Dataset
from gkalib.data.tables import Table, california_schools, co2, diabetes, mcycle, sunspots
from gkalib.data.text import Encoder, minilm, state_of_the_union
from gkalib.data.tokenizers import Tokenizer, gpt2
from gkalib.data.tokens import TextData, text_data

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
