"""Set-up of every test: shapes are checked, threads are few, an empty tensor is poisoned."""

import os

import jaxtyping
import pytest
import torch

# Fused programs run in Triton's interpreter where there is no card; read when they are first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The library is imported through a hook that checks every annotated shape and type while a test runs.
HOOK = jaxtyping.install_import_hook("gkalib", "beartype.beartype")
# Triton's interpreter looks for a program's source and globals, which a check around it would hide.
CHECKED = HOOK.hook.should_instrument
HOOK.hook.should_instrument = lambda name: CHECKED(name) and not name.startswith("gkalib.smoothing.fused.")

torch.set_num_threads(1)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(True)  # with it, memory that nobody wrote reads as NaN


@pytest.fixture(autouse=True)
def _seed():
    """The same random numbers whatever the order of tests."""
    torch.manual_seed(0)


@pytest.fixture
def as_a_user():
    """Without the shape checks of the test run, so that the library's own errors are the ones that appear."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def device() -> torch.device:
    """The card where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
