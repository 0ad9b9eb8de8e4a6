"""Loaders of the data that the book is computed on, each checked against its registered sha256.

What is not here and cannot be fetched, or is another than the registered one, is a ``ValueError`` that says
what to do.
"""

from gkalib.data.folders import imagenet
from gkalib.data.images import Labeled, cifar10, cifar100, digits, fashion_mnist, image_data, mnist, picture
from gkalib.data.pretrained import Encoder, Heads, Reading, minilm, trained_heads, trained_vit
from gkalib.data.registry import DATASETS, Dataset
from gkalib.data.tables import Table, california_schools, diabetes, mcycle, random_splits, sunspots
from gkalib.data.tasks import benchmark
from gkalib.data.text import dickens, fineweb_edu, state_of_the_union, tinystories, tinystories_full
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
    "diabetes",
    "dickens",
    "digits",
    "fashion_mnist",
    "fineweb_edu",
    "gpt2",
    "image_data",
    "imagenet",
    "mcycle",
    "minilm",
    "mnist",
    "picture",
    "random_splits",
    "state_of_the_union",
    "sunspots",
    "text_data",
    "tinystories",
    "tinystories_full",
    "trained_heads",
    "trained_vit",
]
