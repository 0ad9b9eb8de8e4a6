"""The gallery: what is stored is shown, and nothing that the papers draw is left out."""

import re
from pathlib import Path

from gkalib.viz.paper import NUMBERS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "book" / "img" / "gallery"


def test_every_figure_of_the_papers_is_in_the_gallery():
    text = (ROOT / "book" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\{figure\} img/gallery/(\S+)$", text, re.M)
    assert sorted(shown) == sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.png"))
    for paper, figures in NUMBERS.items():
        kinds = {re.sub(rf"^{paper}/(figure-\d+-)?|\d*\.png$", "", name) for name in shown}
        assert figures.keys() - {"landscape"} <= kinds  # which needs the checkpoints of a run
