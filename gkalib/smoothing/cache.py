"""Keys and values of tokens already read, kept so that the next token need not compute them again."""

import torch
from torch import Tensor


class Cache:
    """The keys and values of one layer, up to a length fixed in advance.

    Where a layer's values are its keys, one tensor is kept for both.

    Args:
        batch: how many sequences.
        length: the most tokens that it can hold.

    Raises:
        ValueError: if a count is below 1; in use, if the tokens do not fit.

    Chapter 18 teaches it.
    """

    def __init__(self, batch: int, length: int):
        if batch < 1 or length < 1:
            raise ValueError(f"Cache: batch and length must be at least 1, not {batch} and {length}")
        self.batch, self.length, self.filled = batch, length, 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the new tokens; the keys, the values and the indices of all tokens so far.

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
        if self._key is None:
            self._key = key.new_zeros(*key.shape[:2], self.length, key.shape[3])
            one = value is key
            self._value = self._key if one else value.new_zeros(*value.shape[:2], self.length, value.shape[3])
        assert self._value is not None
        stop = self.filled + new
        self._key[:, :, self.filled : stop] = key
        if self._value is not self._key:
            self._value[:, :, self.filled : stop] = value
        self.filled = stop
        keys = self._key[:, :, :stop]
        values = keys if self._value is self._key else self._value[:, :, :stop]
        return keys, values, torch.arange(stop, device=key.device)

    @property
    def numbers(self) -> int:
        """How many numbers are kept: the length of the cache in memory, before the size of one number."""
        if self._key is None or self._value is None:
            return 0
        return self._key.numel() + (0 if self._value is self._key else self._value.numel())
