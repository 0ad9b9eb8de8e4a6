"""Smoothers of low rank: queries and keys meet through a few landmarks instead of pair by pair."""

import random

import torch
from torch import Tensor

from gkalib.masks import KeyPadding
from gkalib.normalizers import Unnormalized
from gkalib.shapes import check_counts, check_counts_or_none, check_known, check_not_negative
from gkalib.smoothing.methods.method import (
    Method,
    existing_keys,
    lengths_of,
    no_pairs,
    no_rule_but,
    no_sums,
)
from gkalib.smoothing.problem import Problem

SAMPLINGS = ("uniform", "spaced")


def refuses_pairs(problem: Problem, *, why: str) -> str | None:
    """Why a method that mixes keys cannot compute this: masks of pairs, and kernels of the lag."""
    reason = no_rule_but(problem, KeyPadding, why=f"forbids pairs of query and key, and {why}")
    if reason is None and problem.kernel.of_lag:
        reason = f"{type(problem.kernel).__name__} compares positions, and {why}"
    return reason or no_pairs(problem)


def refuses_few(problem: Problem, rank: int, *, halves: int = 1) -> str | None:
    """Why there cannot be so many landmarks, of queries and of keys each, or half of them where halved.

    Args:
        rank: as the caller gave it.
        halves: 2 if half the landmarks are queries and half are keys.
    """
    _, _, queries, keys = problem.sizes
    each = f"{rank} landmarks" if halves == 1 else f"half of the {rank} landmarks"
    if rank > halves * min(queries, keys):
        return f"{each} are more than the {min(queries, keys)} tokens"
    lengths = lengths_of(problem)
    if lengths is not None and not torch.compiler.is_compiling() and lengths.numel():
        shortest = int(lengths.min())
        if halves * shortest < rank:
            return f"{each} are more than the {shortest} tokens of the shortest sequence"
    return None


