"""How much a layer magnifies a small change of its tokens, and tokens where attention magnifies it much."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

Tokens = Float[Tensor, "b n dim"]


def steepest(layer: nn.Module, x: Tokens) -> float:
    """The largest singular value of a layer's Jacobian at any of the inputs, of all tokens by all tokens.

    Args:
        layer: takes and returns ``[b n dim]``, each item alone.
        x: the inputs.

    Taught in: chapter 6.
    """
    x = x.detach().requires_grad_()
    out = layer(x).flatten(1)
    rows = [torch.autograd.grad(one.sum(), x, retain_graph=True)[0] for one in out.unbind(1)]
    return float(torch.linalg.matrix_norm(torch.stack(rows, 1).flatten(2), 2).max())


@torch.no_grad()
def steep_inputs(layer: Any, size: float, *, tokens: int, draws: int = 10) -> Tokens:
    """Normal tokens; the same with token 0 at the origin; and with keys on two opposite sides of its query.

    Softmax attention is steep at the second kind, attention with a Gaussian and two projections at the third.

    Args:
        layer: attention with one head and square projections to queries and keys, or with none; float64.
        size: of the tokens, a factor on their entries.
        tokens: of each input, three or more.
        draws: how many inputs of each kind.

    Returns:
        Inputs, the same whenever it is called.

    Taught in: chapter 6.
    """
    generator = torch.Generator().manual_seed(1)
    x = size * torch.randn(draws, tokens, layer.dim, dtype=torch.float64, generator=generator)
    origin, between = x.clone(), x.clone()
    origin[:, 0] = 0
    side = normalize(x[:, 1], dim=-1)
    if hasattr(layer, "key"):
        query, own = layer.query(x[:, 0]), layer.key(x[:, 0])
        apart = 0.5 * (query - own).norm(dim=-1, keepdim=True) * side  # nearer to the query than its own key
        to_token = torch.linalg.inv(layer.key.weight).mT
        between[:, 1], between[:, 2] = (query + apart) @ to_token, (query - apart) @ to_token
    else:
        apart = size * side[:, None]
        between[:, 1::2], between[:, 2::2] = x[:, :1] + apart, x[:, :1] - apart
    return torch.cat([x, origin, between])
