"""Figures that move: all frames are drawn beforehand, so a slider needs no kernel behind the page."""

import base64
import html
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.figure import Figure

from gkalib.extras import needed_by
from gkalib.viz import style
from gkalib.viz.digest import MIME, digest

MAX_FRAMES = 25
MAX_BYTES = 25_000

# One definition a control: running it again on a page with several controls changes nothing.
_SCRIPT = """
window.gkalibExplore = function (input) {
  const root = input.closest(".gkalib-explore");
  const inputs = Array.from(root.querySelectorAll("input"));
  const at = inputs.map((one) => one.value).join(",");
  for (const one of inputs) {
    const text = one.dataset.values.split("|")[Number(one.value)];
    one.setAttribute("aria-valuetext", text);
    one.parentElement.querySelector("output").textContent = text;
  }
  for (const image of root.querySelectorAll("img")) image.hidden = image.dataset.at !== at;
};
"""
# The first rule undoes the light box and the dimming that the theme gives unknown output on a dark page.
_STYLE = """
.output:has(> .gkalib-explore) { background: none !important; color: inherit !important; padding: 0; }
.gkalib-explore { max-width: 100%; color: inherit; }
.gkalib-explore img { display: block; width: 100%; height: auto; padding: 0 !important; border-radius: 4px; }
.gkalib-explore img[hidden] { display: none !important; }
.gkalib-explore label { display: flex; flex-wrap: wrap; align-items: center; gap: 0.3rem 0.8rem; }
.gkalib-explore input { flex: 1 1 6rem; min-width: 0; accent-color: #0072b2; }
.gkalib-explore output { min-width: 3rem; font-variant-numeric: tabular-nums; }
"""


