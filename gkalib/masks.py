"""Which keys a query may see. A mask is one rule, read by every method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gkalib.shapes import check_counts, readable, takes


class Mask(nn.Module, ABC):
    """A rule that says which keys a query may see; ``first & second`` is both rules.

    The tensors of a rule, such as lengths, are buffers that are not saved.

    ``reads`` says what the numbers q and k of ``allows`` are. ``"positions"``: where query and key stand.
    ``"rows"``: the key's index, and that of the key on which the query sits, q + m − n for the query of
    index q. ``"indices"``: the indices of both. The first two differ only where positions were given, as in
    a cache that is a ring.
    """

    reads: str = "positions"

    @abstractmethod
    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """True where query q may see key k, in sequence b and head h: whole numbers that broadcast."""

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ``ValueError`` if the mask does not fit these sizes."""

    def __and__(self, other: "Mask | Callable[..., Tensor]") -> "Mask":
        return Both(self, as_mask(other)) if _is_rule(other) else NotImplemented

    def __rand__(self, other: "Callable[..., Tensor]") -> "Mask":
        return Both(as_mask(other), self) if _is_rule(other) else NotImplemented


class Causal(Mask):
    """A query sees the keys at its own position and before: ``k <= q``.

    Chapter 4 teaches it.
    """

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k <= q


class Window(Mask):
    """A query sees the keys nearer than ``size``: ``|q - k| < size``.

    With ``Causal`` these are exactly ``size`` keys. A library that keeps the keys i − S … i calls that a
    window of S; here it is ``Window(S + 1)``.

    Args:
        size: in positions, at least 1.

    Raises:
        ValueError: if ``size`` is no whole number, or below 1.

    Chapter 10 teaches it.
    """

    def __init__(self, size: int):
        super().__init__()
        check_counts("Window", size=size)
        self.size = size

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).abs() < self.size

    def extra_repr(self) -> str:
        return str(self.size)


class KeyPadding(Mask):
    """In each sequence of the batch only the first ``lengths[b]`` keys exist.

    Args:
        lengths: ``[b]``, whole numbers from 0; those above m are all keys, as those of a cache so far.

    Raises:
        ValueError: if ``lengths`` is not a vector of whole numbers, one is negative, or they do not fit the
            batch in use.

    Chapter 4 teaches it.
    """

    reads = "rows"
    lengths: Tensor

    def __init__(self, lengths: Tensor):
        super().__init__()
        if lengths.ndim != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(
                f"KeyPadding: lengths must be whole numbers [b], not {lengths.dtype} {list(lengths.shape)}"
            )
        if readable(lengths) and (lengths < 0).any():
            raise ValueError(f"KeyPadding: lengths must be zero or more, not {lengths.min()}")
        self.register_buffer("lengths", lengths, persistent=False)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k < self.lengths[b]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        if self.lengths.shape[0] != batch:
            raise ValueError(f"KeyPadding has {self.lengths.shape[0]} lengths for a batch of {batch}")

    def extra_repr(self) -> str:
        return f"{self.lengths.shape[0]} lengths"


