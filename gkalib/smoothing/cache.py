"""What is kept of tokens already read: their keys and values, or the sums that a feature kernel needs."""

import torch
from torch import Tensor

from gkalib.masks import Causal, KeyPadding, Mask, Window, parts
from gkalib.shapes import check_counts, check_counts_or_none
from gkalib.smoothing.methods.linear import Linear, feature_sums
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem


class Cache:
    r"""The keys and values of one layer, up to a length fixed in advance.

    Where a layer's values are its keys, one tensor is kept for both. With a window W there are W places, and
    token p takes place p mod W from token p − W, which no query can see any more:

    $$p(s) = t - 1 - \big((t - 1 - s) \bmod W\big)$$

    is the token in place s once t tokens were read.

    Args:
        batch: how many sequences.
        length: the most tokens that it can read.
        window: the most tokens that it keeps; None is all. A layer then needs a ``Window`` of at most that.

    Raises:
        ValueError: if a count is below 1; in use, if the tokens do not fit.

    Chapter 20 teaches it.
    """

    def __init__(self, batch: int, length: int, window: int | None = None):
        check_counts("Cache", batch=batch, length=length)
        check_counts_or_none("Cache", window=window)
        self.batch, self.length, self.window, self.filled = batch, length, window, 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def places(self) -> int:
        """How many tokens it can hold at once."""
        return self.length if self.window is None else min(self.window, self.length)

    def check(self, name: str, mask: Mask | None) -> None:
        """Raise ``ValueError`` for ``name`` if the mask shows a query what the window has dropped."""
        rules = parts(mask)
        sizes = [rule.size for rule in rules if isinstance(rule, Window)]
        others = [rule for rule in rules if not isinstance(rule, Causal | Window)]
        if self.window is not None and (not sizes or min(sizes) > self.window or others):
            raise ValueError(
                f"{name}: a cache of the last {self.window} tokens needs a Window of at most {self.window}, "
                f"and no rule beside it but Causal, not {mask!r}"
            )

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the new tokens; the keys, the values and the indices of all tokens that are left to be seen.

        The indices are 0, 1, … in order, unless a window has begun to overwrite tokens.

        Args:
            key: ``[b h n d]``.
            value: ``[b h n e]``; the same tensor object as ``key`` is stored once.
        """
        new = key.shape[2]
        if key.shape[0] != self.batch:
            raise ValueError(f"Cache: made for a batch of {self.batch}, given {key.shape[0]} sequences")
        if self.filled + new > self.length:
            raise ValueError(
                f"Cache: made for {self.length} tokens, holds {self.filled} and cannot take {new} more"
            )
        if self._key is None or self._value is None:
            self._key = _places(key, self.places)
            self._value = self._key if value is key else _places(value, self.places)
        stores = [(self._key, key)]
        if self._value is not self._key:
            stores.append((self._value, value))
        start, self.filled = self.filled, self.filled + new
        if new == 1 or self.filled <= self.places:
            stop = min(self.filled, self.places)
            tensors = [store[:, :, :stop] for store, _ in stores]
            indices = self._indices(stop, self.filled, key.device)
        else:
            # Several tokens at once may see some that the next of them overwrites: they see a longer copy.
            stop = min(start, self.places)
            tensors = [torch.cat([store[:, :, :stop], tensor], 2) for store, tensor in stores]
            of_new = torch.arange(start, self.filled, device=key.device)
            indices = torch.cat([self._indices(stop, start, key.device), of_new])
        for store, tensor in stores:
            _write(store, tensor, start)
        return tensors[0], tensors[-1], indices

    def _indices(self, places: int, read: int, device: torch.device) -> Tensor:
        """Which token lies in each of the first places, when so many were read."""
        place = torch.arange(places, device=device)
        return place if read <= self.places else read - 1 - (read - 1 - place) % self.places

    @property
    def numbers(self) -> int:
        """How many numbers are kept: the length of the cache in memory, before the size of one number."""
        if self._key is None or self._value is None:
            return 0
        return self._key.numel() + (0 if self._value is self._key else self._value.numel())


class Recurrent(Method):
    r"""The sums over all keys read so far, which is all that a feature kernel needs of them.

    $$S_i = S_{i-1} + \varphi(k_i)\, [v_i^\top, 1], \qquad
    [a_i^\top, b_i] = \varphi(q_i)^\top S_i, \qquad \mathrm{out}_i = a_i / (b_i + \varepsilon)$$

    An object is one sequence, or one batch of them: each call reads the next tokens, one or many, and adds
    their keys. It stands as a method in ``smooth`` and as a cache in a layer; its size is r (e + 1) numbers
    a head, however many tokens it has read. Without a causal mask the new queries see all new keys.

    Raises:
        ValueError: if a problem has no feature map, its mask is more than ``Causal``, or it does not continue
            what was read before.

    References:
        Katharopoulos et al., Transformers are RNNs, 2020, equations 18 to 20. Chapter 11 teaches it.
    """

    name = "recurrent"
    remembers = True

    def __init__(self):
        self.filled = 0
        self.sums: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The new tokens as they are, and their indices: what a layer asks of a cache."""
        stop = self.filled + key.shape[2]
        return key, value, torch.arange(self.filled, stop, device=key.device)

    def refuses(self, problem: Problem) -> str | None:
        reason = Linear().refuses(problem)
        if reason:
            return reason
        if any(isinstance(part, KeyPadding) for part in problem.rules):
            return "a sum forgets which key was which, so KeyPadding cannot be applied to earlier ones"
        features = problem.kernel.features()
        assert features is not None  # else refused above
        if not features.one_by_one:
            return f"a key's features in {type(problem.kernel).__name__} depend on the other keys"
        if self.sums is not None:
            batch, heads, _, width = self.sums.shape
            read, given = [batch, heads, width - 1], [*problem.value.shape[:2], problem.value.shape[-1]]
            if read != given:
                return f"it has read b h e = {_spaced(read)} and cannot go on with {_spaced(given)}"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        out, self.sums = feature_sums(problem, self.sums)
        self.filled += problem.sizes[3]
        return out

    def detach(self) -> None:
        """Forget how the sums came about, so that gradients end here."""
        self.sums = None if self.sums is None else self.sums.detach()

    @property
    def numbers(self) -> int:
        """How many numbers are kept: its length in memory, before the size of one number."""
        return 0 if self.sums is None else self.sums.numel()


def _spaced(sizes: list[int]) -> str:
    return " ".join(map(str, sizes))


def _places(tensor: Tensor, places: int) -> Tensor:
    return tensor.new_zeros(*tensor.shape[:2], places, tensor.shape[3])


def _write(store: Tensor, tensor: Tensor, start: int) -> None:
    """Put tokens start, start + 1, … into their places; of those for one place, the last."""
    places = store.shape[2]
    tensor, start = tensor[:, :, -places:], start + max(0, tensor.shape[2] - places)
    first = start % places
    rest = min(tensor.shape[2], places - first)
    store[:, :, first : first + rest] = tensor[:, :, :rest]
    store[:, :, : tensor.shape[2] - rest] = tensor[:, :, rest:]
