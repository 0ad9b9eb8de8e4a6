"""The training loop of decoders of text, in reading order, from a run to a record."""

from gkalib import results
from gkalib.training.run import LanguageRun, Launch


def train(run: LanguageRun, launch: Launch) -> results.Record:
    """Train a decoder of text."""
    raise NotImplementedError
