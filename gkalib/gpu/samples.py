"""One sample call of every host function: what is compiled ahead of time."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gkalib.kernels import Bank
from gkalib.smoothing.spans import Spans

Call = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """What a host function is called with.

    Args:
        name: of the sample call, a key of CALLS.
        width: of a head.
        dtype: of the tensors.
        mask: all, band (causal with a window) or given (packed documents).
        length: queries and keys.
        batch, heads: of the tensors, which hold nothing.
    """

    name: str
    width: int = 64
    dtype: torch.dtype = torch.bfloat16
    mask: str = "all"
    length: int = 1024
    batch: int = 2
    heads: int = 4

    @property
    def where(self) -> tuple[str, int, str, str, int]:
        """Name, width, type, mask and length, as records have them."""
        return self.name, self.width, str(self.dtype).removeprefix("torch."), self.mask, self.length

    def tensor(self, width: int | None = None, length: int | None = None) -> Tensor:
        """``[b h n width]`` as a projection leaves it: b, n, h, width in memory."""
        shape = (self.batch, length or self.length, self.heads, width or self.width)
        return self._fill(torch.empty(shape, dtype=self.dtype)).transpose(1, 2)

    def numbers(self, *shape: int) -> Tensor:
        """float32 of this shape."""
        return self._fill(torch.empty(shape, dtype=torch.float32))

    def sigma(self) -> Tensor:
        """A bandwidth a head, ``[h]``, at which scores stay near 0: weights neither vanish nor overflow."""
        return self.numbers(self.heads) * self.width**0.5

    def scale(self) -> Tensor:
        """A factor of dot products a head, likewise."""
        return self.numbers(self.heads) / self.width

    def spans(self) -> Spans:
        """The mask."""
        if self.mask == "all":
            return Spans(2 * self.length, 2 * self.length)
        if self.mask == "band":
            return Spans(self.length // 2 - 1, 0)
        if self.mask != "given":
            raise ValueError(f"fused: no mask {self.mask!r}. Known: all, band, given")
        at = torch.arange(self.length, dtype=torch.int32)
        half = self.length // 2
        first = torch.where(at < half, 0, half).to(torch.int32)[None]
        last = (at + 1)[None].contiguous()
        return Spans(2 * self.length, 0, first, last)

    def _fill(self, tensor: Tensor) -> Tensor:
        """Nothing: compilers do not ask for numbers, and tests put some here."""
        return tensor


def gka_forward(sample: Sample) -> Call:
    """GKA: queries, keys and values are one tensor."""
    from gkalib.smoothing.fused.symmetric import gka_forward

    return functools.partial(gka_forward, sample.tensor(), sample.sigma(), sample.spans(), 0.0)


def gka_backward(sample: Sample) -> Call:
    """The gradient of GKA."""
    from gkalib.smoothing.fused.symmetric import gka_backward

    total = sample.numbers(sample.batch, sample.heads, sample.length)
    tensors = [sample.tensor() for _ in range(3)]
    given = total, sample.sigma(), sample.spans()
    return functools.partial(gka_backward, *tensors, *given)


def _smooth(
    gaussian: bool, table: bool, normalize: bool
) -> tuple[Callable[[Sample], Call], Callable[[Sample], Call]]:
    """A forward and a backward call for separate queries, keys and values, with what a kernel needs."""

    def scores(sample: Sample) -> tuple:
        scale = None if gaussian else sample.scale()
        return scale, None, sample.numbers(sample.heads, 2 * sample.length - 1) if table else None

    def sigma(sample: Sample) -> Tensor | None:
        return sample.sigma() if gaussian else None

    def forward(sample: Sample) -> Call:
        from gkalib.smoothing.fused.forward import smooth_forward

        tensors = [sample.tensor() for _ in range(3)]
        slots = (*scores(sample), sample.spans(), normalize, sigma(sample))
        return functools.partial(smooth_forward, *tensors, *slots)

    def backward(sample: Sample) -> Call:
        from gkalib.smoothing.fused.backward import smooth_backward

        total = sample.numbers(*((sample.batch, sample.heads, sample.length) if normalize else (0,)))
        tensors = [sample.tensor() for _ in range(5)]
        slots = (*scores(sample), sample.spans(), normalize, table, sigma(sample), gaussian)
        return functools.partial(smooth_backward, *tensors, total, *slots)

    return forward, backward


TERMS = 64
"""The paper's, of each head's bank."""


def _bank(sample: Sample) -> Bank:
    return Bank(*(sample.numbers(sample.heads, TERMS) for _ in Bank._fields))


def bank_table(sample: Sample) -> Call:
    """GPA's table of lags."""
    from gkalib.smoothing.fused.bank import bank_table

    return functools.partial(bank_table, _bank(sample), sample.length, sample.length)


