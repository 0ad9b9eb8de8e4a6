"""The figure style: small, deterministic pictures with digests, legible on any page by any eye."""

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from gkalib.viz import maps, style
from gkalib.viz.digest import MIME, digest


def sine():
    figure, axes = plt.subplots()
    axes.plot(np.linspace(0, 6, 300), np.sin(np.linspace(0, 6, 300)))
    return figure


def test_a_picture_is_small_opaque_light_and_the_same_each_time():
    first, second = style.png(sine()), style.png(sine())
    assert first == second
    assert len(first) < 15_000
    picture = Image.open(io.BytesIO(first))
    assert picture.size == (676, 468)
    assert min(picture.convert("RGBA").getpixel((2, 2))) >= 250


def test_fewer_colours_make_a_smaller_picture():
    assert len(style.png(sine(), colors=16)) < len(style.png(sine()))
    assert Image.open(io.BytesIO(style.png(sine(), dpi=65))).size == (338, 234)


def test_panels_below_one_another_are_drawn_as_narrow_as_a_phone_with_type_to_read_there():
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(style.COLUMN, 4))
    figure.colorbar(top.imshow(np.eye(3)), ax=top, label="share")
    top.set_xticks(range(3), ["a", "b", "c"], fontsize=5)
    bottom.plot([0, 1], label="a line")
    bottom.legend(fontsize=7, title="named")
    style.png(figure)
    assert tuple(figure.get_size_inches()) == (style.PANEL, 4)
    assert min(text.get_fontsize() for text in figure.findobj(Text)) == style.TYPE
    assert style.TYPE / 72 * 342 / style.PANEL > 9, "pixels, where a picture is 342 wide"


def test_panels_side_by_side_and_a_narrow_picture_keep_their_width():
    for columns, width in ((2, style.COLUMN), (1, 4.0)):
        figure, _ = plt.subplots(1, columns, figsize=(width, 2))
        style.png(figure)
        assert figure.get_figwidth() == width


def simulated(color: str, deficiency: str) -> np.ndarray:
    """A color as someone without one kind of cone sees it (Viénot, Brettel and Mollon 1999), linear RGB."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)])
    matrix = {
        "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
        "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
        "none": np.eye(3),
    }[deficiency]
    return np.asarray(matrix) @ linear


@pytest.mark.parametrize("deficiency", ["none", "protan", "deutan"])
def test_no_two_colours_of_the_palette_look_alike(deficiency):
    seen = [simulated(color, deficiency) for color in style.PALETTE.values()]
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(seen, 2)) > 0.08


def luminance(color: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ simulated(color, "none"))


def test_every_colour_stands_out_from_the_background():
    background = luminance(plt.rcParams["figure.facecolor"])
    contrast = {name: (background + 0.05) / (luminance(c) + 0.05) for name, c in style.PALETTE.items()}
    assert min(contrast.values()) > 2.0, contrast


def test_a_shell_shows_a_figure_with_its_digest_once():
    shell = InteractiveShell()
    style.register(shell)
    style.register(shell)
    figure = sine()
    data, _ = shell.display_formatter.format(figure)
    assert data[MIME] == digest(figure)
    assert data["image/png"] == style.png(figure)
    assert sum(hook is style._remember for hook in shell.events.callbacks["pre_run_cell"]) == 1


def test_weights_are_drawn_from_zero_and_signed_weights_around_it():
    _, (left, right) = plt.subplots(1, 2)
    plain = maps.weights(left, np.array([[0.25, 0.75], [1.0, 0.0]]), title="W")
    signed = maps.weights(right, np.array([[-0.5, 1.5], [1.0, 0.0]]))
    assert (plain.get_clim(), plain.cmap.name) == ((0.0, 1.0), style.SEQUENTIAL)
    assert (signed.get_clim(), signed.cmap.name) == ((-1.5, 1.5), style.DIVERGING)
    assert left.get_title() == "" and left.get_title(loc="left") == "W"


def test_weights_of_a_wrong_shape_are_refused():
    _, axes = plt.subplots()
    with pytest.raises(ValueError, match="two axes, this one has shape \\(3,\\)"):
        maps.weights(axes, [0.1, 0.2, 0.7])
