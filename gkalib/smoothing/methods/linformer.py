"""Fewer keys: a learned matrix makes a few keys and values of many."""

from dataclasses import replace

from torch import Tensor, nn

from gkalib.smoothing.methods.dense import Dense
from gkalib.smoothing.methods.landmarks import refuses_pairs
from gkalib.smoothing.methods.method import Method, existing_keys
from gkalib.smoothing.problem import Problem


class Linformer(Method, nn.Module):
    r"""Smoothing over a few keys, each a linear combination of all of them along the sequence.

    $$\mathrm{out} = W(Q, E K)\, F V, \qquad E, F \in \mathbb R^{r \times m}$$

    With E = F = I it is the definition. A sequence shorter than the maps uses their first columns, and padded
    tokens are left out of the combinations. The r new keys exist in any case: with E = I and padding, those
    made of padding are zero vectors, and keep their share.

    Args:
        key_map: E, ``[r m]``, or ``[h r m]`` with one for each head; a parameter is learned.
        value_map: F, as E; None is E.

    Raises:
        ValueError: if the maps have other shapes, or E and F make different numbers of keys and values.

    References:
        Wang et al., Linformer, 2020, equation 7. Chapter 12 teaches it.
    """

    name = "linformer"
    exact = False
    key_map: Tensor
    value_map: Tensor | None

    def __init__(self, key_map: Tensor, value_map: Tensor | None = None):
        super().__init__()
        for label, given in (("key_map", key_map), ("value_map", value_map)):
            if given is not None and given.ndim not in (2, 3):
                raise ValueError(f"Linformer: {label} must be [r m] or [h r m], not {list(given.shape)}")
        if value_map is not None and value_map.shape[-2:] != key_map.shape[-2:]:
            raise ValueError(
                f"Linformer: key_map {list(key_map.shape)} and value_map {list(value_map.shape)} differ in "
                "r or m"
            )
        for label, given in (("key_map", key_map), ("value_map", value_map)):
            if given is None or isinstance(given, nn.Parameter):
                self.register_parameter(label, given)
            else:
                self.register_buffer(label, given)

    def refuses(self, problem: Problem) -> str | None:
        _, heads, _, keys = problem.sizes
        for given in (self.key_map, self.value_map):
            if given is not None and given.ndim == 3 and given.shape[0] not in (1, heads):
                return f"its maps are made for {given.shape[0]} heads, query has {heads}"
        if keys > self.key_map.shape[-1]:
            return f"its maps are made for {self.key_map.shape[-1]} tokens, key has {keys}"
        return refuses_pairs(problem, why="every new key is made of all tokens")

    def __call__(self, problem: Problem) -> Tensor:
        _, key, value = problem.upcast()
        exists = existing_keys(problem)
        if exists is not None:
            key, value = key * exists, value * exists
        key_map = self.key_map[..., : key.shape[2]].to(key.dtype)
        value_map = key_map if self.value_map is None else self.value_map[..., : key.shape[2]].to(key.dtype)
        dtype = problem.query.dtype
        key, value = (key_map @ key).to(dtype), (value_map @ value).to(dtype)
        few_keys = {"grouped_key": key, "grouped_value": value, "mask": None, "positions": None}
        return Dense()(replace(problem, **few_keys, one_tensor=False))