def explore(
    draw: Callable[..., Figure],
    *,
    alt: str,
    labels: Mapping[str, str] | None = None,
    start: Mapping[str, object] | None = None,
    dpi: int = 130,
    **parameters: Sequence | np.ndarray,
) -> "Explore":
    """Draw a figure for every value of one or two parameters and show it under sliders.

    Args:
        draw: called with one value of each parameter by name; returns a new matplotlib figure.
        alt: what the figure shows, for readers who do not see it; may name parameters: `"fit for h = {h}"`.
        labels: a parameter's name on the page where its Python name does not do, `{"h": "bandwidth h (ms)"}`.
        start: the values shown first, the middle one of each parameter unless given.
        dpi: dots an inch of the frames; that of the figures beside them unless given.
        parameters: the values, in the order of the slider; at most 25 frames in all.

    Raises:
        ValueError: with no or more than two parameters, an empty alt text, a start that is not among the
            values, too many frames, frames of several sizes, or a frame too large for the page.

    Taught in: chapter 03.
    """
    values = {name: list(given) for name, given in parameters.items()}
    labels, start = dict(labels or {}), dict(start or {})
    _validate(values, alt, labels, start)
    control = Explore(
        draw=draw,
        values=values,
        labels={name: labels.get(name, name) for name in values},
        start={name: start.get(name, given[len(given) // 2]) for name, given in values.items()},
        alt=alt,
        frames=[],
    )
    for setting in control.settings():
        control.frames.append(_frame(draw, setting, dpi))
    sizes = {frame.size for frame in control.frames}
    if len(sizes) > 1:
        raise ValueError(f"explore: frames differ in size {sorted(sizes)} (inches)")
    return control


def _validate(values: dict[str, list], alt: str, labels: dict, start: dict) -> None:
    names = list(values)
    if len(names) not in (1, 2) or not all(values.values()):
        raise ValueError(
            f"explore: give one or two parameters, each a list of values; got {values or 'none'}"
        )
    if not alt.strip():
        raise ValueError("explore: alt is empty; say what the figure shows")
    unknown = sorted((set(labels) | set(start)) - set(names))
    if unknown:
        raise ValueError(f"explore: {unknown} in labels or start; the parameters are {names}")
    for name, value in start.items():
        if value not in values[name]:
            raise ValueError(f"explore: start {name} = {value!r} is not among its values {values[name]}")
    count = math.prod(len(given) for given in values.values())
    if count > MAX_FRAMES:
        raise ValueError(f"explore: {count} frames; a page carries at most {MAX_FRAMES}")


@final
@dataclass(frozen=True)
class Frame:
    """One picture of a control: its PNG, its digest and its size in inches."""

    png: bytes
    digest: dict[str, list[str]]
    size: tuple[float, ...]


@final
@dataclass(frozen=True)
class Explore:
    """A figure under one or two sliders: frames on the page, `.live()` in a running kernel.

    Taught in: chapter 03.
    """

    draw: Callable[..., Figure]
    values: dict[str, list]
    labels: dict[str, str]
    start: dict[str, object]
    alt: str
    frames: list[Frame]

    def settings(self) -> list[dict]:
        """Every combination of values, the last parameter changing fastest, as in `frames`."""
        return [dict(zip(self.values, row, strict=True)) for row in itertools.product(*self.values.values())]

    def live(self):
        """Return an ipywidgets control that calls `draw` anew; needs a running kernel."""
        with needed_by("live"):
            import ipywidgets
            from IPython.display import display

        def show(**setting):
            figure = self.draw(**setting)
            display(figure)
            _close(figure)

        sliders = {
            name: ipywidgets.SelectionSlider(
                options=[(_text(value), value) for value in values],
                value=self.start[name],
                description=self.labels[name],
                style={"description_width": "initial"},
            )
            for name, values in self.values.items()
        }
        return ipywidgets.interactive(show, **sliders)

    def to_html(self) -> str:
        """Return the control as one self-contained piece of HTML."""
        first = {name: values.index(self.start[name]) for name, values in self.values.items()}
        rows = [self._slider(name, first[name]) for name in self.values]
        here = ",".join(str(index) for index in first.values())
        images = []
        places = itertools.product(*(range(len(values)) for values in self.values.values()))
        for place, setting, frame in zip(places, self.settings(), self.frames, strict=True):
            at = ",".join(str(index) for index in place)
            alt = html.escape(self.alt.format(**{name: _text(value) for name, value in setting.items()}))
            source = base64.b64encode(frame.png).decode("ascii")
            hidden = "" if at == here else " hidden"
            address = f"data:image/png;base64,{source}"
            images.append(f'<img class="dark-light" data-at="{at}" alt="{alt}" src="{address}"{hidden}>')
        parts = [f"<style>{_STYLE}</style>", *images, *rows, f"<script>{_SCRIPT}</script>"]
        inches = self.frames[0].size[0]
        # A narrow frame would be blown up to the width of the page.
        narrow = f' style="max-width: min(100%, {130 * inches:.0f}px); margin-inline: auto"'
        narrow = narrow if inches < style.COLUMN else ""
        return f'<div class="gkalib-explore" role="group"{narrow}>\n' + "\n".join(parts) + "\n</div>"

    def _slider(self, name: str, first: int) -> str:
        label = html.escape(self.labels[name])
        texts = [html.escape(_text(value)) for value in self.values[name]]
        return (
            f"<label><span>{label}</span>"
            f'<input type="range" min="0" max="{len(texts) - 1}" step="1" value="{first}" autocomplete="off"'
            f' aria-label="{label}" aria-valuetext="{texts[first]}" data-values="{"|".join(texts)}"'
            f' oninput="gkalibExplore(this)"><output>{texts[first]}</output></label>'
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        items = self.values.items()
        settings = [
            " ".join(f"{name}={_text(value)}" for name, value in setting.items())
            for setting in self.settings()
        ]
        return {
            "text/plain": f"explore({', '.join(f'{name}: {len(v)} values' for name, v in items)})",
            "text/html": self.to_html(),
            MIME: {setting: frame.digest for setting, frame in zip(settings, self.frames, strict=True)},
        }


def _text(value) -> str:
    return (f"{value:g}" if isinstance(value, float) else str(value)).replace("|", "/")


def _frame(draw: Callable[..., Figure], setting: dict, dpi: int) -> Frame:
    figure = draw(**setting)
    if not isinstance(figure, Figure):
        raise ValueError(
            f"explore: draw returned a {type(figure).__name__}; it must return a matplotlib Figure"
        )
    try:
        picture = style.png(figure, colors=64, dpi=dpi)
        if len(picture) > MAX_BYTES:
            picture = style.png(figure, colors=16, dpi=dpi)
        if len(picture) > MAX_BYTES:
            raise ValueError(
                f"explore: the frame at {setting} has {len(picture)} bytes, more than {MAX_BYTES}; "
                "lower dpi, draw fewer points or show a smaller matrix"
            )
        return Frame(picture, digest(figure), tuple(figure.get_size_inches()))
    finally:
        _close(figure)


def _close(figure: Figure) -> None:
    # Otherwise pyplot would show every frame below the cell.
    import matplotlib.pyplot as plt

    plt.close(figure)
