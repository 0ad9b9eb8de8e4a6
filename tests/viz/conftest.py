"""Every figure of these tests is drawn in the book's style, and closed after its test."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from gkalib.viz import style


@pytest.fixture(autouse=True)
def _style():
    """The book's style, whichever test of this process set one before."""
    with mpl.rc_context():
        style.use()
        yield
    plt.close("all")


@pytest.fixture
def axes():
    """The axes of an empty figure."""
    return plt.subplots()[1]
