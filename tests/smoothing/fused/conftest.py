"""What the tests of fused operations share."""

import pytest

from gkalib.smoothing import api, fused


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number of an input is read, as on a card, where a look would wait for it."""
    for module in (api, fused):
        monkeypatch.setattr(module, "readable", lambda tensor: False)
