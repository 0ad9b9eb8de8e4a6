"""The sizes and choices of a decoder, and those of the papers' models."""

from dataclasses import dataclass, replace

from gkalib.shapes import check_counts, check_counts_or_none, check_known

POSITIONS = ("rope", "susie", "learned", "none")
GATED = 32  # channels of a token that decide how much of its value embedding is added, as in nanochat


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and choices of a decoder.

    Args:
        vocab_size: V, the number of tokens there are.
        context: T, the most tokens that are read at once, registers not counted.
        dim, depth, num_heads: D, the number of blocks, h.
        mlp_ratio: the width of the MLP in units of D.
        activation: of the MLP, ``"gelu"`` or ``"relu2"``, the square of a ReLU.
        norm: ``"layer"``, with scale and bias, or ``"rms"``, without parameters.
        bias: whether the linear maps of the blocks have biases.
        head_bias: whether the map to the vocabulary has one.
        tied: whether that map is the transpose of the token embedding.
        positions: ``"rope"``, ``"susie"``, ``"learned"`` vectors added to the tokens, or ``"none"``.
        registers: R, learned tokens that stand before the text and are dropped at the end.
        register_std: of their start, a normal draw; 0 starts them at the origin.
        qk_norm: whether each head's query and key are normalized, without parameters.
        windows: one letter a layer, repeated: ``L`` sees all, ``S`` the last ``short`` tokens, itself
            included. The last layer is always long.
        short: the keys that a layer ``S`` sees; None is half the context.
        value_embeddings: whether every second layer, the last included, adds a gated embedding of the token
            to its values.
        residual_scales: whether each layer scales its input and adds the first layer's, by learned numbers.
        embedding_norm: whether the tokens are normalized before the first block.
        softcap: c, which bounds the logits z to c tanh(z / c); None does not.
        init: ``"torch"``, PyTorch's own, or ``"nanochat"``.

    Raises:
        ValueError: if a size is below 1 or a choice is unknown.
    """

    vocab_size: int
    context: int
    dim: int
    depth: int
    num_heads: int
    mlp_ratio: int = 4
    activation: str = "gelu"
    norm: str = "layer"
    bias: bool = True
    head_bias: bool = False
    tied: bool = False
    positions: str = "rope"
    registers: int = 0
    register_std: float = 0.0
    qk_norm: bool = False
    windows: str = "L"
    short: int | None = None
    value_embeddings: bool = False
    residual_scales: bool = False
    embedding_norm: bool = False
    softcap: float | None = None
    init: str = "torch"

    def __post_init__(self):
        """Refuse sizes and choices that no model has."""
        for name in ("vocab_size", "context", "dim", "depth", "num_heads", "mlp_ratio"):
            check_counts("gpt", **{name: getattr(self, name)})
        check_counts_or_none("gpt", short=self.short)
        check_counts("gpt", registers=self.registers, least=0)
        for name, known in (
            ("activation", ("gelu", "relu2")),
            ("norm", ("layer", "rms")),
            ("positions", POSITIONS),
            ("init", ("torch", "nanochat")),
        ):
            check_known("gpt", name, getattr(self, name), known)
        if not self.windows or set(self.windows) - {"S", "L"}:
            raise ValueError(f"gpt: windows must be letters S and L such as 'SSSL', not {self.windows!r}")
        if self.tied and self.head_bias:
            raise ValueError("gpt: a tied head has no bias")
        if self.value_embeddings and self.dim < GATED:
            raise ValueError(f"gpt: value embeddings are gated by {GATED} channels, dim is {self.dim}")

    def window(self, layer: int) -> int | None:
        """How many keys a layer's queries see, themselves included; None is all."""
        long = layer == self.depth - 1 or self.windows[layer % len(self.windows)] == "L"
        return None if long else (self.short or max(1, self.context // 2))


_RBF = GPTConfig(
    vocab_size=50257,
    context=256,
    dim=256,
    depth=4,
    num_heads=4,
    head_bias=True,
    positions="susie",
    registers=1,
)
_NANOCHAT = GPTConfig(
    vocab_size=32768,
    context=2048,
    dim=1280,
    depth=20,
    num_heads=10,
    activation="relu2",
    norm="rms",
    bias=False,
    qk_norm=True,
    windows="SSSL",
    value_embeddings=True,
    residual_scales=True,
    embedding_norm=True,
    softcap=15.0,
    init="nanochat",
)
PRESETS = {
    "gpa-dickens": GPTConfig(
        vocab_size=93, context=256, dim=512, depth=4, num_heads=4, head_bias=True, positions="rope"
    ),
    "rbf-tiny": _RBF,
    "rbf-small": replace(_RBF, dim=512, depth=8, num_heads=8, registers=4),
    "nanochat-d20": _NANOCHAT,
    "nanochat-d20-gka": replace(_NANOCHAT, value_embeddings=False),
}
"""The papers' models. Attention is chosen beside them: ``gpt("rbf-tiny", attention="rbf")``."""
