"""What an attention layer is: projections, a kernel, a normalizer and a mask around one smoothing problem."""

import inspect
from functools import partialmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gkalib.kernels import Kernel
from gkalib.kernels.base import owner_of_heads
from gkalib.layers.parts import POSITIONS, HeadNorm, merge, split
from gkalib.masks import CAUSAL, Causal, Mask, added, as_mask, joined, mask_and_bias, parts
from gkalib.normalizers import Dropout, Normalizer, RowSum
from gkalib.shapes import check_counts, check_known
from gkalib.smoothing import Cache, Method, Problem, Recurrent, State, compute_output, make_problem
from gkalib.smoothing.problem import Rule, wide_position

Tokens = Float[Tensor, "b n dim"]
Context = Float[Tensor, "b m dim"]

_SLOTS = ("kernel", "normalizer", "mask")


def bind(layer: type[nn.Module], **options: Any) -> type[nn.Module]:
    """A class of the same name whose constructor has some of its keyword arguments set.

    Raises:
        ValueError: if the constructor has no such argument.
    """
    if not options:
        return layer
    known = sorted(_options_of(layer))
    for option in options:
        check_known(name_of(layer), "option", option, known)
    bound = {
        "__init__": partialmethod(layer.__init__, **options),
        "__module__": layer.__module__,
        "__doc__": layer.__doc__,
        "options": {**getattr(layer, "options", {}), **options},
    }
    return type(layer.__name__, (layer,), bound)


def name_of(layer: Any) -> str:
    """The name of a variant, or of any other class."""
    return layer.name() if hasattr(layer, "name") else layer.__name__


def _options_of(layer: type[nn.Module]) -> set[str]:
    """The keyword arguments of a constructor and, where it passes others on, of those above it."""
    names: set[str] = set()
    for cls in layer.__mro__:
        if "__init__" not in vars(cls) or cls is nn.Module:
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()
        names |= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names


