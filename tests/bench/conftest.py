"""What tests of benchmarks share."""

import pytest

from gkalib.bench import run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes run in this process."""
    monkeypatch.setattr(run, "_in_fresh_process", lambda call, *arguments: call(*arguments))
