"""The maps of a look as rows of a table, from which figures are drawn without the model."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor, nn

from gkalib.kernels import DecayingPeriodicBank
from gkalib.models import ViT
from gkalib.viz import maps
from gkalib.viz.census import DISCARDS, class_row
from gkalib.viz.layers import Layer, magnitudes, measures, received
from gkalib.viz.rollout import rollout
from gkalib.viz.sheets import patch_rows

Row = dict[str, object]
DIGITS = 4
TOKENS = 33  # of the matrices kept: a record is a small file


def picture_rows(model: ViT, found: Sequence[Layer]) -> list[Row]:
    """The maps of one picture, a number a row: ``figure, layer, head, row, column, value``.

    Of absolute weights where there are signs: ``rollout_00``, ``_50``, ``_90`` and, with the quantile of each
    row, ``rollout_row_50``, ``_90``; ``class``, the class token's map, by layer and head;
    ``patch_upper_left`` and the other three by layer, in the mean over heads. There row and column are a
    patch's. ``matrix`` is the mean over heads of the first, the middle and the last layer, at most 33 tokens
    of it, whose numbers row and column are, with its signs. And each of ``measures`` by layer and head.

    Args:
        model: says where the class token and the patches stand.
        found: what ``layers`` gave for one picture.

    Taught in: chapter 23.
    """
    shares = [magnitudes(layer.weights) for layer in found]
    rows = list(_measures(found, token=model.config.registers if model.config.class_token else None))
    for per in ("matrix", "row"):
        for discard in DISCARDS[per == "row" :]:  # nothing is discarded from either
            flow = class_row(model, rollout(shares, discard=discard, per=per))[0]
            name = f"rollout_{'row_' if per == 'row' else ''}{100 * discard:02.0f}"
            rows += _table(name, maps.grid(flow))
    for index, layer in enumerate(shares):
        for head, row in enumerate(class_row(model, layer[0])):
            rows += _table("class", maps.grid(row), layer=index, head=head)
        for name, (_, row) in patch_rows(model, layer).items():
            rows += _table(f"patch_{name.replace(' ', '_')}", row, layer=index)
    for index in _ends(found):
        matrix, kept = maps.subsample(found[index].weights[0].mean(0), most=TOKENS)
        rows += _table("matrix", matrix, layer=index, names=kept.tolist())
    return rows


def text_rows(model: nn.Module, found: Sequence[Layer]) -> list[Row]:
    """The same of one text: what is drawn by layer and head over its tokens, and the banks.

    ``last`` is the last token's weights and ``received`` what each token receives, column a token;
    ``bank`` is G, column a lag; ``matrix`` is that of the last 33 tokens; ``measures`` as for a picture.

    Args:
        model: with the banks in it.
        found: what ``layers`` gave for one text.

    Taught in: chapter 23.
    """
    rows = list(_measures(found))
    for index, layer in enumerate(found):
        for head in range(layer.weights.shape[1]):
            weights = layer.weights[:, head : head + 1]
            rows += _table("last", weights[0, :, -1], layer=index, head=head)
            rows += _table("received", received(weights)[0], layer=index, head=head)
    for index, kernel in enumerate(banks_of(model)):
        for head, values in enumerate(kernel.lag_table(found[0].weights.shape[-1]).detach()):
            rows += _table("bank", values[None], layer=index, head=head)
    for index in _ends(found):
        matrix = found[index].weights[0].mean(0)[-TOKENS:, -TOKENS:]
        names = range(found[index].weights.shape[-1])[-TOKENS:]
        rows += _table("matrix", matrix, layer=index, names=names)
    return rows


def banks_of(model: nn.Module) -> list[DecayingPeriodicBank]:
    """The banks of a model, in the order of its layers.

    Taught in: chapter 23.
    """
    return [module for module in model.modules() if isinstance(module, DecayingPeriodicBank)]


def _measures(found: Sequence[Layer], *, token: int | None = None) -> Iterator[Row]:
    for index, layer in enumerate(found):
        for name, values in measures(layer.weights, token=token).items():
            for head, value in enumerate(values.tolist()):
                yield _row(name, index, head, "", "", value)


def _ends(found: Sequence[Layer]) -> list[int]:
    """The first, the middle and the last layer."""
    return sorted({0, len(found) // 2, len(found) - 1})


def _table(
    figure: str,
    values: Tensor | np.ndarray,
    *,
    layer: int | str = "",
    head: int | str = "",
    names: Sequence[int] | None = None,
) -> list[Row]:
    """Two axes as rows; their places by number where they have no names."""
    across, down = values.shape[1], values.shape[0]
    return [
        _row(
            figure,
            layer,
            head,
            names[row] if names else row,
            names[column] if names else column,
            values[row, column],
        )
        for row in range(down)
        for column in range(across)
    ]


def _row(
    figure: str, layer: int | str, head: int | str, row: int | str, column: int | str, value: float | Tensor
) -> Row:
    number = f"{float(value):.{DIGITS}g}"
    return {"figure": figure, "layer": layer, "head": head, "row": row, "column": column, "value": number}
