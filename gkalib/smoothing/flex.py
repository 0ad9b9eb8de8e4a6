"""Kernels with a form through PyTorch's FlexAttention, which compiles them into one loop."""

import functools
import logging
import shutil
from collections.abc import Callable
from typing import no_type_check

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from gkalib.kernels import Form
from gkalib.masks import Place
from gkalib.normalizers import RowSum
from gkalib.smoothing.method import Method
from gkalib.smoothing.problem import Problem


@functools.cache
def _compiled() -> Callable:
    """FlexAttention compiled once; each new combination of shapes and slots compiles anew inside."""
    logging.getLogger("gkalib").info("smooth: compiling FlexAttention, which takes up to a minute")
    return torch.compile(flex_attention, dynamic=False)


class Flex(Method):
    """FlexAttention with the kernel's form as its score function.

    No array of n × m numbers is stored. On a CPU PyTorch has the forward pass only, in float32 and with a C++
    compiler at hand.

    References:
        Dong et al., Flex Attention, 2024. Chapter 14 teaches it.
    """

    name = "flex"

    def refuses(self, problem: Problem) -> str | None:
        if problem.form() is None:
            return f"{type(problem.kernel).__name__} has no form scale · q·k + a(q) + b(k) + t(lag)"
        if not (isinstance(problem.normalizer, RowSum) and problem.normalizer.eps == 0):
            return f"FlexAttention normalizes by the row sum only, not {problem.normalizer!r}"
        if problem.query.device.type == "cpu":
            if problem.needs_grad:
                return "PyTorch has no backward pass of FlexAttention on a CPU"
            if problem.query.dtype != torch.float32:
                return f"on a CPU FlexAttention is used in float32 only, not {problem.query.dtype}"
            if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
                return "FlexAttention on a CPU needs a C++ compiler, and none was found"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        form = problem.form()
        assert form is not None  # else it refuses
        query, key, value = problem.query, problem.key, problem.value
        if query.device.type == "cpu":
            # The CPU's code takes no two inputs that share memory.
            key = key.clone() if key.data_ptr() == query.data_ptr() else key
            value = value.clone() if value.data_ptr() in (query.data_ptr(), problem.key.data_ptr()) else value
        return _compiled()(query, key, value, score_mod=_score_mod(problem, form), scale=1.0).to(query.dtype)


def _per_head(scale: float | Tensor, heads: int, query: Tensor) -> Tensor:
    """The form's scale as one float32 number per head, ``[h]``."""
    scale = torch.as_tensor(scale, dtype=torch.float32, device=query.device)
    return scale.reshape(-1).expand(heads).contiguous()


@no_type_check  # FlexAttention counts the arguments of the function it is given
def _score_mod(problem: Problem, form: Form) -> Callable:
    """The kernel's logarithm from the dot product, −∞ where masked."""
    batch, heads, queries, keys = problem.sizes
    scale = _per_head(form.scale, heads, problem.query)
    key_bias = None if form.key_bias is None else form.key_bias(problem.key.float())
    table = None if form.lag_table is None else form.lag_table(problem.lag_count()).float()
    # FlexAttention's CPU code cannot capture an expanded view.
    query_position = problem.query_position.expand(batch, queries).contiguous()
    key_position = problem.key_position.expand(batch, keys).contiguous()

    def log_kernel(score, b, h, i, j):
        score = score * scale[h]
        if key_bias is not None:
            score = score + key_bias[b, h, j]
        place = Place(b, h, i, j, query_position[b, i], key_position[b, j], queries, keys)
        if table is not None:
            score = score + table[h % table.shape[0], (place.query_position - place.key_position).abs()]
        if problem.mask is not None:
            score = torch.where(problem.mask.allows(place), score, -torch.inf)
        return score

    return log_kernel
