"""Two images under a slider: what is stored, and what is refused."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from gkalib.viz import Wipe
from gkalib.viz.digest import MIME

DARK, LIGHT = np.zeros((2, 3)), np.full((2, 3), 0.5)


def test_both_images_are_stored_with_their_names():
    wipe = Wipe(DARK, LIGHT + np.array([[0, 0, 9], [0, 0, 0]]), ("a < b", "light"), "Paper,")
    bundle = wipe._repr_mimebundle_()
    found = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(one))))
        for one in re.findall(r'src="data:image/png;base64,(.*?)"', bundle["text/html"])
    ]
    assert found[0].tolist() == [[0] * 3] * 2 and found[1].tolist() == [[128, 128, 255], [128] * 3]
    assert 'alt="Paper, a &lt; b."' in bundle["text/html"] and not re.search(
        r"https?://", bundle["text/html"]
    )
    assert sorted(bundle[MIME]) == ["a < b", "light"]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="both must be one"):
        Wipe(DARK, LIGHT[:1], ("a", "b"), "alt")
    with pytest.raises(ValueError, match="alt is empty"):
        Wipe(DARK, LIGHT, ("a", "b"), " ")
