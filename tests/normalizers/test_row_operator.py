"""Learned operators on rows: the formulas written out, what they are not, and their counts."""

import math

import pytest
import torch
from scipy.interpolate import BSpline as ScipyBSpline
from torch import nn

from gkalib.normalizers import (
    BASES,
    BSpline,
    Fourier,
    PerHead,
    Rational,
    RowOperator,
    RowSum,
    Simplex,
    Units,
    Wavelet,
    basis,
)
from gkalib.normalizers.kan import BASE_ACTIVATIONS
from tests.tolerance import equal

F64 = torch.float64
ORDERS = ("mix_after", "mix_before", "two_layers")


def _scores(keys: int = 10, heads: int = 2) -> torch.Tensor:
    return 1.5 * torch.randn(2, heads, 7, keys, dtype=F64)


def _operator(keys: int = 10, heads: int = 2, **options) -> RowOperator:
    return RowOperator(heads, keys, **{"rank": 4, "dtype": F64, **options})


def _bisection(rows: torch.Tensor) -> torch.Tensor:
    """The nearest point of the simplex, its threshold found by halving."""
    low, high = rows.min(-1, keepdim=True).values - 1, rows.max(-1, keepdim=True).values
    for _ in range(200):
        middle = (low + high) / 2
        too_much = (rows - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    return (rows - low).clamp(min=0)


def _by_hand(x: float, name: str, c: list[float]) -> float:
    """One unit's function of one score, without its scale; the window of the Shannon wavelet left out."""
    if name == "fourier":
        half = len(c) // 2
        return sum(c[m] * math.cos((m + 1) * x) + c[half + m] * math.sin((m + 1) * x) for m in range(half))
    if name == "rational":
        return sum(c[k] * x**k for k in range(6)) / (1 + abs(sum(c[5 + k] * x**k for k in range(1, 5))))
    t = (x - c[1]) / c[2]
    bell = math.exp(-(t**2) / 2)

    def nu(u: float) -> float:
        return u**4 * (35 - 84 * u + 70 * u**2 - 20 * u**3)

    def meyer() -> float:
        if abs(t) >= 1:
            return 0.0
        u = nu(abs(t))
        return math.sin(math.pi * abs(t)) * (1 if u <= 0.5 else math.cos(math.pi / 2 * nu(2 * u - 1)))

    curves = {
        "mexican_hat": lambda: 2 / (math.pi**0.25 * math.sqrt(3)) * (t**2 - 1) * bell,
        "morlet": lambda: math.cos(5 * t) * bell,
        "dog": lambda: t * bell,
        "meyer": meyer,
        "shannon": lambda: math.sin(t) / t,
    }
    return c[0] * curves[name]()


@pytest.mark.parametrize("name", [name for name in BASES if name != "b_spline"])
def test_units_are_the_formula(name):
    units = Units(2, 5, 3, basis(name), init="paper", dtype=F64)
    with torch.no_grad():
        units.basis_scale.normal_()
        if isinstance(units.basis, Wavelet):
            units.coefficients += 0.2 * torch.rand_like(units.coefficients)
    x = 0.8 * torch.randn(1, 2, 4, 5, dtype=F64)
    out = units(x)
    window = torch.hamming_window(5, periodic=False, dtype=F64) if name == "shannon" else torch.ones(5)
    for head, row, p in [(0, 0, 0), (1, 3, 2), (0, 2, 1)]:
        wanted = sum(
            units.basis_scale[head, p, q].item()
            * window[q].item()
            * _by_hand(x[0, head, row, q].item(), name, units.coefficients[head, p, q].tolist())
            for q in range(5)
        )
        assert out[0, head, row, p].item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("grid", "degree", "reach"), [(10, 3, 4.0), (5, 1, 2.0), (10, 5, 4.0), (2, 2, 1.0)])
def test_b_splines_are_scipys(grid, degree, reach):
    step = 2 * reach / (grid - 1)
    knots = -reach + step * torch.arange(-degree, grid + degree, dtype=F64)
    x = torch.linspace(-reach - degree * step - 1, reach + degree * step + 1, 201, dtype=F64)
    features = BSpline(grid, degree=degree, reach=reach).features(x)
    assert features.shape[-1] == grid + degree - 1
    for m in range(features.shape[-1]):
        one = ScipyBSpline.basis_element(knots[m : m + degree + 2].numpy(), extrapolate=False)(x.numpy())
        assert (features[:, m] - torch.from_numpy(one).nan_to_num()).abs().max() < 1e-12
    inside = x.abs() < reach
    equal(features[inside].sum(-1), torch.ones(int(inside.sum()), dtype=F64))


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("degree", [1, 3, 5])
@pytest.mark.parametrize("grid", [9, 10])
def test_b_splines_sum_to_one_in_every_precision(grid, degree, dtype):
    x = torch.cat([torch.linspace(-3.9, 3.9, 301), torch.tensor([-1e-9, 1e-9])]).to(dtype)
    features = BSpline(grid, degree=degree).features(x)
    assert features.dtype == dtype
    assert (features.double().sum(-1) - 1).abs().max() < 4 * torch.finfo(dtype).eps


