"""What every test of training shares."""

import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_tensorboard():
    """It takes seconds to import, and has a test of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield
