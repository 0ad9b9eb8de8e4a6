"""Masks as intervals: the same pairs as the masks allow, forwards and backwards."""

import pytest
import torch

from gkalib import masks
from gkalib.kernels import Gaussian
from gkalib.smoothing import make_problem
from gkalib.smoothing.spans import Spans, spans_of, why_not
from tests.cases import MASKS

INTERVALS = [*(name for name in MASKS if name not in ("pairs", "function")), "window-document-padding"]
SIZES = {"square": (2, 23, 23), "rectangular": (3, 7, 40), "one query": (2, 1, 9)}


def _problem(mask, batch, queries, keys, positions=None):
    query, key = torch.zeros(batch, 1, queries, 2), torch.zeros(batch, 1, keys, 2)
    return make_problem(query, key, key, Gaussian(1.0), mask=mask, positions=positions, name="smooth")


def _seen(spans: Spans, batch: int, rows: int, columns: int) -> torch.Tensor:
    """The pairs that intervals allow, [b rows columns]."""
    at = torch.arange(columns - rows, columns)[:, None]
    column = torch.arange(columns)
    if spans.first is None or spans.last is None:
        allowed = (column >= at - spans.left) & (column <= at + spans.right)
        return allowed.expand(batch, rows, columns)
    return ((column >= spans.first[..., None]) & (column < spans.last[..., None])).expand(
        batch, rows, columns
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "mask", [name for name in MASKS if name not in ("pairs", "function")] + ["window-document-padding"]
)
def test_intervals_are_the_mask(mask, size):
    batch, queries, keys = SIZES[size]
    if mask == "window-document-padding":
        rule = (
            masks.Window(4)
            & masks.Document(torch.arange(keys).expand(batch, keys) // 5)
            & masks.KeyPadding(torch.arange(batch) + 3)
        )
    else:
        rule = MASKS[mask](batch, queries, keys)
    problem = _problem(rule, batch, queries, keys)
    assert why_not(problem) is None
    spans = spans_of(problem)
    allowed = problem.allowed()
    wanted = torch.ones(1, 1, queries, keys, dtype=torch.bool) if allowed is None else allowed
    wanted = wanted.expand(batch, 1, queries, keys)[:, 0]
    assert torch.equal(_seen(spans, batch, queries, keys), wanted)
    back = spans.inverse(queries, keys)
    # A band's inverse is the band as the keys see it: key j sits on query j + n - m.
    assert torch.equal(_seen(back, batch, keys, queries), wanted.mT)
    assert spans.all(queries, keys) == (spans.first is None and bool(wanted.all()))
    if spans.first is not None and spans.last is not None:
        assert (spans.first.diff(dim=-1) >= 0).all() and (spans.last.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize(
    "mask, reason",
    [
        (torch.eye(4, dtype=torch.bool), "Pairs is no interval of keys for each query"),
        (masks.Document(torch.tensor([0, 1, 0, 1])), "a document of the mask is not one run of tokens"),
        (masks.Causal() & masks.Document(torch.tensor([3, 3, 1, 3])), "not one run of tokens"),
    ],
)
def test_other_masks_are_refused(mask, reason):
    assert reason in (why_not(_problem(mask, 1, 4, 4)) or "")


def test_given_positions_are_refused():
    problem = _problem(masks.Causal(), 1, 4, 4, positions=(torch.arange(4), torch.arange(4)))
    assert "positions were given" in (why_not(problem) or "")


def test_a_document_mask_of_lengths():
    mask = masks.Document.of_lengths([3, 1, 4])
    assert mask.ids.tolist() == [[0, 0, 0, 1, 2, 2, 2, 2]] and mask.packed()
    start, stop = mask.runs()
    assert start.tolist() == [[0, 0, 0, 3, 4, 4, 4, 4]] and stop.tolist() == [[3, 3, 3, 4, 8, 8, 8, 8]]
    with pytest.raises(ValueError, match=r"^Document: every length must be at least 1, not \[2, 0\]"):
        masks.Document.of_lengths([2, 0])