def test_b_splines_end_with_their_knots_and_keep_what_is_not_a_number():
    x = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -7.0, 7.0], dtype=F64, requires_grad=True)
    features = BSpline(9).features(x)
    assert features[0].isnan().any()
    equal(features[1:], torch.zeros_like(features[1:]))
    assert torch.autograd.grad(features[1:].sum(), x)[0][1:].tolist() == [0] * 5


@pytest.mark.parametrize("name", ["identity", "silu", "gelu"])
def test_base_activations_are_added(name):
    units = Units(2, 5, 3, Fourier(2), base=name, dtype=F64)
    x = torch.randn(1, 2, 4, 5, dtype=F64)
    series = units.basis(x, units.coefficients, units.basis_scale)
    b = {"identity": lambda t: t, "silu": lambda t: t * t.sigmoid(), "gelu": nn.functional.gelu}[name](x)
    equal(units(x), series + torch.einsum("bhnq,hpq->bhnp", b, units.base_scale))
    bare = Units(2, 5, 3, Fourier(2), base=name, unit_scales=False, dtype=F64)
    equal(bare(x), bare.basis(x, bare.coefficients, None) + b.sum(-1, keepdim=True))
    assert len(BASE_ACTIVATIONS) == 4


@pytest.mark.parametrize("name", BASES)
def test_damped_units_have_outputs_of_variance_one(name):
    units = Units(1, 197, 256, basis(name))
    out = units(torch.randn(1, 1, 24, 197))
    assert 0.7 < out.square().mean().item() < 1.4
    paper = Units(1, 197, 64, Fourier(3), init="paper")(torch.randn(1, 1, 50, 197))
    assert 500 < paper.square().mean().item() < 700, "N G = 591 by arithmetic"


@pytest.mark.parametrize("order", ORDERS)
def test_orders_are_their_formulas(order):
    operator, scores = _operator(order=order), _scores()
    first, second = operator.first, operator.second

    def mix(module, x):
        return torch.einsum("hpq,bhnq->bhnp", module.weight, x)

    wanted = {
        "mix_after": lambda: mix(second, first(scores)),
        "mix_before": lambda: second(mix(first, scores)),
        "two_layers": lambda: second(first(scores)),
    }[order]()
    equal(operator(scores), wanted)
    equal(operator.features(scores), mix(first, scores) if order == "mix_before" else first(scores))
    assert (operator.mix is None) == (order != "mix_after")


def test_features_and_mix_give_the_output_without_weights():
    operator, scores, value = _operator(), _scores(), torch.randn(2, 2, 10, 6, dtype=F64)
    equal(operator.features(scores) @ (operator.mix.mT @ value), operator(scores) @ value)
    assert torch.linalg.matrix_rank(operator(_scores())).max() <= 4


def test_weights_start_at_variance_one_over_n():
    for options in ({"rank": 12}, {"rank": None}, {"order": "mix_before", "rank": 12}):
        weights = RowOperator(4, 197, **options)(torch.randn(2, 4, 30, 197))
        assert 0.6 < (weights.square().mean() * 197).item() < 1.6, options


@pytest.mark.parametrize("name", BASES)
def test_gradients_are_right(name):
    operator = RowOperator(1, 4, basis=basis(name), rank=2, base="silu", dtype=F64)
    scores = torch.randn(1, 1, 2, 4, dtype=F64, requires_grad=True)
    parameters = list(operator.parameters())

    def run(scores, *values):
        return torch.func.functional_call(operator, dict(zip(names, values, strict=True)), (scores,))

    names = [name for name, _ in operator.named_parameters()]
    assert torch.autograd.gradcheck(run, (scores, *parameters), fast_mode=True)


@pytest.mark.parametrize("grid", [1, 3, 5, 7, 9, 11])
def test_parameters_per_head_are_the_papers(grid):
    rank, keys, heads = 12, 197, 3

    def count(**options) -> int:
        operator = RowOperator(heads, keys, basis=Fourier(grid), rank=rank, device="meta", **options)
        return sum(p.numel() for p in operator.parameters())

    assert count() == heads * (2 * grid + 3) * rank * keys
    assert count(unit_scales=False) == heads * (2 * grid + 1) * rank * keys
    assert count(order="two_layers") == heads * 2 * (2 * grid + 2) * rank * keys


@pytest.mark.parametrize(
    ("layers_times_heads", "grid", "printed"), [(144, 1, 0.26825), (72, 3, 0.33531), (36, 3, 0.16765)]
)
def test_multiplications_are_the_papers_gflops(layers_times_heads, grid, printed):
    operator = RowOperator(1, 197, basis=Fourier(grid), device="meta")
    assert operator.macs_per_row == (3 * grid + 1) * 12 * 197
    assert operator.macs_per_row * 197 * layers_times_heads / 1e9 == pytest.approx(printed, abs=5e-6)
    full = RowOperator(5, 197, basis=Fourier(grid), rank=None, device="meta")
    assert full.macs_per_row == 5 * 3 * grid * 197**2
    both = PerHead([RowSum(), operator, full], heads=[2, 1, 5])
    assert both.macs_per_row == operator.macs_per_row + full.macs_per_row


