"""A layer whose heads are of several variants."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gkalib.layers.base import Smoother, Tokens

__all__ = ["MixedAttention"]


class MixedAttention(nn.Module):
    r"""Heads of several variants side by side, and one output projection.

    $$y = \big[A_1(x), \dots, A_V(x)\big] W_O, \qquad A_v \text{ with } h_v \text{ heads of width } D / h$$

    A variant that smooths the tokens' own heads gets the channels where its heads stand.

    Args:
        dim: D.
        num_heads: h, the sum of the variants' heads times a whole number.
        heads: the shares of the variants in the order in which they stand, by name:
            ``{"gka": 3, "softmax": 1}`` gives three quarters of the heads to GKA.
        variants: for a name, what ``gkalib.attention`` returned, where options are to be bound.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if no heads are given, a share is below 1, or the shares do not divide the heads.

    References:
        Hybrid heads as in KArAt, section 4. Chapter 32 trains it.
    """

    options: ClassVar[dict[str, Any]] = {}
    sized: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        heads: dict[str, int],
        variants: dict[str, type[Smoother]] | None = None,
        length: int | None = None,
        proj_bias: bool = True,
        proj_drop: float = 0.0,
        **layer: Any,
    ):
        super().__init__()
        shares = sum(heads.values())
        if not heads or min(heads.values()) < 1:
            raise ValueError(f"mixed: heads must give each variant at least one, not {heads}")
        if num_heads % shares:
            raise ValueError(f"mixed: shares of {shares} do not divide num_heads {num_heads}")
        if dim % num_heads:
            raise ValueError(f"mixed: num_heads {num_heads} does not divide dim {dim}")
        head_dim, stop = dim // num_heads, 0
        self.branches = nn.ModuleDict()
        for name, share in heads.items():
            count = share * num_heads // shares
            start, stop = stop, stop + count * head_dim
            variant = _variant(name, variants or {})
            sized = {"length": length} if variant.sized else {}
            self.branches[name] = variant(
                dim, count, head_dim=head_dim, channels=(start, stop), project_out=False, **sized, **layer
            )
        self.proj = nn.Linear(dim, dim, bias=proj_bias, device=layer.get("device"), dtype=layer.get("dtype"))
        self.proj_drop = nn.Dropout(proj_drop)

    @classmethod
    def name(cls) -> str:
        """The variant's name."""
        return "mixed"

    def cache(self, batch: int, length: int) -> list:
        """Empty caches, one for each variant."""
        return [branch.cache(batch, length) for branch in self._smoothers()]

    def forward(
        self,
        x: Tokens,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        cache: list | None = None,
        **options: Any,
    ) -> Tokens:
        """As ``Smoother.forward``; ``cache`` is what ``cache`` made."""
        branches = self._smoothers()
        options["attn_mask"] = attn_mask
        of_heads = {
            name: self._by_branch(options.pop(name, None)) for name in ("attn_mask", "bias", "value_bias")
        }
        outs = [
            branch(
                x,
                is_causal=is_causal,
                cache=None if cache is None else cache[index],
                **{name: tensors[index] for name, tensors in of_heads.items()},
                **options,
            )
            for index, branch in enumerate(branches)
        ]
        return self.proj_drop(self.proj(torch.cat(outs, dim=-1)))

    def _by_branch(self, given: Tensor | None) -> list[Tensor | None]:
        """A tensor's heads by the variants that they belong to; what serves all heads goes to each."""
        branches = self._smoothers()
        if given is None or given.ndim < 3 or given.shape[-3] == 1:
            return [given] * len(branches)
        return list(given.split([branch.num_heads for branch in branches], dim=-3))

    def _smoothers(self) -> list[Smoother]:
        return [branch for branch in self.branches.values() if isinstance(branch, Smoother)]


def _variant(name: str, given: dict[str, type[Smoother]]) -> type[Smoother]:
    """The class of a variant: as given, else by its name."""
    from gkalib.layers import attention

    layer = given.get(name) or attention(name)
    if not issubclass(layer, Smoother):
        raise ValueError(f"mixed: {name} is no single variant")
    return layer