def segment_means(tokens: Tensor, rank: int, lengths: Tensor | None) -> Tensor:
    """Means of r stretches whose lengths differ by one token at most, ``[b h n d]`` to ``[b h r d]``.

    Args:
        lengths: how many tokens of each sequence are divided, ``[b]``; None is all.
    """
    count = tokens.shape[2]
    if lengths is None and count % rank == 0:
        return tokens.unflatten(2, (rank, count // rank)).mean(3)
    place = torch.arange(count, device=tokens.device)
    stretch = place * rank // (count if lengths is None else lengths[:, None, None])
    member = (stretch == torch.arange(rank, device=tokens.device)[:, None]).to(tokens.dtype)
    means = member / member.sum(-1, keepdim=True)
    return (means if lengths is None else means[:, None]) @ tokens


class Nystrom(Method):
    r"""Queries reach the keys through landmarks, the means of stretches of tokens: three small smoothers.

    $$\mathrm{out} = W(Q, \tilde K)\; W(\tilde Q, \tilde K)^+\; W(\tilde Q, K)\, V$$

    W(A, B) are the weights of the queries A on the keys B. With as many landmarks as tokens and the exact
    inverse it is the definition. Padding stays out of the landmarks, and where there are as many queries as
    keys out of the queries' landmarks too.

    Args:
        rank: r, the number of landmarks of the queries, and of the keys.
        iterations: steps towards the inverse, of which the authors take six; None is the pseudo-inverse.

    Raises:
        ValueError: if ``rank`` or ``iterations`` is below 1.

    References:
        Xiong et al., Nyströmformer, 2021, equation 14. Chapter 12 teaches it.
    """

    name = "nystrom"
    exact = False

    def __init__(self, rank: int = 64, *, iterations: int | None = 6):
        check_counts("Nystrom", rank=rank)
        check_counts_or_none("Nystrom", iterations=iterations)
        self.rank, self.iterations = rank, iterations

    def refuses(self, problem: Problem) -> str | None:
        if problem.kernel.signed:
            return f"{type(problem.kernel).__name__} may be negative, and its rows need not have a sum"
        why = "a landmark stands for many tokens"
        return no_sums(problem) or refuses_pairs(problem, why=why) or refuses_few(problem, self.rank)

    def __call__(self, problem: Problem) -> Tensor:
        query, key, value = problem.upcast()
        lengths = lengths_of(problem)
        same = problem.sizes[2] == problem.sizes[3]
        few_queries = segment_means(query, self.rank, lengths if same else None)
        few_keys = segment_means(key, self.rank, lengths)
        log, weights = problem.kernel.log, problem.normalizer
        last, exists = log(few_queries, key), existing_keys(problem)
        last = last if exists is None else last.masked_fill(~exists.mT, -torch.inf)
        inverse = pseudo_inverse(weights(log(few_queries, few_keys)), self.iterations)
        out = weights(log(query, few_keys)) @ (inverse @ (weights(last) @ value))
        return out.to(problem.query.dtype)


class Skyformer(Method):
    r"""Gaussian sums through landmarks among queries and keys together, where the Gram matrix is symmetric.

    $$\mathrm{out} = \kappa(Q, L)\,\big(\kappa(L, L) + \lambda I\big)^{-1} \kappa(L, K)\, V, \qquad
    L \subset [Q; K]$$

    Half the landmarks are queries, half are keys. Before it is inverted, the matrix in brackets is scaled by
    the roots of its row sums from both sides, so that its eigenvalues are in (0, 1]. Padding is never drawn.

    Args:
        rank: the number of landmarks, even.
        ridge: λ ≥ 0; 0.1 is the authors' code, their text has it as a small number.
        iterations: steps towards the inverse, of which the authors take six; None is the exact inverse.
        sampling: ``"uniform"``, independent draws as the authors have them, so that a token may be drawn
            twice; or ``"spaced"``, the middles of equal stretches, which is every token if there are enough.
        seed: of the draws, which are then the same in every call, head and sequence; None draws anew in every
            call, as the authors' code does.

    Raises:
        ValueError: if ``rank`` is not even and positive, ``ridge`` is negative, or an option is unknown.

    References:
        Chen et al., Skyformer, 2021, equations 4 and 5. Chapter 12 teaches it.
    """

    name = "skyformer"
    exact = False

    def __init__(
        self,
        rank: int = 128,
        *,
        ridge: float = 0.1,
        iterations: int | None = 6,
        sampling: str = "uniform",
        seed: int | None = 0,
    ):
        if rank < 2 or rank % 2:
            raise ValueError(f"Skyformer: rank must be even, half queries and half keys, not {rank}")
        check_not_negative("Skyformer", "ridge", ridge)
        check_known("Skyformer", "sampling", sampling, SAMPLINGS)
        check_counts_or_none("Skyformer", iterations=iterations)
        self.rank, self.ridge, self.iterations = rank, ridge, iterations
        self.sampling, self.seed = sampling, seed
        middles = [(i + 0.5) / (rank // 2) for i in range(rank // 2)]
        draw = random.Random(seed)
        uniform = [draw.random() for _ in range(rank)]
        # Where in its sequence each landmark stands, from 0 to 1: queries first, then keys.
        self._fractions = 2 * middles if sampling == "spaced" else uniform

    def refuses(self, problem: Problem) -> str | None:
        form = problem.form
        if form is None or form.sigma is None or form.key_bias is not None or form.lag_table is not None:
            return f"the lift over queries and keys is made for Gaussian, not {type(problem.kernel).__name__}"
        if not isinstance(problem.normalizer, Unnormalized):
            return f"the sums of an approximated row may be zero or negative, so no {problem.normalizer!r}"
        return refuses_pairs(problem, why="a landmark stands for many tokens") or refuses_few(
            problem, self.rank, halves=2
        )

    def __call__(self, problem: Problem) -> Tensor:
        query, key, value = problem.upcast()
        lengths = lengths_of(problem)
        same = problem.sizes[2] == problem.sizes[3]
        of_queries, of_keys = self._places(query).chunk(2)
        landmarks = torch.cat(
            [_chosen(query, of_queries, lengths if same else None), _chosen(key, of_keys, lengths)], dim=2
        )
        kernel = problem.kernel
        middle = kernel(landmarks, landmarks)
        middle = middle + self.ridge * torch.eye(self.rank, dtype=middle.dtype, device=middle.device)
        scale = middle.sum(-1, keepdim=True).rsqrt()
        middle = scale * middle * scale.mT
        inverse = pseudo_inverse(middle, self.iterations, bound=middle.sum(-2).amax(-1))
        exists = existing_keys(problem)
        value = value if exists is None else value * exists
        out = kernel(query, landmarks) @ (scale * (inverse @ (scale * (kernel(landmarks, key) @ value))))
        return out.to(problem.query.dtype)

    def _places(self, like: Tensor) -> Tensor:
        """Where the landmarks stand in their sequences, from 0 to 1."""
        if self.sampling == "uniform" and self.seed is None:
            return torch.rand(self.rank, dtype=torch.float64, device=like.device)
        return torch.tensor(self._fractions, dtype=torch.float64, device=like.device)


def _chosen(tokens: Tensor, places: Tensor, lengths: Tensor | None) -> Tensor:
    """The tokens at some places from 0 to 1 of each sequence, ``[b h n d]`` to ``[b h r d]``."""
    if lengths is None:
        return tokens[:, :, (places * tokens.shape[2]).long()]
    indices = (places * lengths[:, None]).long()[:, None, :, None]
    return tokens.gather(2, indices.expand(-1, tokens.shape[1], -1, tokens.shape[3]))


def pseudo_inverse(matrix: Tensor, iterations: int | None = None, *, bound: Tensor | None = None) -> Tensor:
    r"""The pseudo-inverse A⁺, by singular values or by an iteration towards it.

    $$Z_0 = A^\top / \beta, \qquad Z \leftarrow \tfrac14 Z\big(13 I - AZ(15 I - AZ(7 I - AZ))\big)$$

    Each singular value s of A goes its own way: t = s²/β is mapped to ¼ t (13 − t (15 − t (7 − t))) in every
    step, and s is inverted as far as t has come to 1. A small t grows by a factor of 13/4 a step, so six
    steps leave the directions with s² far below β/1200 out of the inverse.

    Args:
        matrix: A, ``[... r r]``.
        iterations: how many steps; None is the pseudo-inverse itself, by a decomposition.
        bound: β, ``[...]``, at least the square of A's largest singular value; None is the largest sum of a
            column times that of a row.

    References:
        Razavi et al., A new iterative method for finding approximate inverses, 2014; Xiong et al., 2021.
        Chapter 12 shows how far six steps come.
    """
    if iterations is None:
        return torch.linalg.pinv(matrix)
    if bound is None:
        bound = matrix.abs().sum(-2).amax(-1) * matrix.abs().sum(-1).amax(-1)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / bound[..., None, None]
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * eye - product @ (15 * eye - product @ (7 * eye - product))) / 4
    return inverse