def test_without_a_base_the_weights_have_period_two_pi():
    scores = _scores()
    turned = scores.clone()
    turned[..., 3] += 2 * math.pi
    turned[..., 5] -= 4 * math.pi
    for rank in (4, None):
        operator = _operator(rank=rank)
        assert (operator(turned) - operator(scores)).abs().max() < 1e-13
    with_base = _operator(base="identity")
    assert (with_base(turned) - with_base(scores)).abs().max() > 1e-3
    before = _operator(order="mix_before")
    assert (before(turned) - before(scores)).abs().max() > 1e-3, "its series see mixtures of scores"


def test_rows_commute_with_queries_and_not_with_keys():
    operator, scores = _operator(), _scores()
    shuffle = torch.randperm(7)
    equal(operator(scores[:, :, shuffle]), operator(scores)[:, :, shuffle])
    keys = torch.randperm(10)
    assert (operator(scores[..., keys]) - operator(scores)[..., keys]).abs().max() > 1e-2


@pytest.mark.parametrize("rank", [4, None])
def test_projected_weights_are_the_nearest_point_of_the_simplex(rank):
    operator = _operator(rank=rank, projection="after", init="paper")
    free = _operator(rank=rank, init="paper")
    free.load_state_dict(operator.state_dict())
    scores = _scores()
    weights = operator(scores)
    assert operator.averages and not free.averages
    assert operator.mix is None, "projected weights are not linear in the features"
    assert (weights >= 0).all()
    equal(weights.sum(-1), torch.ones(2, 2, 7, dtype=F64))
    equal(weights, _bisection(free(scores)))
    equal(Simplex()(weights), weights)


def test_a_projection_before_the_mix_leaves_rows_that_are_no_averages():
    operator, scores = _operator(projection="before"), _scores()
    features = operator.features(scores)
    equal(features, _bisection(operator.first(scores)))
    weights = operator(scores)
    assert not operator.averages
    assert (weights < 0).any()
    assert ((weights.sum(-1) - 1).abs() > 1e-2).any()


def test_per_head_gives_each_group_its_own():
    operator = _operator(heads=2)
    both = PerHead([RowSum(), operator], heads=[1, 2])
    scores = _scores(heads=3)
    weights = both(scores)
    equal(weights[:, :1], RowSum()(scores[:, :1]))
    equal(weights[:, 1:], operator(scores[:, 1:]))
    assert not both.averages
    assert PerHead([RowSum(), Simplex()]).averages
    assert next(name for name, _ in both.named_parameters()).startswith("normalizers.1")
    values = scores.abs()
    equal(PerHead([RowSum()] * 3).of_values(values), RowSum().of_values(values))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: basis("chebyshev"),
            "no basis named 'chebyshev'. Known: fourier, b_spline, rational, mexican",
        ),
        (lambda: Wavelet("haar"), "no wavelet 'haar'. Known: mexican_hat, morlet, dog, meyer, shannon"),
        (lambda: basis("morlet", 3), "'morlet' has no grid"),
        (lambda: basis("fourier", 0), "grid must be at least 1, not 0"),
        (lambda: BSpline(1), "grid must be at least 2 and degree 1, not 1 and 3"),
        (lambda: BSpline(5, degree=0), "not 5 and 0"),
        (lambda: BSpline(reach=-1.0), "reach must be positive and finite, not -1.0"),
        (lambda: Units(1, 2, 2, Rational(), base="relu"), "no base activation 'relu'. Known: zero, identity"),
        (lambda: Units(1, 2, 2, Rational(), init="zeros"), "init must be 'damped' or 'paper'"),
        (lambda: RowOperator(2, 10, rank=11), "rank 11 is above the 10 tokens"),
        (lambda: RowOperator(2, 10, rank=0), "rank must be at least 1"),
        (lambda: RowOperator(0, 10, rank=2), "at least one head and one key, not 0 and 10"),
        (lambda: RowOperator(2, 10, rank=2, order="after"), "no order 'after'. Known: mix_after"),
        (
            lambda: RowOperator(2, 10, rank=2, projection="both"),
            "projection must be None, 'after' or 'before'",
        ),
        (lambda: RowOperator(2, 10, rank=None, projection="before"), "the full operator"),
        (lambda: RowOperator(2, 10, rank=None, order="two_layers"), "the full operator"),
        (lambda: PerHead([]), "cannot serve"),
        (lambda: PerHead([RowSum()], heads=[0]), "one count of at least 1 each"),
        (lambda: PerHead([RowSum()])(_scores()), "serves 1 heads, given 2"),
        (lambda: _operator()(_scores(keys=11)), "built for 10 keys, given 11"),
        (lambda: _operator()(_scores(heads=3)), "has 2 heads, the scores 3"),
        (lambda: _operator()(_scores().masked_fill(_scores() > 2, -torch.inf)), "takes no mask"),
        (lambda: _operator().of_values(_scores()), "needs scores"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
