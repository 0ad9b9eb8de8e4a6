"""What the article on RBF attention states of formulas and settings, cell by cell."""

from dataclasses import replace

import torch

import gkalib
from gkalib.analysis import capture_attention
from gkalib.kernels import ExpDot, Gaussian
from gkalib.layers.parts import SuSiE
from gkalib.models.gpt_config import PRESETS
from gkalib.normalizers import RowSum
from gkalib.smoothing.methods import padded
from tests.papers import broken_by, run_of

LAYER, D = "layers.rbf", 16
GAMMA = D**-0.5


def layer(**options):
    """The article's layer with one head of D numbers, and nothing learned but its projections."""
    return gkalib.attention("rbf", **options)(D, 1).double()


def vectors(count: int) -> torch.Tensor:
    return torch.randn(1, 1, count, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def squared(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)


@broken_by(
    LAYER,
    ("self.head_dim**-0.5 if gamma", "self.head_dim**-1 if gamma"),
    also=("test_the_querys_norm", "test_unit_vectors", "test_without_a_denominator"),
)
def test_gamma():
    """Scores fall by γ‖q − k‖² with γ = 1/√d, to float64's rounding."""
    score, q, k = layer().kernel.log, vectors(3), vectors(5).flip(2)
    torch.testing.assert_close(
        score(q, q[..., :1, :]) - score(q, k[..., :1, :]),
        GAMMA * (squared(q, k[..., :1, :]) - squared(q, q[..., :1, :])),
    )


@broken_by(
    "kernels.stationary",
    ("return -0.5 * u.square()", "return 0.25 - 0.5 * u.square()"),
    also=("test_without_a_denominator", "test_unit_vectors"),
)
def test_greatest_score():
    """The score is exactly 0 where query and key are equal, and below 0 elsewhere."""
    score = layer().kernel.log(vectors(6), vectors(6))[0, 0]
    assert (score.diagonal() == 0).all() and (score - torch.eye(6) < 0).all()


@broken_by("kernels.stationary", ("return -0.5 * u.square()", "return (-0.5 * u.square()).clamp(min=-50.0)"))
def test_a_key_of_infinite_length():
    """A key of length 1e200 has weight exactly 0; by dot products it takes all of every other row."""
    query, key = vectors(5), vectors(5)
    key[..., 0, :] = 1e200 * key[..., 0, :].sign()
    weights = gkalib.attention_weights(query, key, layer().kernel, normalizer=RowSum())
    assert (weights[..., 0] == 0).all()
    bullied = gkalib.attention_weights(query, key, ExpDot())[..., 0]
    assert bool(((bullied == 0) | (bullied == 1)).all()) and bool((bullied == 1).any())


@broken_by(LAYER, ('"softmax": RowSum', '"softmax": Unnormalized'))
def test_the_querys_norm():
    """Rows are those of the scores 2γ q·k − γ‖k‖², without the query's norm, to float64's rounding."""
    model, q, k = layer(), vectors(4), vectors(7)
    weights = gkalib.attention_weights(q, k, model.kernel, normalizer=model.normalizer)
    scores = 2 * GAMMA * q @ k.mT - GAMMA * k.square().sum(-1)[..., None, :]
    torch.testing.assert_close(weights, scores.softmax(-1))


@broken_by(
    "smoothing.methods.padded",
    ("size = max(query.shape[-1] + len(columns), width)", "size = query.shape[-1] + 8"),
    ("_columns(term[..., None] / over_heads(applied)", "_columns(term[..., None]"),
    ("return [1.0], [column]", "return [0.0], [column]"),
)
def test_one_more_dimension():
    """PyTorch's attention is handed 65 numbers, 64 and −½‖k‖² beside a 1 of the query."""
    taken: list[torch.Tensor] = []

    def spy(query, key, value, *rest, **options):
        taken.extend((query, key))
        return torch.zeros_like(query)

    before, padded.scaled_dot_product_attention = padded.scaled_dot_product_attention, spy
    try:
        key = torch.randn(1, 1, padded.FEW + 1, 64, requires_grad=True)
        gkalib.smooth(key[:, :, :3], key, key, Gaussian(2.0), method="padded")
    finally:
        padded.scaled_dot_product_attention = before
    query, longer = taken
    assert query.shape[-1] == longer.shape[-1] == 65
    torch.testing.assert_close(longer[..., 64], -0.5 * key.square().sum(-1))
    assert (query[..., 64] == 1).all()


@broken_by(LAYER, ('"unnormalized": Unnormalized', '"unnormalized": RowSum'))
def test_without_a_denominator():
    """Weights are the kernel's values, between 0 and 1, and rows do not sum to 1."""
    model, q, k = layer(form="unnormalized"), vectors(4), vectors(7)
    weights = gkalib.attention_weights(q, k, model.kernel, normalizer=model.normalizer)
    torch.testing.assert_close(weights, (-GAMMA * squared(q, k)).exp())
    assert bool(((weights >= 0) & (weights <= 1)).all()) and (weights.sum(-1) - 1).abs().min() > 1e-3


@broken_by(
    "kernels.stationary",
    ("return torch.cdist(query, key,", "return torch.cdist(query.sign(), key,"),
    also=(
        "test_gamma",
        "test_greatest_score",
        "test_the_querys_norm",
        "test_without_a_denominator",
        "test_the_universal_sink",
    ),
)
def test_unit_vectors():
    """On the unit sphere the score is −γ(2 − 2 q·k), to float64's rounding."""
    q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (vectors(4), vectors(9)[..., 4:, :]))
    torch.testing.assert_close(layer().kernel.log(q, k), -GAMMA * (2 - 2 * q @ k.mT))