class Document(Mask):
    """A query sees the keys of its own document, in sequences packed one after another.

    Args:
        ids: the document of each key, whole numbers ``[m]`` or ``[b m]``. With fewer queries than keys the
            last query belongs to the last key's document, and so on backwards.

    Raises:
        ValueError: if ``ids`` is of another type or shape, or there are more queries than keys in use.

    Chapter 4 teaches it.
    """

    reads = "rows"
    ids: Tensor

    def __init__(self, ids: Tensor):
        super().__init__()
        if ids.ndim not in (1, 2) or ids.is_floating_point():
            raise ValueError(
                f"Document: ids must be whole numbers [m] or [b m], not {ids.dtype} {list(ids.shape)}"
            )
        self.register_buffer("ids", ids if ids.ndim == 2 else ids[None], persistent=False)
        self._packed: bool | None = None
        if type(ids) is Tensor and ids.device.type == "cpu" and not torch.compiler.is_compiling():
            self.packed()  # before a device has them

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        b = b if self.ids.shape[0] > 1 else torch.zeros_like(b)
        return self.ids[b, q] == self.ids[b, k]

    @classmethod
    def of_lengths(cls, lengths: Sequence[int], device: torch.device | str | None = None) -> "Document":
        """The mask of sequences packed one after another, from their lengths."""
        wrong = [length for length in lengths if length < 1]
        if wrong or not lengths:
            raise ValueError(f"Document: every length must be at least 1, not {list(lengths)}")
        ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths), output_size=sum(lengths))
        mask = cls(ids.to(device) if device is not None else ids)
        mask._packed = True
        return mask

    def packed(self) -> bool:
        """Whether each document is one run of tokens.

        Looked up once: when the mask is made, of ids on the host, else here, waiting for the device; for
        ``of_lengths`` never. While a graph is traced or captured the answer is yes, and the graph stops with
        an error if it was not.
        """
        if self._packed is None:
            ordered = self.ids.sort(-1).values
            runs, documents = (1 + (ids.diff(dim=-1) != 0).sum(-1) for ids in (self.ids, ordered))
            if torch.compiler.is_compiling() or _capturing(self.ids):
                whole, message = (runs == documents).all(), "Document: a document is not one run of tokens"
                torch.ops.aten._assert_async.msg(whole, message)
                return True
            self._packed = bool((runs == documents).all())
        return self._packed

    def runs(self) -> tuple[Tensor, Tensor]:
        """Where each token's run starts and where the next one does, each ``[1 m]`` or ``[b m]``."""
        new = torch.nn.functional.pad(self.ids.diff(dim=-1) != 0, (1, 0), value=True)
        run = new.cumsum(-1)
        return torch.searchsorted(run, run), torch.searchsorted(run, run, right=True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        if self.ids.shape[0] not in (1, batch) or self.ids.shape[1] != keys or queries > keys:
            raise ValueError(
                f"Document has ids {list(self.ids.shape)}, which do not fit a batch of {batch} with "
                f"{queries} queries and {keys} keys"
            )

    def extra_repr(self) -> str:
        return str(list(self.ids.shape))


class Pairs(Mask):
    """A mask given pair by pair; ``smooth`` wraps a boolean tensor in it.

    Args:
        allowed: True where the query may see the key, ``[n m]``, or with heads and batch in front; an axis of
            1 serves all.

    Raises:
        ValueError: if ``allowed`` is not boolean, or does not fit the problem in use.

    Chapter 4 teaches it.
    """

    reads = "indices"
    allowed: Tensor

    def __init__(self, allowed: Tensor):
        super().__init__()
        if allowed.dtype != torch.bool or not 2 <= allowed.ndim <= 4:
            raise ValueError(
                f"mask must be boolean [n m], [h n m] or [b h n m], True where a key is seen, not "
                f"{allowed.dtype} {list(allowed.shape)}; numbers to add are a bias"
            )
        allowed = allowed.reshape(*[1] * (4 - allowed.ndim), *allowed.shape)
        self.register_buffer("allowed", allowed, persistent=False)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        sizes = self.allowed.shape
        return self.allowed[
            tuple(i if n > 1 else torch.zeros_like(i) for i, n in zip((b, h, q, k), sizes, strict=True))
        ]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        wanted = (batch, heads, queries, keys)
        if any(have not in (1, want) for have, want in zip(self.allowed.shape, wanted, strict=True)):
            raise ValueError(
                f"mask {list(self.allowed.shape)} does not broadcast to the weights' "
                f"(b h n m = {' '.join(map(str, wanted))})"
            )

    def extra_repr(self) -> str:
        return str(list(self.allowed.shape))


class MaskFunction(Mask):
    """A rule given as a function, as FlexAttention takes it; ``smooth`` wraps a function in it.

    Args:
        function: from whole numbers b, h, q and k that broadcast to True where the query may see the key. q
            and k count keys from the first one that a cache holds, and the last query has the last key's
            number, so that decoding sees the same rows as training.

    Raises:
        ValueError: in use, where positions are given or the result is no boolean tensor.

    Chapter 4 teaches masks.
    """

    reads = "rows"

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        if not torch.compiler.is_compiling() and not takes(function, 4):
            name = getattr(function, "__name__", repr(function))
            raise ValueError(f"mask must be a function of four numbers (b, h, q, k), which {name} is not")
        self.function = function

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        allowed = self.function(b, h, q, k)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            kind = allowed.dtype if isinstance(allowed, Tensor) else repr(allowed)
            raise ValueError(f"smooth: the mask {self!r} must return a boolean tensor, not {kind}")
        if not torch.compiler.is_compiling():
            sizes = torch.broadcast_shapes(*(number.shape for number in (b, h, q, k)))
            given = (1,) * (len(sizes) - allowed.ndim) + tuple(allowed.shape)
            if len(given) > len(sizes) or any(n not in (1, m) for n, m in zip(given, sizes, strict=True)):
                raise ValueError(
                    f"smooth: the mask {self!r} must return a tensor that broadcasts to b, h, q and k "
                    f"{list(sizes)}, not {list(allowed.shape)}"
                )
        return allowed

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


class Both(Mask):
    """A query sees the keys that two masks allow; written ``first & second``."""

    def __init__(self, first: Mask, second: Mask):
        super().__init__()
        self.first = first
        self.second = second

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.first.allows(b, h, q, k) & self.second.allows(b, h, q, k)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        self.first.check(batch, heads, queries, keys)
        self.second.check(batch, heads, queries, keys)

    def __repr__(self) -> str:
        return f"{self.first!r} & {self.second!r}"


def _capturing(tensor: Tensor) -> bool:
    """Whether what is done with a tensor is captured in a CUDA graph, which cannot wait for a number."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _is_rule(rule: object) -> bool:
    """Whether it is a mask, or a function that can be one; a class or another kind of module is neither."""
    return isinstance(rule, Mask) or (callable(rule) and not isinstance(rule, type | nn.Module | Tensor))


def as_mask(rule: Mask | Tensor | Callable[..., Tensor]) -> Mask:
    """A mask as it is; a boolean tensor, or a function, wrapped in one.

    Raises:
        ValueError: if it is none of these.
    """
    if isinstance(rule, Mask):
        return rule
    if isinstance(rule, Tensor):
        return Pairs(rule)
    if not _is_rule(rule):
        raise ValueError(
            "mask must be a gkalib mask such as Causal(), a boolean tensor, or a function (b, h, q, k), not "
            f"{rule!r}"
        )
    return MaskFunction(rule)


def mask_and_bias(attn_mask: Tensor | None, *, name: str) -> tuple[Mask | None, Tensor | None]:
    """A mask and a bias from PyTorch's one argument for both.

    Args:
        attn_mask: True where a key is seen; or numbers to add to the scores, of which −∞ hides a key.
        name: of the caller, for errors.
    """
    if attn_mask is None:
        return None, None
    boolean = attn_mask.dtype == torch.bool
    if not (boolean or attn_mask.is_floating_point()) or not 2 <= attn_mask.ndim <= 4:
        raise ValueError(
            f"{name}: attn_mask must be boolean, True where a key is seen, or numbers to add to the scores, "
            f"[n m], [h n m] or [b h n m], not {attn_mask.dtype} {list(attn_mask.shape)}"
        )
    if boolean:
        return Pairs(attn_mask), None
    hidden = attn_mask.isneginf()
    bias = attn_mask.masked_fill(hidden, 0.0)
    nothing = readable(bias) and not bias.requires_grad and not bias.any()
    return Pairs(~hidden), None if nothing else bias


CAUSAL = Causal()  # to make a module costs more than a small forward pass


def joined(first: Mask | None, second: Mask | None) -> Mask | None:
    """Two rules as one, where either may be missing."""
    if first is None or second is None:
        return first or second
    return first & second


def added(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Two biases as one, where either may be missing."""
    if first is None or second is None:
        return first if second is None else second
    return first + second


def parts(mask: Mask | None) -> list[Mask]:
    """The single rules of a mask that ``&`` may have joined; none where there is no mask."""
    if isinstance(mask, Both):
        return parts(mask.first) + parts(mask.second)
    return [] if mask is None else [mask]
