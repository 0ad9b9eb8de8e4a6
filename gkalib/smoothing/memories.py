"""Memories of fixed size: a linear map from keys to values that is fitted token by token."""

from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from gkalib.kernels import Dot
from gkalib.masks import Causal, Document
from gkalib.normalizers import Unnormalized
from gkalib.shapes import check_counts, check_known
from gkalib.smoothing.methods.conjugate import solved
from gkalib.smoothing.methods.method import Method, no_pairs, no_rule_but
from gkalib.smoothing.problem import Problem

RULES = ("gated", "delta", "mesa")
FORMS = ("chunked", "recurrent", "fla")


class State:
    """What a memory holds of the tokens read so far: the cache of its layer, of a size that does not grow.

    Args:
        batch: how many sequences.

    Raises:
        ValueError: if ``batch`` is below 1; in use, if the tokens are of another number of sequences.
    """

    def __init__(self, batch: int):
        check_counts("State", batch=batch)
        self.batch, self.filled = batch, 0
        self.sums: tuple[Tensor, ...] = ()

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The new tokens as they are, and their indices: what a layer asks of a cache."""
        if key.shape[0] != self.batch:
            raise ValueError(f"State: made for a batch of {self.batch}, given {key.shape[0]} sequences")
        return key, value, torch.arange(self.filled, self.filled + key.shape[2], device=key.device)

    @property
    def numbers(self) -> int:
        """How many numbers are kept."""
        return sum(each.numel() for each in self.sums)


@dataclass(eq=False)
class MemoryProblem(Problem):
    """A problem with what the tokens say of the memory.

    Args:
        decay: log a, of what is kept when a token is read, ``[b h n]``; None keeps everything.
        rate: β of each token, ``[b h n]``; None is 1.
        ridge: λ, ``[h]``, of ``mesa``.
        state: what was read before, which a call changes.
    """

    decay: Tensor | None = None
    rate: Tensor | None = None
    ridge: Tensor | None = None
    state: State | None = None

    @classmethod
    def of(cls, problem: Problem, **gates: Any) -> "MemoryProblem":
        """A problem, with gates."""
        return cls(
            **{each.name: getattr(problem, each.name) for each in fields(problem) if each.init}, **gates
        )


class Memory(Method):
    r"""out_t = S_t q_t, where S_t is fitted to the pairs so far, newer ones first.

    $$\begin{aligned}
    \texttt{gated}&:& S_t &= a_t S_{t-1} + v_t k_t^\top \\
    \texttt{delta}&:& S_t &= a_t S_{t-1} - \beta_t (a_t S_{t-1} k_t - v_t)\, k_t^\top \\
    \texttt{mesa}&:& S_t &= G_t (H_t + \lambda I)^{-1}, \quad
    G_t = a_t G_{t-1} + v_t k_t^\top, \quad H_t = a_t H_{t-1} + k_t k_t^\top
    \end{aligned}$$

    With $\Gamma_{ij} = a_{j+1} \cdots a_i$ and $g_i = a_1 \cdots a_i$ within a chunk, and $U$ the values
    that are written, $S_i = g_i S_0 + \sum_{j \le i} \Gamma_{ij} u_j k_j^\top$, so that a chunk is

    $$U = \big(I + \mathrm{tril}(\mathrm{diag}(\beta)\, \Gamma \odot K K^\top, -1)\big)^{-1}
    \mathrm{diag}(\beta) \big(V - \mathrm{diag}(g) K S_0^\top\big), \qquad
    O = \mathrm{diag}(g)\, Q S_0^\top + (\Gamma \odot Q K^\top)\, U$$

    under ``delta``; ``gated`` has U = V. ``mesa`` solves $(H_t + \lambda I) p_t = q_t$ for p by conjugate
    gradients, in at most 2d steps, whose products are those of O with K for U, and reads with p for q. At the
    border of two documents a is zero.

    Args:
        rule: ``"gated"``, ``"delta"`` or ``"mesa"``.
        form: ``"chunked"``; ``"recurrent"``, token by token as above, with Cholesky's solution; or ``"fla"``,
            the programs of flash-linear-attention (package ``fla-core``) on a card, in half precision. We
            have not run these ourselves, so that they are taken by name alone.
        chunk: how many tokens are read at once.

    Raises:
        ValueError: if an option is unknown or a count below 1; in use, if the problem is no layer's with
            gates, or has another kernel than ``Dot()``, another normalizer than ``Unnormalized()``, a bias,
            positions, or a mask that is more than ``Causal`` and ``Document``.

    References:
        Sun et al., Retentive network, 2023; Dao and Gu, Mamba-2, 2024 (``gated``); Schlag et al., 2021;
        Yang et al., Parallelizing linear transformers with the delta rule, 2024, and Gated delta networks,
        2025 (``delta``); von Oswald et al., MesaNet, 2025 (``mesa``). Chapter 15 derives them.
    """

    exact = False  # it is no kernel's sum, and chosen by its layer alone
    remembers = True

    def __init__(self, rule: str, form: str = "chunked", *, chunk: int = 64):
        check_known("Memory", "rule", rule, RULES)
        check_known("Memory", "form", form, FORMS)
        check_counts("Memory", chunk=chunk)
        self.rule, self.form, self.chunk = rule, form, chunk
        self.name = f"{rule}, {form}"

    def refuses(self, problem: Problem) -> str | None:
        if not isinstance(problem, MemoryProblem):
            return "a memory has gates, which a layer makes of its tokens"
        if not isinstance(problem.kernel, Dot) or not isinstance(problem.normalizer, Unnormalized):
            return f"a memory has Dot() and Unnormalized(), not {problem.kernel!r} and {problem.normalizer!r}"
        reason = no_pairs(problem) or no_rule_but(
            problem, Causal, Document, why="does not say where a state begins; Causal and Document do"
        )
        if reason:
            return reason
        if not any(isinstance(rule, Causal) for rule in problem.rules):
            return "a state holds the tokens read so far, so that the mask must be causal"
        if problem.positions is not None or problem.sizes[2] != problem.sizes[3]:
            return "it reads tokens in their order, each with its query and its key, without positions"
        documents = [rule for rule in problem.rules if isinstance(rule, Document)]
        if problem.state is not None and documents:
            return "a cache goes on with one document"
        read = problem.state.sums if problem.state is not None else ()
        if read and read[0].shape[1:3] != (problem.sizes[1], problem.value.shape[3]):
            return f"its state is of {list(read[0].shape[1:3])} heads and values, the problem of others"
        if not all(rule.packed() for rule in documents):
            return "a document of the mask is not one run of tokens"
        return _no_fla(self.rule, problem) if self.form == "fla" else None

    def __call__(self, problem: Problem) -> Tensor:
        assert isinstance(problem, MemoryProblem)  # else it refuses
        query, key, value = problem.upcast()
        state, count = problem.state, key.shape[2]
        sums = state.sums if state is not None else ()
        if not sums:
            widths = [value.shape[-1], key.shape[-1]] if self.rule == "mesa" else [value.shape[-1]]
            sums = tuple(key.new_zeros(*key.shape[:2], width, key.shape[-1]) for width in widths)
        gates = {"decay": problem.decay, "rate": problem.rate}
        gates = {name: key.new_zeros(key.shape[:3]) if x is None else x.to(key) for name, x in gates.items()}
        if problem.rate is None:
            gates["rate"] = gates["rate"] + 1
        run = _border(problem)
        ridge = None if problem.ridge is None else problem.ridge.to(key)[:, None, None]
        if self.form == "fla":
            out, sums = _by_fla(self.rule, problem, sums)
        else:
            size = self.chunk if self.form == "chunked" else 1
            outs = []
            for start in range(0, count, size):
                rows = slice(start, start + size)
                tokens = [each[:, :, rows] for each in (query, key, value, *gates.values())]
                here = None if run is None else run[..., max(start - 1, 0) : start + size]
                if self.form == "chunked":
                    out, sums = self._read_chunk(tokens, here, start > 0, sums, ridge)
                else:
                    out, sums = self._read_token(tokens, here, sums, ridge)
                outs.append(out)
            out = torch.cat(outs, dim=2)
        if state is not None:
            state.sums, state.filled = sums, state.filled + count
        return out.to(problem.query.dtype)

    def _read_token(self, tokens, run, sums, ridge):
        """One token by the definition; the output ``[b h 1 e]`` and the sums after it."""
        query, key, value, decay, rate = tokens
        keep = decay.exp()[..., None]
        if run is not None and run.shape[-1] == 2:
            keep = keep * (run[..., 0] == run[..., 1])[:, None, None, None]
        first = keep * sums[0]
        if self.rule == "delta":
            value = rate[..., None] * (value - key @ first.mT)
        first = first + value.mT @ key
        if self.rule != "mesa":
            return query @ first.mT, (first,)
        squares = keep * sums[1] + key.mT @ key
        eye = torch.eye(key.shape[-1], dtype=key.dtype, device=key.device)
        query = torch.cholesky_solve(query.mT, torch.linalg.cholesky(squares + ridge * eye)).mT
        return query @ first.mT, (first, squares)

    def _read_chunk(self, tokens, run, goes_on, sums, ridge):
        """Some tokens at once; the output ``[b h c e]`` and the sums after them."""
        query, key, value, decay, rate = tokens
        pairs, carried = _fading(decay, run, goes_on)
        if self.rule == "delta":
            system = rate[..., None] * (pairs * (key @ key.mT)).tril(-1)  # the diagonal is taken for ones
            right = rate[..., None] * (value - carried * (key @ sums[0].mT))
            value = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        elif self.rule == "mesa":
            # d steps are enough but for rounding
            query = solved("state", 2 * key.shape[-1], query, sums[1], key, pairs, carried, ridge)
        out = carried * (query @ sums[0].mT) + (pairs * (query @ key.mT)) @ value
        last, kept = pairs[..., -1, :, None], carried[..., -1:, :]
        written = (value, key) if self.rule == "mesa" else (value,)
        return out, tuple(kept * old + (last * new).mT @ key for old, new in zip(sums, written, strict=True))


def _fading(decay: Tensor, run: Tensor | None, goes_on: bool) -> tuple[Tensor, Tensor]:
    """Γ ``[b h c c]``, zero where j > i, and g ``[b h c 1]``: what is left of token j, and of the state."""
    count, clock = decay.shape[-1], decay.cumsum(-1)
    hidden = torch.ones(count, count, dtype=torch.bool, device=decay.device).triu(1)
    carried = clock.exp()
    if run is not None:
        own = run[..., -count:]
        hidden = hidden | (own[..., :, None] != own[..., None, :])[:, None]
        if goes_on:
            carried = carried * (own == run[..., :1])[:, None]
    lags = clock[..., :, None] - clock[..., None, :]
    return lags.masked_fill(hidden, -torch.inf).exp(), carried[..., None]


def _border(problem: Problem) -> Tensor | None:
    """A number for each token's document, which changes at every border, ``[b n]`` or ``[1 n]``."""
    documents = [rule.ids for rule in problem.rules if isinstance(rule, Document)]
    if not documents:
        return None
    new = torch.stack([ids.diff(dim=-1) != 0 for ids in torch.broadcast_tensors(*documents)]).any(0)
    return torch.nn.functional.pad(new.to(problem.query.device).cumsum(-1), (1, 0))


