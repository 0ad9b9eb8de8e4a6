"""`smooth(method="fused")`: kernels with a form, masks and normalizers against the reference."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks, normalizers
from gkalib.smoothing import METHODS, Fused, make_problem
from gkalib.smoothing.fused import operation_of
from tests.cases import HEADS, KERNELS, MASKS, tensors
from tests.tolerance import agree, oracle

# On a card test_card.py makes these comparisons, in the types that it has.
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 programs run in the interpreter")
ON_THE_CPU = pytest.mark.skipif(
    torch.cuda.is_available(), reason="on the CPU a card's process refuses them all"
)

WITH_FORM = [name for name in KERNELS if KERNELS[name].make(8).form(8) is not None]
INTERVALS = [name for name in MASKS if name not in ("pairs", "function")]
NORMALIZERS = {"row-sum": normalizers.RowSum, "unnormalized": normalizers.Unnormalized}


def _launched() -> dict[str, int]:
    from gkalib.smoothing.fused.launch import LAUNCHES

    return dict(LAUNCHES)


def _started(before: dict[str, int]) -> set[str]:
    """The programs that were started since."""
    return {name for name, count in _launched().items() if count > before.get(name, 0)}


def _results(inputs, kernel, parameters, **slots):
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    out = gkalib.smooth(*leaves, kernel, **slots)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).reshape(out.shape)
    grads = torch.autograd.grad((out * weight).sum(), leaves + parameters, materialize_grads=True)
    return [out.detach(), *grads]


THREE = [  # each kernel with three masks and both normalizers, on as many shapes
    (kernel, INTERVALS[(turn + 2 * again) % len(INTERVALS)], shape, list(NORMALIZERS)[(turn + again) % 2])
    for turn, kernel in enumerate(WITH_FORM)
    for again, shape in enumerate(("odd", "rectangular", "grouped"))
]
EDGES = [  # one query and one key; one head, which takes kernels of one number
    ("gaussian", "causal", "one", "row-sum"),
    ("expdot", "causal-padding", "one", "unnormalized"),
    ("gaussian-number", "window", "long", "row-sum"),
    ("expdot", "document", "long", "unnormalized"),
]


@INTERPRETED
@pytest.mark.parametrize(("kernel", "mask", "shape", "normalizer"), THREE + EDGES)
def test_agrees_with_the_reference(kernel, mask, shape, normalizer):
    inputs = tensors(shape)
    batch, _, n, d = inputs[0].shape
    if shape == "long":
        inputs = (inputs[0][:, :1], *inputs[1:])
    kernel_case = KERNELS[kernel].make(d)
    slots = {"mask": MASKS[mask](batch, n, inputs[1].shape[2]), "normalizer": NORMALIZERS[normalizer]()}
    parameters = [parameter for parameter in kernel_case.parameters() if parameter.requires_grad]
    before = _launched()
    actual = _results(inputs, kernel_case, parameters, method="fused", **slots)
    assert "smooth_forward_kernel" in _started(before)
    exact = _results(inputs, kernel_case, parameters, method="reference", **slots)
    for have, want in zip(actual, exact, strict=True):
        oracle(have, want)


@INTERPRETED
@pytest.mark.parametrize("kernel", ["gaussian", "expdot", "product-with-scales"])
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("groups", [HEADS, 2])
def test_gradients_of_scales(kernel, normalizer, groups):
    """σ and the dot product's scale, one a head, through the sums that the backward programs leave."""
    query, key, value = (t[:, :, :17] for t in tensors("grouped"))
    key, value = key[:, :groups].repeat(1, HEADS // 2, 1, 1)[:, :groups], value.repeat(1, 2, 1, 1)[:, :groups]
    scale = torch.tensor([0.9, 1.2, 1.6, 2.5], dtype=torch.float64, requires_grad=True)
    make = {
        "gaussian": lambda: kernels.Gaussian(scale),
        "expdot": lambda: kernels.ExpDot(scale / 5),
        "product-with-scales": lambda: kernels.Gaussian(scale) * kernels.ExpDot(scale / 7),
    }[kernel]
    slots = {"mask": masks.Causal(), "normalizer": NORMALIZERS[normalizer]()}
    actual = _results((query, key, value), make(), [scale], method="fused", **slots)
    exact = _results((query, key, value), make(), [scale], method="reference", **slots)
    for have, want in zip(actual, exact, strict=True):
        oracle(have, want)


@INTERPRETED
@pytest.mark.parametrize("eps", [0.0, 0.3])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "causal-window", "document"])
def test_one_tensor_takes_the_gka_path(mask, eps):
    x = tensors("grouped")[0][:, :, :45]
    log_sigma = torch.tensor([-0.3, 0.0, 0.4, 1.0], dtype=torch.float64, requires_grad=True)

    def results(method):
        leaf = x.detach().requires_grad_()
        slots = {"mask": MASKS[mask](2, 45, 45), "normalizer": normalizers.RowSum(eps=eps)}
        out = gkalib.smooth(leaf, leaf, leaf, kernels.Gaussian(log_sigma.exp()), method=method, **slots)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), (leaf, log_sigma))]

    before = _launched()
    actual = results("fused")
    started = _started(before)
    assert {"smooth_forward_kernel", "gka_backward_kernel"} <= started, started
    assert "smooth_backward_key_kernel" not in started
    for have, want in zip(actual, results("reference"), strict=True):
        oracle(have, want)