def bank_at(sample: Sample) -> Call:
    """The bank at the lags of a cache that overwrites its tokens."""
    from gkalib.smoothing.fused.bank import bank_table

    lags = torch.arange(sample.length)
    return functools.partial(bank_table, _bank(sample), 1, sample.length, lags)


def bank_gradient(sample: Sample) -> Call:
    """The gradients of the bank's parameters."""
    from gkalib.smoothing.fused.bank import bank_gradient

    grad = sample.numbers(sample.heads, 2 * sample.length - 1)
    return functools.partial(bank_gradient, grad, _bank(sample), sample.length)


RANK, HARMONICS = 16, 3
"""KArAt's, rounded up to what a product takes."""


def row_features(sample: Sample) -> Call:
    """KArAt's coefficients of each row, in a basis of Fourier features of the scores."""
    from gkalib.smoothing.fused.row_operator import row_features

    coefficients = sample.numbers(sample.heads, 2 * HARMONICS, sample.length, RANK)
    tensors = [sample.tensor() for _ in range(2)]
    return functools.partial(row_features, *tensors, coefficients, sample.scale())


def row_features_backward(sample: Sample) -> Call:
    """Their gradient."""
    from gkalib.smoothing.fused.row_operator import row_features_backward

    coefficients = sample.numbers(sample.heads, 2 * HARMONICS, sample.length, RANK)
    grad = sample.numbers(sample.batch, sample.heads, sample.length, RANK)
    tensors = [sample.tensor() for _ in range(2)]
    return functools.partial(row_features_backward, grad, *tensors, coefficients, sample.scale())


def _decode(
    shared: bool, gaussian: bool, table: bool, normalize: bool, groups: int = 0
) -> Callable[[Sample], Call]:
    """One new token against a cache; with ``shared`` keys and values are one tensor, of so many groups."""

    def prepared(sample: Sample) -> Call:
        from gkalib.smoothing.fused.decode import decode

        key, value = (sample.tensor()[:, : groups or None] for _ in range(2))
        scale, sigma = (None, sample.sigma()) if gaussian else (sample.scale(), None)
        lags = sample.numbers(sample.batch, sample.heads, sample.length) if table else None
        given = sample.tensor(length=1), key, key if shared else value, scale, None, lags, None, normalize
        return functools.partial(decode, *given, sigma=sigma)

    return prepared


_rbf = _smooth(gaussian=True, table=False, normalize=True)
_softmax = _smooth(gaussian=False, table=False, normalize=True)
_gpa = _smooth(gaussian=False, table=True, normalize=True)
_plain = _smooth(gaussian=True, table=False, normalize=False)

CALLS: dict[str, Callable[[Sample], Call]] = {
    "gka_forward": gka_forward,
    "gka_backward": gka_backward,
    "rbf_forward": _rbf[0],
    "rbf_backward": _rbf[1],
    "softmax_forward": _softmax[0],
    "softmax_backward": _softmax[1],
    "gpa_forward": _gpa[0],
    "gpa_backward": _gpa[1],
    "bank_table": bank_table,
    "bank_at": bank_at,
    "bank_gradient": bank_gradient,
    "unnormalized_forward": _plain[0],
    "unnormalized_backward": _plain[1],
    "row_features": row_features,
    "row_features_backward": row_features_backward,
    "gka_decode": _decode(shared=True, gaussian=True, table=False, normalize=True),
    "rbf_decode": _decode(shared=False, gaussian=True, table=False, normalize=True),
    "gpa_decode": _decode(shared=False, gaussian=False, table=True, normalize=True),
    "group_decode": _decode(shared=False, gaussian=False, table=False, normalize=True, groups=1),
}
"""The sample calls by name."""


def prepared(sample: Sample) -> Call:
    """The call with its tensors; under ``collected()`` it lists what it would launch."""
    if sample.name not in CALLS:
        raise ValueError(f"fused: no sample call named {sample.name!r}. Known: {', '.join(CALLS)}")
    return CALLS[sample.name](sample)