def _no_fla(rule: str, problem: Problem) -> str | None:
    """Why the programs of flash-linear-attention cannot be taken."""
    if find_spec("fla") is None:
        return "flash-linear-attention is not installed: pip install fla-core"
    if problem.query.device.type != "cuda" or problem.query.dtype.itemsize != 2:
        return "its programs run on a card, in half precision"
    if rule == "mesa" or len(problem.rules) > 1:
        return "it is called for gated and delta memories of one document each"
    return None


def _by_fla(rule: str, problem: MemoryProblem, sums: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """flash-linear-attention's chunked programs, whose axes are b n h d and whose states are transposed."""
    tensors = {"q": problem.query, "k": problem.key, "v": problem.value}
    gates = {"beta": problem.rate if rule == "delta" else None, "g": problem.decay}
    given = {
        name: x.transpose(1, 2).contiguous() for name, x in {**tensors, **gates}.items() if x is not None
    }
    name = "simple_gla" if rule == "gated" else "delta_rule" if problem.decay is None else "gated_delta_rule"
    program = getattr(import_module(f"fla.ops.{name}"), f"chunk_{name}")
    out, state = program(**given, scale=1.0, initial_state=sums[0].mT.contiguous(), output_final_state=True)
    return out.transpose(1, 2), (state.mT,)