@broken_by(
    LAYER,
    (
        "return super().project(x, context)",
        "return (lambda q, k, v: (q - q.mean(2, keepdim=True), k, v))(*super().project(x, context))",
    ),
)
def test_the_universal_sink():
    """Over queries whose mean is not the origin, the best of all keys is that mean, and not the origin."""
    model, x = layer(), vectors(8)[0] + 2
    posed = model.problem(x)
    query, mean = posed.query, posed.query.mean(2, keepdim=True)
    places = torch.cat([mean, torch.zeros_like(mean), 0.9 * mean, 1.1 * mean], dim=2)
    total = posed.kernel.log(query, places).sum(2)[0, 0]
    assert mean.norm() > 0.1 and total.argmax() == 0 and total[0] > total[1]


@broken_by(
    "layers.parts",
    ("return x + self.table(positions).to(x.dtype)", "return x * self.table(positions).to(x.dtype)"),
)
def test_susie():
    """Distances grow by ‖P_q − P_k‖² and by a cross term 2 (q − k)·(P_q − P_k), which is not zero."""
    place, q, k = SuSiE(1, D).double(), vectors(5), vectors(10)[..., 5:, :]
    at = torch.arange(5)
    found = squared(place(q, at), place(k, at))
    table = place.table(at)[None]
    apart = table[..., :, None, :] - table[..., None, :, :]
    cross = 2 * ((q[..., :, None, :] - k[..., None, :, :]) * apart).sum(-1)
    torch.testing.assert_close(found, squared(q, k) + apart.square().sum(-1) + cross)
    assert cross.abs().max() > 0.1


@broken_by("layers.parts", ("table = torch.cat([phase.sin() * weight", "table = torch.cat([phase * weight"))
def test_the_penalty_of_far_tokens():
    """‖P_i − P_j‖² at the start is bounded: at lag 4,096 less than 2.5 times that at lag 64."""
    table = SuSiE(1, 64).double().table(torch.tensor([0, 64, 4096]))[0].detach()
    near, far = (table[1:] - table[0]).square().sum(-1)
    assert far < 1.2 * 64 * 0.25 and far / near < 2.5


@broken_by(
    "models.gpt",
    (
        "config.register_std * torch.randn(config.registers",
        "(config.register_std + 0.1) * torch.randn(config.registers",
    ),
)
def test_registers_start_at_zero():
    """The register tokens of the recipe's model are exactly 0 before training."""
    model = run_of("rbf-tinystories", "rbf-registers").smoke().build()
    assert model.register_tokens.numel() and not model.register_tokens.any()


@broken_by("models.gpt", ("tokens = self.norm1(x)", "tokens = x"))
def test_random_registers():
    """A register's key is as near to the queries as another key, and has its weight, whatever its length."""
    found = []
    for deviation in (1 / 16, 100.0):
        torch.manual_seed(0)
        config = replace(PRESETS["rbf-tiny"], vocab_size=100, register_std=deviation)
        model = gkalib.gpt(config, attention="rbf")
        text = torch.randint(100, (2, 65))
        torch.nn.functional.cross_entropy(model(text[:, :-1]).mT, text[:, 1:]).backward()
        first = capture_attention(model, text)[0]
        query, key = first.problems[0].query[:, :, 1:], first.problems[0].key
        apart = torch.cdist(query, key).mean((0, 1, 2))
        assert apart[0] < 1.1 * apart[1:].mean() and first.weights[:, :, -1, 0].mean() > 0.5 / 66
        found.append(model.register_tokens.grad.norm() * model.register_tokens.norm())
    assert found[1] > 0.5 * found[0], "the gradient falls no faster than the length grows"
