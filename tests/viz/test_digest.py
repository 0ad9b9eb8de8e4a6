"""A digest sees what a figure plots, and does not see rounding noise."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from gkalib.viz.digest import array, digest, summary


def test_a_summary_reads_shape_extremes_and_projections():
    # cos(c n + c) for c = 0.1, 1.3, 2.9 at n = 0, 1, over sqrt(2), in steps of a hundredth
    expected = [np.floor(value * 100 + 0.2718) for value in (1.0, 2.0)]
    for c in (0.1, 1.3, 2.9):
        projection = (1.0 * np.cos(c) + 2.0 * np.cos(2 * c)) / np.sqrt(2)
        expected.append(np.floor(projection * 100 + 0.2718))
    assert summary([1.0, 2.0]) == "2 " + " ".join(str(int(value)) for value in expected) + " e-2"


def test_tensors_lists_and_arrays_are_the_same():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert summary(values) == summary([[1.0, 2.0], [3.0, 4.0]]) == summary(values.detach().numpy())


def test_missing_values_are_counted():
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    assert np.isnan(array(masked)).tolist() == [False, True, False]
    assert summary(masked).startswith("3 (1 not finite) ")
    assert summary([np.nan, np.inf]) == "2 (2 not finite)"
    assert summary([]) == "0"


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(7),
        np.ones(100),
        np.linspace(0, 1, 101),
        np.linspace(-2.5, 2.5, 11),
        np.full((5, 5), 0.125),
        np.eye(20),
        np.cumsum(np.ones(50)) * 0.1,
        np.sin(np.linspace(0, 2 * np.pi, 200)),
    ],
)
def test_noise_does_not_show_where_data_like_to_lie(values):
    rng = np.random.default_rng(0)
    seen = {summary(values + 1e-9 * rng.standard_normal(values.shape) * values.max()) for _ in range(200)}
    assert seen == {summary(values)} or values.max() == 0.0


def changed(noise: float, trials: int = 3000) -> float:
    rng = np.random.default_rng(1)
    count = 0
    for _ in range(trials):
        values = rng.standard_normal(40) * 10 ** rng.uniform(-3, 3)
        count += summary(values) != summary(values * (1 + noise * rng.standard_normal(40)))
    return count / trials


def test_the_share_of_digests_that_noise_changes_is_what_the_docstring_says():
    assert changed(1e-13) == 0.0
    assert changed(1e-5) < 5 * 1e3 * 1e-5


def test_a_change_of_a_hundredth_is_seen():
    rng = np.random.default_rng(2)
    for _ in range(300):
        values = rng.standard_normal(40)
        other = values.copy()
        other[np.argmax(values)] += 0.01 * abs(values).max()
        assert summary(values) != summary(other)


def test_values_that_change_places_are_seen():
    values = np.random.default_rng(3).standard_normal(200)
    assert summary(values) != summary(values[::-1])
    assert summary(values.reshape(10, 20)) != summary(values.reshape(20, 10))


X = np.linspace(0.0, 1.0, 12)
Z = np.outer(X, X)

DRAWINGS = {
    "plot": lambda axes, s: axes.plot(X, s * X),
    "step": lambda axes, s: axes.step(X, s * X),
    "stem": lambda axes, s: axes.stem(X, s * X),
    "errorbar": lambda axes, s: axes.errorbar(X, X, yerr=s * X),
    "scatter": lambda axes, s: axes.scatter(X, s * X),
    "scatter at zero": lambda axes, s: axes.scatter([0.0], [0.0], c=[s]),
    "scatter colours": lambda axes, s: axes.scatter(X, X, c=np.sin(s * X)),
    "bar": lambda axes, s: axes.bar(X, s * X),
    "hist": lambda axes, s: axes.hist(s * X),
    "fill": lambda axes, s: axes.fill_between(X, s * X),
    "lines": lambda axes, s: axes.vlines(X, 0, s * X),
    "level": lambda axes, s: axes.axhline(s),
    "image": lambda axes, s: axes.imshow(Z**s),
    "mesh": lambda axes, s: axes.pcolormesh(X, X, Z**s),
    "contour": lambda axes, s: axes.contour(X, X, s * Z),
    "contourf": lambda axes, s: axes.contourf(X, X, s * Z),
    "quiver": lambda axes, s: axes.quiver(X, X, X, s * X),
    "text": lambda axes, s: axes.text(0, 0, f"{s:.2f}"),
    "title": lambda axes, s: axes.set_title(f"{s:.2f}"),
    "label": lambda axes, s: axes.set_xlabel(f"{s:.2f}"),
    "legend": lambda axes, s: (axes.plot(X, label=f"{s:.2f}"), axes.legend()),
    "inset": lambda axes, s: axes.inset_axes([0.5, 0.5, 0.4, 0.4]).plot(X, s * X),
    "figure title": lambda axes, s: axes.figure.suptitle(f"{s:.2f}"),
}


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_each_kind_of_drawing_is_seen(drawing):
    def drawn(scale, projection=None):
        figure = plt.figure()
        DRAWINGS[drawing](figure.add_subplot(projection=projection), scale)
        return digest(figure)

    assert drawn(1.0) == drawn(1.0)
    assert drawn(1.0) != drawn(1.05)


@pytest.mark.parametrize("method", ["plot", "scatter"])
def test_three_dimensions_are_seen(method):
    def drawn(scale):
        axes = plt.figure().add_subplot(projection="3d")
        getattr(axes, method)(X, X, scale * X)
        return digest(axes.figure)

    assert drawn(1.0) == drawn(1.0)
    assert drawn(1.0) != drawn(1.05)


def test_drawing_the_figure_does_not_change_its_digest():
    figure, axes = plt.subplots()
    axes.plot(X, Z)
    axes.annotate("here", (0, 0), (0.5, 0.5), arrowprops={"arrowstyle": "->"})
    axes.bar(X, X)
    before = digest(figure)
    figure.canvas.draw()
    assert digest(figure) == before
