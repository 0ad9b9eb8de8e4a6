"""How a text is parted into what is trained on and what is held out."""

import pytest

from gkalib.data import texts


@pytest.mark.parametrize("documents", [False, True])
def test_the_last_tenth_of_a_text_is_held_out(documents):
    parts = texts.split("state-of-the-union", documents=documents)
    whole = texts.SOURCES["state-of-the-union"].load()
    pieces = texts.SOURCES["state-of-the-union"].cut(whole) if documents else [whole]
    assert "".join([*parts.train, *parts.held_out]) == "".join(pieces)
    kept, held = (sum(map(len, some)) if not documents else len(some) for some in parts[:2])
    assert kept == (kept + held) * 9 // 10
