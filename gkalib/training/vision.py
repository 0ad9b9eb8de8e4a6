"""The training loop of image classifiers, in reading order, from a run to a record."""

from gkalib import results
from gkalib.training.run import Launch, VisionRun


def train(run: VisionRun, launch: Launch) -> results.Record:
    """Train a classifier of images."""
    raise NotImplementedError