class Smoother(nn.Module):
    r"""An attention layer: project, place, smooth, merge the heads.

    $$y = \big[\mathrm{smooth}(Q_1, K_1, V_1), \dots, \mathrm{smooth}(Q_h, K_h, V_h)\big] W_O$$

    Its slots are attributes: ``kernel``, ``normalizer`` and ``mask`` can be read, printed and assigned, and
    own their parameters; ``layer.kernel = Laplace(2.0)`` changes what the layer computes. A variant gives the
    class the method's name and sets its slots after ``super().__init__``; it may also choose its
    ``projections``, how they are used (``project``), a method, and a change of the output (``finish``). The
    constructor takes what timm's blocks pass, and five arguments of ours before them.

    Args:
        dim: D, the width of a token.
        num_heads: h.
        head_dim: d; None is D / h.
        position: None, ``"rope"`` or ``"susie"``, written into query and key.
        registers: how many of the first tokens are registers; positions count from −registers.
        channels: the part of the token's width, (start, stop), that makes the heads of a variant without
            projections; None is all of it. Given where several variants share one layer.
        project_out: whether there is an output projection; without it the merged heads are returned.
        method: how ``smooth`` computes it.
        qkv_bias, proj_bias: timm's: whether the projections of the input, and of the output, have biases.
        qk_norm, norm_layer: timm's: whether each head's query and key are normalized, before positions are
            written into them, and by what; None is ``HeadNorm``, which has no parameters.
        proj_drop: timm's, the rate of dropout after the output projection.
        attn_drop: timm's, the rate at which weights are dropped in training: a normalizer that is assigned is
            put into a ``Dropout``.
        scale_norm: timm's, not implemented.
        device, dtype: of the parameters.

    Raises:
        ValueError: when a slot is assigned what does not fit it.

    Chapter 4 builds it by hand.
    """

    projections: tuple[str, ...] = ("query", "key", "value")
    """The linear maps of the tokens that it has, in the order in which they are drawn."""
    leading: ClassVar[tuple[str, ...]] = ("kernel",)
    """The slots whose parameters come before the projections'; recorded runs depend on the order."""
    gates: ClassVar[tuple[str, ...]] = ()
    """The linear maps, with biases, of a token to one number a head, beside its query, key and value."""
    only_causal: ClassVar[bool] = False
    """Whether it is defined under a causal mask alone."""
    causal: ClassVar[bool] = True
    """Whether it is defined under a causal mask."""
    decodes: ClassVar[bool] = True
    """Whether one new token can be computed from a cache of the earlier ones."""
    why_not: ClassVar[str] = ""
    """The reason where one of them is false, or ``only_causal`` true."""
    sized: ClassVar[bool] = False
    """Whether it is built for a number of tokens, ``length``."""
    options: ClassVar[dict[str, Any]] = {}
    """What ``gkalib.attention(name, **options)`` bound."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    kernel: Kernel
    normalizer: Normalizer
    mask: Mask | None

    def __init__(  # timm's arguments, and ours, all by keyword
        self,
        dim: int,
        num_heads: int = 8,
        *,
        head_dim: int | None = None,
        position: str | None = None,
        registers: int = 0,
        channels: tuple[int, int] | None = None,
        project_out: bool = True,
        method: str | Method = "auto",
        qkv_bias: bool = False,
        qk_norm: bool = False,
        scale_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Any = None,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name = self.name()
        check_counts(name, dim=dim, num_heads=num_heads)
        if head_dim is None and dim % num_heads:
            raise ValueError(f"{name}: num_heads {num_heads} does not divide dim {dim}")
        if scale_norm:
            raise ValueError(f"{name}: scale_norm is not implemented")
        if not 0 <= attn_drop < 1:
            raise ValueError(f"{name}: attn_drop must be at least 0 and below 1, not {attn_drop}")
        check_counts(name, registers=registers, least=0)
        if position is not None:
            check_known(name, "position", position, POSITIONS)
        self.dim, self.num_heads, self.attn_drop = dim, num_heads, attn_drop
        self.head_dim = dim // num_heads if head_dim is None else head_dim
        self.qkv_bias, self.registers, self.channels, self.method = qkv_bias, registers, channels, method
        self.factory = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        for slot in self.leading:
            self.register_module(slot, None)
        norm = HeadNorm if norm_layer is None else norm_layer
        self.query_norm = norm(self.head_dim, **self.factory) if qk_norm else nn.Identity()
        self.key_norm = norm(self.head_dim, **self.factory) if qk_norm else nn.Identity()
        self.position = (
            POSITIONS[position](num_heads, self.head_dim, registers=registers).to(**self.factory)
            if position
            else None
        )
        inner = num_heads * self.head_dim
        self.proj = nn.Linear(inner, dim, bias=proj_bias, **self.factory) if project_out else nn.Identity()
        self.proj_drop = nn.Dropout(proj_drop)
        for projection in self.projections:
            self.add_module(projection, nn.Linear(dim, inner, bias=qkv_bias, **self.factory))
        for gate in self.gates:
            self.add_module(gate, nn.Linear(dim, num_heads, **self.factory))
        for slot in _SLOTS:  # a leading one keeps its place
            self.register_module(slot, None)
        self.normalizer = RowSum()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a slot takes only what fits it."""
        if name in _SLOTS:
            value = self._fitting(name, value)
        super().__setattr__(name, value)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value as heads, ``[b h n d]``, ``[b h m d]`` and ``[b h m e]``.

        ``context`` is ``x`` itself in self-attention. One tensor object returned twice stays one: what is
        written into a key is then also in the query, or in the value.
        """
        return self.heads(self.query(x)), self.heads(self.key(context)), self.heads(self.value(context))

    def finish(self, out: Tensor, problem: Problem) -> Tensor:
        """The smoothed values ``[b h n e]`` before the heads are merged."""
        return out

    def reset_parameters(self) -> None:
        """Set what must start at a certain value, after a model has drawn its own start for all matrices."""

    @classmethod
    def name(cls) -> str:
        """The variant's name, which is its file's."""
        return cls.__module__.rsplit(".", 1)[-1]

    @classmethod
    def for_model(cls, dim: int, num_heads: int, *, length: int) -> type[nn.Module]:
        """The class as one model builds its layers, bound to the number of tokens and to what they share."""
        return bind(cls, length=length) if cls.sized else cls

    def heads(self, x: Tensor) -> Tensor:
        """Projected tokens as heads."""
        return split(x, self.num_heads)

    def own_heads(self, x: Tensor) -> Tensor:
        """The heads of the tokens themselves, without a projection."""
        start, stop = self.own_channels()
        return split(x[..., start:stop], self.num_heads)

    def own_channels(self) -> tuple[int, int]:
        """The part of the token's width that makes those heads; a constructor calls it to check it early.

        Raises:
            ValueError: if it is not as wide as the heads.
        """
        start, stop = self.channels or (0, self.dim)
        if not 0 <= start < stop <= self.dim or stop - start != self.num_heads * self.head_dim:
            raise ValueError(
                f"{self.name()}: the heads of x itself need {self.num_heads} heads × {self.head_dim} = "
                f"{self.num_heads * self.head_dim} channels, not {stop - start} of {self.dim}"
            )
        return start, stop

    def cache(self, batch: int, length: int) -> Cache:
        """An empty cache for ``length`` tokens, registers included.

        Raises:
            ValueError: if the variant cannot decode.
        """
        if not self.decodes:
            raise ValueError(f"{self.name()}: cannot decode token by token: {self.why_not}")
        return Cache(batch, length)

    def problem(
        self,
        x: Tokens,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        context: Context | None = None,
        mask: Rule | None = None,
        bias: Tensor | None = None,
        positions: tuple[Tensor, Tensor] | None = None,
        cache: Cache | Recurrent | State | None = None,
        value_bias: Tensor | None = None,
    ) -> Problem:
        """What ``forward`` computes, as a problem; the arguments are ``forward``'s."""
        name = self.name()
        if cache is not None and (context is not None or positions is not None):
            raise ValueError(f"{name}: a cache holds this layer's own tokens; no context, no positions")
        rule, numbers = mask_and_bias(attn_mask, name=name)
        mask = joined(self.mask, self._fitting("mask", mask))
        mask = joined(joined(mask, CAUSAL if is_causal else None), rule)
        bias = added(bias, numbers)
        if not self.causal and any(isinstance(part, Causal) for part in parts(mask)):
            raise ValueError(f"{name}: cannot be causal: {self.why_not}")
        if self.only_causal and not any(isinstance(part, Causal) for part in parts(mask)):
            raise ValueError(
                f"{name}: is causal only (is_causal=True, or a mask with Causal()): {self.why_not}"
            )
        query, key, value = self.project(x, x if context is None else context)
        if value_bias is not None:
            if "value" not in self.projections:
                raise ValueError(f"{name}: has no projected values to add to")
            value = value + value_bias
        one_query, one_value = query is key, value is key
        key = self.key_norm(key)
        query = key if one_query else self.query_norm(query)
        if self.position is not None:
            query_position, key_position = self._positions(query, key, positions, cache)
            key = self.position(key, key_position)
            query = key if one_query else self.position(query, query_position)
        value = key if one_value else value
        if cache is not None:
            earlier = cache.filled
            key, value, key_position = cache.append(key, value)
            if isinstance(cache, Cache) and cache.window is not None:
                cache.check(name, mask)
                if earlier:  # the keys may lie in any order
                    rows = torch.arange(earlier, cache.filled, device=key.device)
                    positions = rows, key_position
        return make_problem(
            query,
            key,
            value,
            self.kernel,
            mask=mask,
            bias=bias,
            normalizer=self.normalizer,
            positions=positions,
            name=name,
        )

    def forward(
        self,
        x: Tokens,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        context: Context | None = None,
        mask: Rule | None = None,
        bias: Tensor | None = None,
        positions: tuple[Tensor, Tensor] | None = None,
        cache: Cache | Recurrent | State | None = None,
        value_bias: Tensor | None = None,
    ) -> Float[Tensor, "b n out"]:
        """Attend from the tokens ``x`` to themselves, or to ``context``.

        Args:
            x: ``[b n dim]``.
            attn_mask: True where a query may see a key, broadcasting to ``[b h n m]``; or numbers,
                as ``bias``, of which −∞ hides a key.
            is_causal: whether no query sees a later key.
            context: ``[b m dim]``, the tokens attended to; None is ``x``.
            mask: what ``smooth`` takes for a mask, on top of the two above and of the layer's own.
            bias: numbers to add to the scores, broadcasting to ``[b h n m]``.
            positions: (query positions, key positions); None counts the tokens.
            cache: what ``cache`` made and earlier calls filled, or a ``Recurrent`` where the kernel has
                features; ``x`` is then the new tokens.
            value_bias: ``[b h m e]``, added to the values.

        Returns:
            ``[b n dim]``, or the merged heads where there is no output projection.

        Raises:
            ValueError: if the variant does not implement what is asked, or the shapes do not fit.
        """
        others = {"context": context, "mask": mask, "bias": bias, "positions": positions}
        problem = self.problem(x, attn_mask, is_causal, **others, cache=cache, value_bias=value_bias)
        method = cache if isinstance(cache, Recurrent) else self.method
        out = self.finish(compute_output(problem, method), problem)
        return self.proj_drop(self.proj(merge(out)))

    def extra_repr(self) -> str:
        """The sizes, for ``print``."""
        return f"dim={self.dim}, num_heads={self.num_heads}"

    def _fitting(self, slot: str, value: Any) -> Any:
        """What is assigned to a slot, or an error that says what the slot takes."""
        name = self.name()
        if slot == "mask":
            try:
                return None if value is None else as_mask(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        kind, example = (Kernel, "Gaussian(1.0)") if slot == "kernel" else (Normalizer, "RowSum()")
        if not isinstance(value, kind):
            raise ValueError(f"{name}: {slot} must be a gkalib {slot} such as {example}, not {value!r}")
        if isinstance(value, Kernel) and value.heads() not in (None, 1, self.num_heads):
            raise ValueError(
                f"{name}: {owner_of_heads(value)} has parameters for {value.heads()} heads, the layer has "
                f"{self.num_heads}"
            )
        if isinstance(value, Normalizer) and self.attn_drop and not isinstance(value, Dropout):
            return Dropout(value, self.attn_drop).train(self.training)
        return value

    def _positions(self, query, key, positions, cache) -> tuple[Tensor, Tensor]:
        """Where queries and keys stand: as given, else after the cache, the last query on the last key."""
        if positions is not None:
            return wide_position(positions[0]), wide_position(positions[1])
        start = (0 if cache is None else cache.filled) - self.registers
        keys = start + torch.arange(key.shape[2], device=key.device)
        queries = keys[-1] + 1 - query.shape[2] + torch.arange(query.shape[2], device=key.device)
        return queries, keys
