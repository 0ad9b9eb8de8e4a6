"""Two images under a slider that wipes from one to the other, without a kernel behind the page."""

import base64
import html
import io
from dataclasses import dataclass
from typing import final

import numpy as np

from gkalib.viz.digest import MIME, array, summary

# The first rule undoes the light box that the theme gives unknown output on a dark page.
_STYLE = """
.output:has(> .gkalib-wipe) { background: none !important; color: inherit !important; padding: 0; }
.gkalib-wipe { position: relative; width: 28rem; max-width: 100%; margin: 0 auto; color: inherit; }
.gkalib-wipe div { position: relative; aspect-ratio: var(--shape); }
.gkalib-wipe img { position: absolute; inset: 0; width: 100%; height: 100%; padding: 0 !important;
  image-rendering: pixelated; filter: none !important; border-radius: 4px; }
.gkalib-wipe img + img { clip-path: inset(0 0 0 var(--at, 50%)); border-radius: 0; }
.gkalib-wipe p { display: flex; justify-content: space-between; margin: 0; }
.gkalib-wipe input { width: 100%; margin: 0; accent-color: #0072b2; }
"""
_MOVE = "this.closest('.gkalib-wipe').style.setProperty('--at', this.value + '%')"


@final
@dataclass(frozen=True)
class Wipe:
    """Two gray images of one size under a slider: left of it the first is seen, right of it the second.

    Args:
        before, after: brightness from 0 to 1, ``[height width]``, tensors or arrays; beyond it is cut off.
        names: of both, shown over their sides.
        alt: what the images show, for readers who do not see them.

    Raises:
        ValueError: if the images are not two of one size, or the alt text is empty.

    Taught in: chapter 05.
    """

    before: np.ndarray
    after: np.ndarray
    names: tuple[str, str]
    alt: str

    def __post_init__(self) -> None:
        sizes = [array(one).shape for one in (self.before, self.after)]
        if len(sizes[0]) != 2 or sizes[0] != sizes[1]:
            raise ValueError(
                f"wipe: the images are {sizes[0]} and {sizes[1]}; both must be one [height width]"
            )
        if not self.alt.strip():
            raise ValueError("wipe: alt is empty; say what the images show")

    def to_html(self) -> str:
        """Return both images and the slider as one self-contained piece of HTML."""
        height, width = array(self.before).shape
        first, second = map(html.escape, self.names)
        images = [
            f'<img class="dark-light" alt="{html.escape(self.alt)} {name}." src="{_source(one)}">'
            for name, one in zip((first, second), (self.before, self.after), strict=True)
        ]
        slider = (
            f'<input type="range" min="0" max="100" value="50" autocomplete="off"'
            f' aria-label="from {second} to {first}" oninput="{_MOVE}">'
        )
        return (
            f'<div class="gkalib-wipe" role="group" style="--shape: {width} / {height}">'
            f"<style>{_STYLE}</style><p><span>{first}</span><span>{second}</span></p>"
            f"<div>{''.join(images)}</div>{slider}</div>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        drawn = {
            name: [summary(array(one))]
            for name, one in zip(self.names, (self.before, self.after), strict=True)
        }
        text = f"wipe({self.names[0]} to {self.names[1]})"
        return {"text/plain": text, "text/html": self.to_html(), MIME: drawn}


def _source(image) -> str:
    from PIL import Image

    raw, pixels = io.BytesIO(), np.clip(array(image), 0, 1) * 255
    Image.fromarray(pixels.round().astype(np.uint8)).save(raw, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(raw.getvalue()).decode('ascii')}"
