"""A dragged figure holds its data and a stored picture, and refuses what does not fit together."""

import html
import json
import math
import re

import matplotlib.pyplot as plt
import pytest

from gkalib.kernels import Gaussian
from gkalib.viz.digest import MIME
from gkalib.viz.drag import drag, posterior, recalled

KEYS = [[0.5], [1.0], [2.5], [4.0]]
VALUES = [[1.0], [-2.0], [0.5], [3.0]]
PLANE = [[0.5, 1.0], [-1.0, 0.25], [1.5, -0.75], [-0.5, -1.25], [0.1, 0.2]]


def on_a_line(**changes):
    options = dict(keys=KEYS, values=VALUES, query=[1.5], sigma=(0.8, 0.1, 4.0), limits=((0, 5), (-4, 4)))
    return drag(alt="four dots and a curve", **{**options, **changes})


def in_the_plane(**changes):
    options = dict(
        keys=PLANE, sigma=(1.0, 0.2, 5.0), kernels=("Gaussian", "ExpDot"), limits=((-2, 2), (-2, 2))
    )
    return drag(alt="five dots in the plane", **{**options, **changes})


def a_walk(**changes):
    return in_the_plane(**{"kernels": ("Gaussian",), "walk": True, **changes})


def a_field(**changes):
    return in_the_plane(**{"query": [1.0, 1.0], "field": True, **changes})


def a_memory(**changes):
    options = dict(
        keys=[[0], [53], [120]],
        values=[[2], [1], [-1]],
        sigma=(1.0, 0.1, 2.0),
        kernels=("adding", "delta", "ridge"),
        limits=((-90, 180), (-3, 3)),
    )
    return drag(alt="three dots and three waves", memory=True, **{**options, **changes})


def a_process(**changes):
    return on_a_line(**{"query": None, "process": 0.04, **changes})


def data_of(figure) -> dict:
    return json.loads(html.unescape(re.findall(r'data-drag="(.*?)"', figure.to_html())[0]))


