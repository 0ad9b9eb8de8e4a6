"""One sample call of every host function: what is compiled ahead of time, and what is tuned."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gkalib.smoothing.spans import Spans

HEADS, BATCH = 4, 2


@dataclass(frozen=True)
class Case:
    """What a host function is called with.

    Args:
        name: of the sample call, a key of CALLS.
        width: of a head.
        dtype: of the tensors.
        mask: all, band (causal with a window) or given (packed documents).
        length: queries and keys.
    """

    name: str
    width: int = 64
    dtype: torch.dtype = torch.bfloat16
    mask: str = "all"
    length: int = 1024
    batch: int = BATCH
    heads: int = HEADS
    device: str = "cpu"

    @property
    def where(self) -> tuple[str, int, str, str, int]:
        """Name, width, type, mask and length, as records have them."""
        return self.name, self.width, str(self.dtype).removeprefix("torch."), self.mask, self.length

    def tensor(self, width: int | None = None, length: int | None = None) -> Tensor:
        """``[b h n width]`` as a projection leaves it: b, n, h, width in memory."""
        shape = (self.batch, length or self.length, self.heads, width or self.width)
        return self._fill(torch.empty(shape, dtype=self.dtype, device=self.device)).transpose(1, 2)

    def numbers(self, *shape: int) -> Tensor:
        """float32 of this shape."""
        return self._fill(torch.empty(shape, dtype=torch.float32, device=self.device))

    def spans(self) -> Spans:
        """The mask."""
        if self.mask == "all":
            return Spans(2 * self.length, 2 * self.length)
        if self.mask == "band":
            return Spans(self.length // 2 - 1, 0)
        if self.mask != "given":
            raise ValueError(f"ahead: no mask {self.mask!r}. Known: all, band, given")
        at = torch.arange(self.length, dtype=torch.int32, device=self.device)
        half = self.length // 2
        first = torch.where(at < half, 0, half).to(torch.int32)[None]
        last = (at + 1)[None].contiguous()
        return Spans(2 * self.length, 0, first, last)

    def _fill(self, tensor: Tensor) -> Tensor:
        return tensor if self.device == "cpu" else tensor.normal_(std=0.5).abs_().add_(0.1)


def gka_forward(case: Case) -> None:
    """GKA: queries, keys and values are one tensor."""
    from gkalib.smoothing.fused.symmetric import gka_forward

    gka_forward(case.tensor(), case.numbers(case.heads), case.spans(), 0.0)


def gka_backward(case: Case) -> None:
    """The gradient of GKA."""
    from gkalib.smoothing.fused.symmetric import gka_backward

    total = case.numbers(case.batch, case.heads, case.length)
    gka_backward(case.tensor(), case.tensor(), case.tensor(), total, case.numbers(case.heads), case.spans())


def _smooth(norm: bool, table: bool, normalize: bool) -> tuple[Callable, Callable]:
    """A forward and a backward call of the separate q, k, v, with what the kernel at hand needs."""

    def scores(case: Case) -> tuple:
        return (
            case.numbers(case.heads),
            case.numbers(case.heads) if norm else None,
            case.numbers(case.heads, 2 * case.length - 1) if table else None,
        )

    def forward(case: Case) -> None:
        from gkalib.smoothing.fused.forward import smooth_forward

        inputs = (case.tensor(), case.tensor(), case.tensor())
        smooth_forward(*inputs, *scores(case), case.spans(), normalize)

    def backward(case: Case) -> None:
        from gkalib.smoothing.fused.backward import smooth_backward

        total = case.numbers(*((case.batch, case.heads, case.length) if normalize else (0,)))
        tensors = [case.tensor() for _ in range(5)]
        smooth_backward(*tensors, total, *scores(case), case.spans(), normalize, table)

    return forward, backward


RANK, FREQUENCIES = 16, 3


def row_features(case: Case) -> None:
    """KArAt's coefficients of each row, in a basis of Fourier features of the scores."""
    from gkalib.smoothing.fused.row_operator import row_features

    coefficients = case.numbers(case.heads, 2 * FREQUENCIES, case.length, RANK)
    row_features(case.tensor(), case.tensor(), coefficients, case.numbers(case.heads))


def row_features_backward(case: Case) -> None:
    """Their gradient."""
    from gkalib.smoothing.fused.row_operator import row_features_backward

    coefficients = case.numbers(case.heads, 2 * FREQUENCIES, case.length, RANK)
    grad = case.numbers(case.batch, case.heads, case.length, RANK)
    row_features_backward(grad, case.tensor(), case.tensor(), coefficients, case.numbers(case.heads))


def _decode(one: bool, norm: bool, table: bool, normalize: bool) -> Callable:
    """One new token against a cache; with ``one`` keys and values are one tensor."""

    def call(case: Case) -> None:
        from gkalib.smoothing.fused.decode import decode

        key, scale = case.tensor(), case.numbers(case.heads)
        seen = torch.ones(case.batch, 1, 1, case.length, dtype=torch.bool, device=case.device)
        decode(
            case.tensor(length=1),
            key,
            key if one else case.tensor(),
            scale,
            scale if norm else None,
            case.numbers(case.batch, case.heads, case.length) if table else None,
            None if case.mask == "all" else seen,
            normalize,
        )

    return call


_rbf = _smooth(norm=True, table=False, normalize=True)
_softmax = _smooth(norm=False, table=False, normalize=True)
_gpa = _smooth(norm=False, table=True, normalize=True)
_plain = _smooth(norm=True, table=False, normalize=False)

CALLS: dict[str, Callable[[Case], None]] = {
    "gka_forward": gka_forward,
    "gka_backward": gka_backward,
    "rbf_forward": _rbf[0],
    "rbf_backward": _rbf[1],
    "softmax_forward": _softmax[0],
    "softmax_backward": _softmax[1],
    "gpa_forward": _gpa[0],
    "gpa_backward": _gpa[1],
    "unnormalized_forward": _plain[0],
    "unnormalized_backward": _plain[1],
    "row_features": row_features,
    "row_features_backward": row_features_backward,
    "gka_decode": _decode(one=True, norm=True, table=False, normalize=True),
    "rbf_decode": _decode(one=False, norm=True, table=False, normalize=True),
    "gpa_decode": _decode(one=False, norm=False, table=True, normalize=True),
}
"""The sample calls by name."""


def call(case: Case) -> None:
    """Make the call: under ``collected()`` it lists what it would launch."""
    if case.name not in CALLS:
        raise ValueError(f"ahead: no case named {case.name!r}. Known: {', '.join(CALLS)}")
    CALLS[case.name](case)
