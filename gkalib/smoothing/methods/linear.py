"""Kernels that are inner products of features, summed over the keys first: linear time."""

import torch
from torch import Tensor

from gkalib.masks import Causal, KeyPadding
from gkalib.normalizers import RowSum
from gkalib.smoothing.methods.method import Method, existing_keys, no_pairs, no_rule_but, no_sums
from gkalib.smoothing.problem import Problem

CHUNK = 64  # keys whose pairs are formed at once under a causal mask


class Linear(Method):
    r"""A feature kernel's sums in linear time, by associativity.

    $$\sum_j \varphi(q_i)^\top\varphi(k_j)\, v_j = \varphi(q_i)^\top \Big(\sum_j \varphi(k_j) v_j^\top\Big)$$

    Under a causal mask the sum in brackets runs over the keys so far, a chunk at a time.

    References:
        Katharopoulos et al., Transformers are RNNs, 2020. Chapter 11 teaches it.
    """

    name = "linear"

    def refuses(self, problem: Problem) -> str | None:
        if problem.kernel.features() is None:
            return f"{type(problem.kernel).__name__} is not a finite inner product of features"
        why = "does not split into sums over keys; Causal and KeyPadding do"
        reason = no_sums(problem) or no_pairs(problem) or no_rule_but(problem, Causal, KeyPadding, why=why)
        if reason:
            return reason
        if any(isinstance(rule, Causal) for rule in problem.rules):
            if problem.positions is not None:
                return "its causal sums run over keys in the order given, without positions"
            if problem.sizes[2] != problem.sizes[3]:
                return "its causal sums need as many queries as keys"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        return feature_sums(problem)[0]


def feature_sums(problem: Problem, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The output, and the sums over all keys, ``[b h r e+1]``, both after the sums of earlier keys."""
    query, key, value = problem.upcast()
    features = problem.kernel.features()
    assert features is not None  # else the method refuses
    query, key = features.query(query), features.key(key)
    # One more value column, of ones, sums the weights.
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    exists = existing_keys(problem)
    key = key if exists is None else key.masked_fill(~exists, 0.0)
    if state is None:
        state = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1])
    if any(isinstance(rule, Causal) for rule in problem.rules):
        sums, state = _causal_sums(query, key, value, state)
    else:
        state = state + key.mT @ value
        sums = query @ state
    out, total = sums[..., :-1], sums[..., -1:]
    if isinstance(problem.normalizer, RowSum):
        total = total + problem.normalizer.eps
        nothing = total == 0
        out = (out / total.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)
    return out.to(problem.query.dtype), state


def _causal_sums(query: Tensor, key: Tensor, value: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """φ(q_i)ᵀ Σ_{j ≤ i} φ(k_j) v_jᵀ, with the pairs inside a chunk formed and all earlier keys summed up."""
    sums = []
    for start in range(0, query.shape[2], CHUNK):
        q, k, v = (tensor[:, :, start : start + CHUNK] for tensor in (query, key, value))
        sums.append(q @ state + (q @ k.mT).tril() @ v)
        state = state + k.mT @ v
    return torch.cat(sums, dim=2), state