@INTERPRETED
def test_one_tensor_behind_padding_is_three():
    """A padded token does not see itself, so its largest score is not 0: the general operation takes over."""
    x = 4 * tensors("odd")[0]
    mask = masks.KeyPadding(torch.tensor([2, 9]))
    assert operation_of(make_problem(x, x, x, kernels.Gaussian(0.3), mask=mask)) == "smooth-gaussian"
    actual = gkalib.smooth(x, x, x, kernels.Gaussian(0.3), mask=mask, method="fused")
    oracle(actual, gkalib.smooth(x, x, x, kernels.Gaussian(0.3), mask=mask, method="reference"))


@INTERPRETED
def test_centering_changes_nothing_but_rounding():
    x = tensors("odd")[0] + 30
    kernel = kernels.Gaussian(1.2)
    exact = gkalib.smooth(x, x, x, kernel, method="reference")
    oracle(gkalib.smooth(x, x, x, kernel, method=Fused(center=True)), exact)

    def gradient(method, x):
        leaf = x.clone().requires_grad_()
        out = gkalib.smooth(leaf, leaf, leaf, kernel, method=method)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        return torch.autograd.grad(out, leaf, weight)[0].double()

    half = x.half()
    wanted = gradient("reference", half.double())
    left, centered = ((gradient(Fused(center=c), half) - wanted).abs().max() for c in (False, True))
    assert centered < left / 2


@INTERPRETED
@pytest.mark.parametrize("mask", [None, masks.Causal() & masks.Window(7)], ids=str)
def test_centering_beside_an_eps(mask):
    """The weights sum to less than one, and so much of the mean comes back; gradients for x and σ too."""
    x, log_sigma = tensors("odd")[0] + 3, torch.zeros((), dtype=torch.float64, requires_grad=True)

    def results(method):
        leaf = x.detach().requires_grad_()
        kernel, normalizer = kernels.Gaussian(log_sigma.exp()), normalizers.RowSum(eps=0.7)
        out = gkalib.smooth(leaf, leaf, leaf, kernel, mask=mask, normalizer=normalizer, method=method)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        return [out.detach(), *torch.autograd.grad(out, (leaf, log_sigma), weight)]

    for have, want in zip(results(Fused(center=True)), results("reference"), strict=True):
        oracle(have, want)


@INTERPRETED
def test_centering_beside_an_eps_takes_one_number_more():
    x, slots = torch.randn(1, 1, 4, 256), {"normalizer": normalizers.RowSum(eps=0.7)}
    problem = make_problem(x, None, None, kernels.Gaussian(16.0), **slots)
    assert "centered are at most 255 wide" in (Fused(center=True).refuses(problem) or "")
    assert Fused().refuses(problem) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("one_tensor", [False, True])
def test_other_types(dtype, one_tensor, device):
    inputs = [tensor.to(device, dtype) for tensor in tensors("odd")]
    inputs = [inputs[0]] * 3 if one_tensor else inputs
    kernel = kernels.Gaussian(1.5)
    exact = gkalib.smooth(*([inputs[0].double()] * 3 if one_tensor else [t.double() for t in inputs]), kernel,
                          method="reference")  # fmt: skip
    same = gkalib.smooth(*inputs, kernel, method="reference")
    agree(gkalib.smooth(*inputs, kernel, method="fused"), exact, same)