def test_it_holds_its_data_and_a_picture_and_leaves_no_figure_open():
    figure = on_a_line(labels={"sigma": 'a "bandwidth" < 1'})
    data = data_of(figure)
    assert data["keys"] == KEYS and data["values"] == VALUES and data["query"] == [1.5]
    assert data["sigma"] == 0.8 and data["sigmas"] == [0.1, 4.0] and data["x"] == [0, 5]
    assert data["labels"] == {
        "x": "x",
        "y": "y",
        "sigma": 'a "bandwidth" < 1',
        "key": "key",
        "query": "query",
    }
    bundle = figure._repr_mimebundle_()
    assert sorted(bundle) == [MIME, "text/html", "text/plain"]
    assert (
        '<img class="dark-light" alt="four dots and a curve" src="data:image/png;base64,'
        in bundle["text/html"]
    )
    assert sorted(in_the_plane().digest) == ["axes 0", "axes 1"]
    assert plt.get_fignums() == []
    assert not re.search(r"https?://|<script", bundle["text/html"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keys": [[[1.0]]]}, "keys have shape"),
        ({"values": None}, "values have shape None"),
        ({"values": [[1.0]]}, "values have shape"),
        ({"query": None}, "need a query"),
        ({"query": [1.0, 2.0]}, "2 coordinates"),
        ({"sigma": (5.0, 0.1, 4.0)}, "not between"),
        ({"sigma": (0.1, 0.0, 4.0)}, "not between"),
        ({"kernels": ("Laplace",)}, "Laplace"),
        ({"kernels": ("Gaussian", "ExpDot")}, "on a line one"),
        ({"labels": {"z": "height"}}, "labels"),
        ({"field": True}, "field needs"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        on_a_line(**changes)


def test_an_empty_alt_text_is_refused():
    with pytest.raises(ValueError, match="alt is empty"):
        drag(alt=" ", keys=PLANE, sigma=(1, 1, 1), limits=((0, 1), (0, 1)))


# A figure of each kind, its entry in the data, and what it cannot be made of.
KINDS = {
    "walk": (a_walk, True, [{"query": [0.0, 0.0]}, {"kernels": ("ExpDot",)}]),
    "field": (a_field, True, [{"query": None}]),
    "memory": (a_memory, True, [{"query": [0.0]}, {"kernels": ("Gaussian",)}, {"keys": PLANE}]),
    "process": (
        a_process,
        0.04,
        [{"query": [0.0]}, {"kernels": ("ExpDot",)}, {"process": 0.0}, {"keys": PLANE, "values": None}],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_figure_has_what_it_needs(kind):
    make, entry, refused = KINDS[kind]
    assert data_of(make())[kind] == entry
    for changes in refused:
        with pytest.raises(ValueError, match=f"{kind} needs"):
            make(**changes)


def test_a_field_is_shaded_where_the_first_key_gets_more_than_each_level(monkeypatch):
    """Of two keys and a Gaussian the share exceeds one half on the first key's side of their bisector."""
    drawn = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.contourf", lambda axes, *numbers, **how: drawn.append((numbers, how))
    )
    a_field(keys=[[-1.0, 0.0], [1.0, 0.0]], kernels=("Gaussian",))
    assert [how["levels"][0] for _, how in drawn] == [0.05, 0.2, 0.5, 0.8, 0.95]
    across, _, share = drawn[0][0]
    assert ((share > 0.5) == (across < 0)).all()
    # e^{-(x+1)²/2} against e^{-(x-1)²/2}: a logistic function of −2x
    assert share[0].tolist() == pytest.approx([1 / (1 + math.exp(2 * x)) for x in across.tolist()])


def test_the_posterior_by_hand():
    """One value y at 0 with noise λ: at x the mean is k y / (1 + λ), and the variance 1 − k² / (1 + λ)."""
    k = math.exp(-0.5)
    mean, deviation = posterior(Gaussian(2.0), [0.0], [3.0], 0.25, [0.0, 2.0])
    assert mean.tolist() == pytest.approx([3 / 1.25, 3 * k / 1.25])
    assert deviation.square().tolist() == pytest.approx([0.2, 1 - k * k / 1.25])


def test_what_a_memory_in_the_plane_recalls_by_hand():
    """Keys (1, 0) and (0.6, 0.8), values 2 and 1; a map (s, t) recalls s and 0.6 s + 0.8 t of them."""
    angles = [0.0, math.degrees(math.acos(0.6))]
    for rule, expected in (("adding", [2.6, 2.2]), ("delta", [1.88, 1.0]), ("ridge", [2.0, 1.0])):
        found = recalled(rule, angles, [2.0, 1.0], 1.0, angles)
        assert found.tolist() == pytest.approx(expected, abs=4e-3 if rule == "ridge" else 1e-12)
    assert recalled("delta", angles, [2.0, 1.0], 0.5, angles[:1]).item() == pytest.approx(1 + 0.5 * 0.4 * 0.6)


@pytest.fixture
def kept(monkeypatch):
    """The figures that a control closes."""
    figures = []
    with monkeypatch.context() as patch:
        patch.setattr(plt, "close", figures.append)
        yield figures


def test_lines_of_a_walk_are_as_wide_as_its_flows(kept):
    """Between two keys whose affinity is k, a step leads across in k of 2 + 2k cases, one way."""
    a_walk(keys=[[0.0, 0.0], [1.0, 0.0]])
    k = math.exp(-0.5)
    (line,) = (
        one for one in kept[0].axes[0].lines if one.get_linestyle() == "-" and len(one.get_xdata()) == 2
    )
    assert line.get_linewidth() == pytest.approx(80 * k / (2 + 2 * k))


def test_keys_on_a_line_have_a_stem_as_high_as_their_weight(kept):
    on_a_line(keys=[[1.0], [2.0]], values=[[0.0], [1.0]], query=[1.0], sigma=(1.0, 0.1, 4.0))
    (stems,) = kept[0].axes[1].collections
    heights = [segment[1][1] for segment in stems.get_segments()]
    k = math.exp(-0.5)
    assert heights == pytest.approx([1 / (1 + k), k / (1 + k)])
