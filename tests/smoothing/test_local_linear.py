"""Lines at every query: the facts of local linear attention, its methods, gradients and errors."""

import re
import warnings

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

import gkalib
from gkalib import masks, normalizers
from gkalib.kernels import Dot, ExpDot, Gaussian, Laplace
from gkalib.smoothing import METHODS, Conjugate, Dense, make_problem
from gkalib.smoothing.local_line import LocalLine
from tests.cases import HEADS, KERNELS, MASKS, SHAPES, tensors
from tests.tolerance import equal, oracle

EXACT = ["reference", "dense", "conjugate"]
POSITIVE = [name for name, case in KERNELS.items() if not case.make(8).signed]
RIDGE = torch.tensor([0.1, 0.5, 1.0, 4.0], dtype=torch.float64)


def within(bound: float, actual: Tensor, exact: Tensor) -> None:
    """Assert that two results differ by no more than this: the largest error seen, rounded up."""
    error = (actual - exact).abs().max().item()
    assert error <= bound, f"error {error:.1e} is above {bound:.0e}"


def definition(query: Tensor, key: Tensor, value: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """b of the weighted least squares of every query, from its design matrix with a column of ones."""
    rows = []
    for q, k, v, w in zip(
        query.flatten(0, 2), *(_each(t, query) for t in (key, value)), weights.flatten(0, 2), strict=True
    ):
        design = torch.cat([torch.ones_like(k[:, :1]), k - q], -1)
        penalty = ridge * torch.eye(design.shape[1], dtype=q.dtype)
        penalty[0, 0] = 0.0
        rows.append(
            torch.linalg.solve(design.mT @ (w[:, None] * design) + penalty, design.mT @ (w[:, None] * v))[0]
        )
    return torch.stack(rows).unflatten(0, query.shape[:3])


def _each(keys: Tensor, query: Tensor) -> Tensor:
    return keys[:, :, None].expand(-1, -1, query.shape[2], -1, -1).flatten(0, 2)


@pytest.mark.parametrize("method", EXACT)
def test_fact_1_it_is_the_least_squares_line_and_a_linear_smoother(method):
    query, key, value = tensors("rectangular")
    weights = gkalib.attention_weights(query, key)
    out = gkalib.smooth(query, key, value, degree=1, ridge=0.3, method=method)
    within(1e-13, out, definition(query, key, value, weights, 0.3))
    signed = gkalib.attention_weights(query, key, degree=1, ridge=0.3)
    within(1e-13, signed.sum(-1), torch.ones_like(signed[..., 0]))
    within(1e-13, signed @ value, out)
    assert signed.min() < -1e-3  # it does not average
    within(1e-13, gkalib.smooth(query, key, 0 * value + 3, degree=1, ridge=0.3), 0 * out + 3)


@pytest.mark.parametrize("method", EXACT)
def test_fact_2_affine_functions_of_the_key_and_how_far_a_ridge_lets_the_mean_lie(method):
    query, key, _ = tensors("grouped")
    slope = torch.randn(8, 3, dtype=torch.float64)
    out = gkalib.smooth(query, key, key @ slope + 1, Gaussian(3.0), degree=1, method=method)
    within(1e-12, out, query @ slope + 1)
    weights = gkalib.attention_weights(query, key, Gaussian(3.0))
    every = key.repeat_interleave(2, 1)
    mean = weights @ every
    far = every[:, :, None] - mean[:, :, :, None]
    spread = (far * weights[..., None]).mT @ far + 0.3 * torch.eye(8, dtype=torch.float64)
    left = 0.3 * torch.linalg.solve(spread, query - mean)
    within(
        1e-13, gkalib.smooth(query, key, key, Gaussian(3.0), degree=1, ridge=0.3, method=method), query - left
    )


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("kernel", POSITIVE)
def test_fact_3_a_large_ridge_is_the_constant(kernel, method):
    query, key, value = tensors("odd")
    slots = {"kernel": KERNELS[kernel].make(5), "mask": masks.Causal()}
    out = gkalib.smooth(query, key, value, **slots, degree=1, ridge=1e17, method=method)
    within(1e-14, out, gkalib.smooth(query, key, value, **slots, method="reference"))


@pytest.mark.parametrize("method", EXACT)
def test_fact_3_equal_weights_are_ridge_regression_with_an_intercept(method):
    query, key, value = (tensor[0, 0] for tensor in tensors("rectangular"))
    out = gkalib.smooth(query, key, value, ExpDot(1e-300), degree=1, ridge=0.2, method=method)
    ridge = Ridge(alpha=0.2 * len(key), solver="cholesky").fit(key.numpy(), value.numpy())
    within(1e-13, out, torch.from_numpy(ridge.predict(query.numpy())))


@pytest.mark.parametrize("method", EXACT)
def test_fact_4_row_constants_cancel_and_the_papers_penalty_is_ours_times_the_sum(method):
    query, key, value = tensors("odd")
    slots = {"degree": 1, "ridge": 0.5, "method": method}
    out = gkalib.smooth(query, key, value, **slots)
    moved = gkalib.smooth(query, key, value, bias=torch.full((1, 1), 7.0, dtype=torch.float64), **slots)
    within(1e-13, moved, out)
    values = (query @ key.mT / 5**0.5).exp()  # not normalized: one penalty serves one row
    for row in (0, 9):
        penalty = 0.5 * values[:, :, row].sum(-1)
        for index, one in enumerate(penalty.flatten()):
            part = (
                tensor.flatten(0, 1)[index][None, None] for tensor in (query[:, :, row : row + 1], key, value)
            )
            exact = definition(*part, values.flatten(0, 1)[index][None, None, row : row + 1], one.item())
            within(1e-13, out.flatten(0, 1)[index][row], exact[0, 0, 0])


@pytest.mark.parametrize("method", EXACT)
def test_fact_5_in_one_dimension_it_is_chapter_2s_estimator_and_statsmodels(method):
    KernelReg = pytest.importorskip("statsmodels.nonparametric.api").KernelReg
    x = torch.linspace(0, 1, 60, dtype=torch.float64)
    y, at = (7 * x).sin(), torch.linspace(0, 1, 23, dtype=torch.float64)
    out = gkalib.smooth(at, x, y, Gaussian(0.1), degree=1, method=method)
    line = gkalib.LocalLinear(Gaussian, bandwidth=0.1).fit(x.numpy()[:, None], y.numpy())
    within(1e-13, out, torch.from_numpy(line.predict(at.numpy()[:, None])))
    with warnings.catch_warnings():
        # statsmodels announces a change of a random generator that a given bandwidth never uses
        warnings.simplefilter("ignore", FutureWarning)
        peer = KernelReg(y.numpy(), x.numpy(), var_type="c", reg_type="ll", bw=[0.1])
        expected = peer.fit(at.numpy())[0]
    within(1e-12, out, torch.from_numpy(expected))
    assert (gkalib.smooth(at, x, x, Gaussian(0.1)) - at).abs().max() > 0.05  # the bias at the edge


@pytest.mark.parametrize("method", EXACT)
def test_fact_6_few_keys_need_a_ridge(method):
    query, key, value = tensors("odd")
    weights = gkalib.attention_weights(query, key, mask=masks.Causal())
    mean = weights @ key
    far = key[:, :, None] - mean[:, :, :, None]
    ranks = torch.linalg.matrix_rank((far * weights[..., None]).mT @ far, rtol=1e-10)
    assert (ranks == torch.arange(17).clamp(max=5)).all()
    out = gkalib.smooth(query, key, value, mask=masks.Causal(), degree=1, ridge=0.1, method=method)
    within(1e-12, out, definition(query, key, value, weights, 0.1))
    if method != "conjugate":  # steps along what is there may still agree
        with pytest.raises(
            ValueError, match=r"^smooth: a query sees keys that lie in fewer than 5 dimensions"
        ):
            gkalib.smooth(query, key, value, mask=masks.Causal(), degree=1, method=method)


@pytest.mark.parametrize("method", ["dense", "conjugate"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_methods_agree_with_their_gradients(shape, mask, method):
    inputs = [tensor.requires_grad_() for tensor in tensors(shape)]
    ridge, sigma = RIDGE.clone().requires_grad_(), torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    wanted, results = (*inputs, ridge, sigma), {}
    for each in ("reference", method):
        slots = {"mask": MASKS[mask](*(SHAPES[shape][i] for i in (0, 2, 3))), "method": each}
        out = gkalib.smooth(*inputs, Gaussian(sigma), degree=1, ridge=ridge, **slots)
        results[each] = [out.detach(), *torch.autograd.grad(out.square().sum(), wanted)]
    for have, want in zip(*results.values(), strict=True):
        oracle(have, want)
    if mask == "padding":
        assert (results[method][0][0] == 0).all()  # no key, no answer


@pytest.mark.parametrize("method", ["dense", "conjugate", "reference"])
def test_gradients_are_differences(method):
    inputs = [torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ridge = torch.tensor([0.3, 1.0], dtype=torch.float64, requires_grad=True)

    def output(query, key, value, ridge):
        return gkalib.smooth(query, key, value, mask=masks.Causal(), degree=1, ridge=ridge, method=method)

    assert torch.autograd.gradcheck(output, (*inputs, ridge))


def test_blocks_of_queries_change_nothing():
    query, key, value = (tensor.requires_grad_() for tensor in tensors("grouped"))
    whole = gkalib.smooth(query, key, value, degree=1, ridge=0.4)
    for method in (Dense(memory=200_000), Conjugate(memory=200_000)):
        out = gkalib.smooth(query, key, value, degree=1, ridge=0.4, method=method)
        equal(out, whole)
        grads = [
            torch.autograd.grad(each.square().sum(), (query, key, value), retain_graph=True)
            for each in (out, whole)
        ]
        for have, want in zip(*grads, strict=True):
            oracle(have, want)


@pytest.mark.parametrize("method", EXACT)
def test_far_from_the_origin_nothing_changes(method):
    query, key, value = (
        tensor.mul(2**20).round() / 2**20 for tensor in tensors("odd")
    )  # so that sums are exact
    slots = {"kernel": Laplace(1.0), "degree": 1, "ridge": 0.1, "method": method}
    out = gkalib.smooth(query, key, value, **slots)
    within(1e-14, gkalib.smooth(query + 2.0**20, key + 2.0**20, value, **slots), out)


def test_steps_are_few_where_the_ridge_is_large():
    query, key, value = tensors("long")
    for ridge, steps in ((10.0, 12), (1.0, 24), (0.01, 80)):
        exact = gkalib.smooth(query, key, value, degree=1, ridge=ridge)
        error = (
            (gkalib.smooth(query, key, value, degree=1, ridge=ridge, method=Conjugate(steps)) - exact)
            .abs()
            .max()
        )
        assert error < 1e-6


def test_explain_says_which_methods_take_a_line():
    query, key, value = tensors("odd")
    table = gkalib.explain(query, key, value, degree=1, ridge=1.0)
    assert [name for name, reason in table.refusals.items() if reason is None] == EXACT[::-1]
    assert "conjugate  no:  it solves for the slopes of degree=1" in str(gkalib.explain(query, key, value))
    with pytest.raises(ValueError, match=r"^smooth: padded cannot compute this: .* not LocalLine\(ridge=1\)"):
        gkalib.smooth(query, key, value, degree=1, ridge=1.0, method="padded")


def test_arrays_and_fewer_axes():
    query, key, value = (tensor[0, 0].numpy() for tensor in tensors("odd"))
    out = gkalib.smooth(query, key, value, degree=1, ridge=0.5)
    exact = gkalib.smooth(*(torch.from_numpy(each) for each in (query, key, value)), degree=1, ridge=0.5)
    equal(torch.from_numpy(out), exact)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 2}, "degree must be 0, a constant at each query, or 1, a line, not 2"),
        ({"ridge": 0.5}, "ridge=0.5 is for the slopes of degree=1, and degree is 0"),
        ({"degree": 1, "ridge": -0.5}, "ridge must be positive and finite, not -0.5"),
        ({"degree": 1, "ridge": torch.ones(3)}, f"ridge has values for 3 heads, query has {HEADS}"),
        (
            {"degree": 1, "normalizer": normalizers.TopK(3)},
            "degree=1 fits lines with weights that sum to one, not with TopK(3)",
        ),
        (
            {"degree": 1, "normalizer": normalizers.RowSum(1e-6)},
            "degree=1 fits lines with weights that sum to one, not with RowSum(eps=1e-06)",
        ),
        (
            {"degree": 1, "kernel": Dot()},
            "Dot may be negative: no weights that sum to one to fit a line with",
        ),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=f"^smooth: {re.escape(message)}"):
        gkalib.smooth(*tensors("odd"), **options)


def test_too_few_dimensions_are_an_error_of_conjugate_gradients_too():
    query, key, value = tensors("odd")
    key = key * torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64)
    assert METHODS["conjugate"].refuses(make_problem(query, key, value, ExpDot(), degree=1)) is None
    with pytest.raises(ValueError, match=r"^smooth: conjugate: 20 steps do not solve for the slopes"):
        gkalib.smooth(query, key, value, degree=1, method="conjugate")


@pytest.mark.parametrize("method", EXACT)
def test_a_sequence_without_keys_has_no_answer_and_needs_no_ridge(method):
    query, key, value = tensors("odd")
    mask = masks.KeyPadding(torch.tensor([0, key.shape[2]]))
    out = gkalib.smooth(query, key, value, mask=mask, degree=1, method=method)
    assert (out[0] == 0).all() and torch.isfinite(out).all() and out[1].any()


def test_dropout_of_weights_is_that_of_other_methods():
    query, key, value = tensors("odd")
    outs = []
    for method in ("dense", "conjugate"):
        torch.manual_seed(1)
        line = normalizers.Dropout(LocalLine(0.3), 0.5).train()
        outs.append(gkalib.smooth(query, key, value, normalizer=line, method=method))
    within(1e-12, *outs)
