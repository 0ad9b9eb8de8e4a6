"""Bad input to `smooth`: every message names what the caller gave."""

import re

import pytest
import torch

import gkalib
from gkalib import kernels, masks
from gkalib.normalizers import Dropout, RowSum

pytestmark = pytest.mark.usefixtures("as_a_user")

Q, K, V = torch.zeros(2, 12, 19, 64), torch.zeros(2, 12, 19, 64), torch.zeros(2, 12, 19, 64)
GAUSSIAN = kernels.Gaussian(1.0)


def _smooth(query=Q, key=K, value=V, kernel=GAUSSIAN, **slots):
    return gkalib.smooth(query, key, value, kernel, **slots)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: _smooth(key=K[..., :48]),
            "smooth: key has head dimension 48, query has 64 (query b h n d = 2 12 19 64, "
            "key b h m d = 2 12 19 48",
        ),
        (
            lambda: _smooth(query=Q[0]),
            "smooth: key must have as many axes as query (query [12 19 64], key [2 12",
        ),
        (
            lambda: _smooth(value=V.double()),
            "smooth: value is torch.float64 on cpu, query is torch.float32 on cpu",
        ),
        (lambda: _smooth(key=K[:, :5]), "smooth: key has 5 heads, which do not divide the query's 12"),
        (lambda: _smooth(key=K[:1]), "smooth: key has batch 1, query has 2"),
        (lambda: _smooth(value=V[:, :, :4]), "smooth: value has length 4, key has 19"),
        (lambda: _smooth(query=Q[:, :, :0]), "at least one query, one key and one dimension"),
        (
            lambda: _smooth(kernel="gaussian"),
            "kernel must be a gkalib kernel such as Gaussian(1.0), not 'gaussian'",
        ),
        (
            lambda: _smooth(kernel=kernels.Gaussian(torch.ones(3))),
            "Gaussian has parameters for 3 heads, query has 12",
        ),
        (
            lambda: _smooth(mask="causal"),
            "must be a gkalib mask such as Causal(), a boolean tensor, or a function",
        ),
        (
            lambda: _smooth(mask=torch.ones(18, 19, dtype=torch.bool)),
            "smooth: mask [1, 1, 18, 19] does not broadcast to the weights' (b h n m = 2 12 19 19)",
        ),
        (
            lambda: _smooth(mask=torch.zeros(19, 19)),
            "smooth: mask must be boolean [n m], [h n m] or [b h n m], True where",
        ),
        (lambda: _smooth(normalizer="softmax"), "normalizer must be a gkalib normalizer such as RowSum()"),
        (
            lambda: _smooth(positions=(torch.arange(3), torch.arange(19))),
            "query positions must have shape [19] or [2 19]",
        ),
        (lambda: _smooth(method="flsh"), "smooth: no method named 'flsh'. Known: auto, fused, flex, padded"),
        (
            lambda: _smooth(method="linear"),
            "smooth: linear cannot compute this: Gaussian is not a finite inner product",
        ),
        (lambda: _smooth(method="linear"), "flex, padded, dense, reference"),
        (
            lambda: gkalib.smooth(Q, GAUSSIAN),
            "smooth: key must be a tensor or a NumPy array, not Gaussian(sigma=1); write kernel=Gaussian",
        ),
        (
            lambda: gkalib.smooth(Q, K, GAUSSIAN),
            "smooth: value must be a tensor or a NumPy array, not Gaussian(sigma=1)",
        ),
        (
            lambda: gkalib.smooth(GAUSSIAN, Q),
            "smooth: query must be a tensor or a NumPy array, not Gaussian(sigma=1); write kernel=",
        ),
        (
            lambda: _smooth(kernel=kernels.ExpDot() * kernels.LagTable(3, 19)),
            "smooth: LagTable has parameters for 3 heads, query has 12",
        ),
        (
            lambda: _smooth(mask=lambda i, j: i >= j),
            "smooth: mask must be a function of four numbers (b, h, q, k), which <lambda> is not",
        ),
        (
            lambda: _smooth(mask=lambda b, h, q, k: torch.ones(5, 5, dtype=torch.bool)),
            "must return a tensor that broadcasts to b, h, q and k [2, 12, 19, 19], not [5, 5]",
        ),
        (
            lambda: _smooth(mask=masks.KeyPadding(torch.tensor([3, 4, 5]))),
            "smooth: KeyPadding has 3 lengths for a batch of 2",
        ),
        (
            lambda: gkalib.attention_weights(Q, GAUSSIAN),
            "attention_weights: key must be a tensor or a NumPy array, not",
        ),
        (lambda: _smooth(bias=0.5), "smooth: bias must be a tensor of numbers to add to log κ, not 0.5"),
        (lambda: _smooth(bias=torch.ones(19, 19) > 0), "a tensor of numbers to add to log κ, not torch.bool"),
        (
            lambda: _smooth(bias=torch.zeros(3, 19)),
            "smooth: bias [3, 19] does not broadcast to the scores' (b h n m = 2 12 19 19)",
        ),
        (lambda: _smooth(bias=torch.zeros(19), kernel=kernels.Dot()), "Dot may be negative"),
        (
            lambda: _smooth(mask=lambda b, h, q, k: q - k),
            "smooth: the mask MaskFunction(<lambda>) must return a boolean tensor",
        ),
        (
            lambda: _smooth(mask=lambda b, h, q, k: q > k, positions=(torch.arange(19), torch.arange(19))),
            "counts rows, which positions and a cache of the last tokens do not",
        ),
        (lambda: Dropout(RowSum(), 1.0), "Dropout: p must be at least 0 and below 1, not 1.0"),
        (lambda: kernels.Form(1.0, sigma=2.0), "Form: sigma says what scale and norm are"),
        (lambda: kernels.ALiBi(0), "ALiBi: num_heads must be at least 1, not 0"),
        (lambda: kernels.T5Buckets(2, num_buckets=2), "num_buckets must be at least 4"),
        (lambda: kernels.Kerple(2, rate=0.0), "Kerple: rate must be positive and finite, not 0.0"),
        (
            lambda: gkalib.attention_weights(Q, K, GAUSSIAN, method="padded"),
            "no method 'padded' that forms weights",
        ),
        (lambda: kernels.Gaussian(0.0), "Gaussian: sigma must be positive and finite, not 0.0"),
        (lambda: kernels.Gaussian(float("nan")), "Gaussian: sigma must be positive and finite, not nan"),
        (
            lambda: kernels.Laplace(torch.tensor([1.0, -2.0])),
            "Laplace: sigma must be positive and finite, not -2.0",
        ),
        (
            lambda: kernels.Gaussian(torch.ones(2, 2)),
            "sigma must be a number or one value per head [h], not shape [2 2]",
        ),
        (lambda: kernels.Gaussian(torch.tensor(1)), "sigma must be floating point, not torch.int64"),
        (lambda: kernels.Gaussian("1"), "Gaussian: sigma must be a number, not '1'"),
        (lambda: kernels.Gaussian(True), "Gaussian: sigma must be a number, not True"),
        (lambda: kernels.Gaussian([1.0, 2.0]), "Gaussian: sigma must be a number, not [1.0, 2.0]"),
        (lambda: kernels.Gaussian(1e-30), "Gaussian: sigma must be at least 1e-18 and finite, not 1e-30"),
        (lambda: kernels.Laplace(torch.tensor([1.0, 1e-30])), "Laplace: sigma must be at least 1e-18"),
        (
            lambda: kernels.Periodic(torch.ones(2), period=torch.ones(3)),
            "Periodic has parameters for 2 and for 3 heads",
        ),
        (lambda: kernels.Matern(1.0, nu=torch.ones(2)), "nu must be 0.5, 1.5 or 2.5, not tensor("),
        (lambda: kernels.Kerple(2, power=torch.ones(2)), "Kerple: power must be a number, not tensor("),
        (
            lambda: kernels.DecayingPeriodicBank(2, alpha=torch.ones(2)),
            "DecayingPeriodicBank: alpha must be a number, not tensor(",
        ),
        (
            lambda: _smooth(positions=(range(19), range(19))),
            "query positions must be a tensor of numbers, not range(0, 19)",
        ),
        (lambda: kernels.ExpDot(-1.0), "ExpDot: scale must be positive and finite"),
        (lambda: kernels.Matern(1.0, nu=1.0), "nu must be 0.5, 1.5 or 2.5, not 1.0"),
        (lambda: kernels.Periodic(1.0, period=0.0), "Periodic: period must be positive"),
        (lambda: kernels.RationalQuadratic(1.0, alpha=-1.0), "RationalQuadratic: alpha must be positive"),
        (
            lambda: kernels.DecayingPeriodicBank(0),
            "DecayingPeriodicBank: num_heads must be at least 1, not 0",
        ),
        (lambda: kernels.DecayingPeriodicBank(2, length=-1.0), "length and tau must be positive"),
        (
            lambda: kernels.DecayingPeriodicBank(12).log(Q, K),
            "needs lag, query position minus key position [n m]",
        ),
        (lambda: kernels.PositiveRandom(0, 4), "PositiveRandom: head_dim must be at least 1, not 0"),
        (lambda: kernels.Dot() * GAUSSIAN, "Dot may be negative and has no logarithm"),
        (
            lambda: kernels.Gaussian(torch.ones(2)) * kernels.Laplace(torch.ones(3)),
            "Gaussian has parameters for 2 heads, Laplace for 3",
        ),
        (lambda: gkalib.smoothing.Dense(memory=0), "memory must be a positive number of bytes, not 0"),
    ],
)
def test_message(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("method", "slots", "reason"),
    [
        ("padded", {"kernel": kernels.Laplace(1.0)}, "Laplace has no form scale"),
        ("padded", {"normalizer": gkalib.normalizers.TopK(2)}, "normalizes by the row sum only, not TopK(2)"),
        (
            "padded",
            {"kernel": kernels.DecayingPeriodicBank(12)},
            "a bias of the lag would need a mask of n × m numbers",
        ),
        ("flex", {"kernel": kernels.Laplace(1.0)}, "Laplace has no form scale"),
        (
            "flex",
            {"normalizer": gkalib.normalizers.Simplex()},
            "normalizes by the row sum only, not Simplex()",
        ),
        ("flex", {"query": Q.clone().requires_grad_()}, "no backward pass of FlexAttention on a CPU"),
        ("flex", {"query": Q.bfloat16(), "key": K.bfloat16(), "value": V.bfloat16()}, "in float32 only"),
        ("linear", {}, "Gaussian is not a finite inner product of features"),
        (
            "linear",
            {"kernel": kernels.Elu(), "normalizer": gkalib.normalizers.TopK(2)},
            "needs the weights one by one",
        ),
        (
            "linear",
            {"kernel": kernels.Elu(), "mask": masks.Window(3)},
            "Window(3) does not split into sums over keys",
        ),
        (
            "linear",
            {"kernel": kernels.Elu(), "mask": masks.Causal(), "query": Q[:, :, :3]},
            "as many queries as keys",
        ),
    ],
)
def test_refusals_give_their_reason_and_what_would_do(method, slots, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        _smooth(method=method, **slots)
    assert "These can: " in str(caught.value) and "reference" in str(caught.value)
    names = {"query": Q, "key": K, "value": V, "kernel": GAUSSIAN} | slots
    assert reason in gkalib.explain(**names).refusals[method]