@INTERPRETED
def test_inputs_that_do_not_lie_side_by_side():
    """Heads cut out of one projection, and a tensor whose last axis has a stride."""
    query, key, value = torch.randn(2, 17, 3, 4, 8, dtype=torch.float64).permute(2, 0, 3, 1, 4)
    strided = torch.randn(2, 4, 17, 16, dtype=torch.float64)[..., ::2]
    for inputs in ((query, key, value), (query, strided, value), (strided, strided, strided)):
        kernel = kernels.Gaussian(2.0)
        oracle(
            gkalib.smooth(*inputs, kernel, method="fused"),
            gkalib.smooth(*inputs, kernel, method="reference"),
        )


def _reason(*inputs, kernel=None, **slots):
    kernel = kernels.Gaussian(1.0) if kernel is None else kernel
    return METHODS["fused"].refuses(make_problem(*inputs, kernel, **slots))


def _small(width=8, n=6):
    return [torch.randn(1, 4, n, width) for _ in range(3)]


@ON_THE_CPU
@pytest.mark.parametrize(
    ("reason", "inputs", "slots"),
    [
        ("Laplace has no form", _small(), {"kernel": kernels.Laplace(1.0)}),
        ("made for TopK", _small(), {"normalizer": normalizers.TopK(2)}),
        ("Pairs is no interval", _small(), {"mask": torch.eye(6, dtype=torch.bool)}),
        ("positions were given", _small(), {"positions": (torch.arange(6), torch.arange(6))}),
        ("heads are at most 256 wide", _small(width=300), {}),
        ("an eps beside the row sum", _small(), {"normalizer": normalizers.RowSum(eps=0.1)}),
        ("rank is 70", _small(n=80), {"normalizer": normalizers.RowOperator(4, 80, rank=70)}),
        (
            "base 'silu'",
            _small(),
            {"normalizer": normalizers.RowOperator(4, 6, rank=2, base="silu"), "kernel": kernels.ExpDot()},
        ),
        (
            "with Fourier units",
            _small(),
            {"normalizer": normalizers.RowOperator(4, 6, rank=None), "kernel": kernels.ExpDot()},
        ),
        ("takes scores scale", _small(), {"normalizer": normalizers.RowOperator(4, 6, rank=2)}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_refuses_and_why(reason, inputs, slots):
    assert reason in (_reason(*inputs, **slots) or "")
    assert "fused" in str(gkalib.explain(*inputs, slots.pop("kernel", kernels.Gaussian(1.0)), **slots))


def test_without_the_interpreter_it_needs_a_card(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if not torch.cuda.is_available():
        assert "run on a CUDA device, or in Triton's interpreter" in (_reason(*_small()) or "")
        with pytest.raises(
            ValueError, match=r"^smooth: fused cannot compute this: fused operations run on a"
        ):
            gkalib.smooth(*_small(), kernels.Gaussian(1.0), method="fused")


def test_auto_does_not_take_the_interpreter():
    """It is thousands of times slower than the other methods on a CPU."""
    if not torch.cuda.is_available():
        assert gkalib.explain(*_small(), kernels.Gaussian(1.0)).choice == "padded"


@ON_THE_CPU
@pytest.mark.parametrize("keys", [None, 9])
def test_products_far_from_the_origin_are_warned_of_and_decoding_has_its_digits(keys):
    far = torch.randn(1, 1, 17, 8) + 10000
    given = (far,) if keys is None else (far, far[:, :, :keys])
    with pytest.warns(UserWarning, match="bandwidths away"):
        gkalib.smooth(*given, kernel=kernels.Gaussian(2.0), method="fused")
    given = (far[:, :, -1:], far[:, :, :keys])
    exact, same = (
        gkalib.smooth(*each, kernel=kernels.Gaussian(2.0), method="reference")
        for each in ([one.double() for one in given], given)
    )
    agree(gkalib.smooth(*given, kernel=kernels.Gaussian(2.0), method="fused"), exact, same)


def test_sums_in_no_fixed_order_are_gone():
    with pytest.raises(ValueError, match="ordered=False is gone: every sum has one order"):
        Fused(ordered=False)
    assert Fused(ordered=True).center is False
