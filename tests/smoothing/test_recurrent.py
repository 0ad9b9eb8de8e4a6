"""Linear attention three ways, token by token, in parallel and with weights; and what the state refuses."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks, normalizers
from gkalib.smoothing import Recurrent
from gkalib.smoothing.methods.linear import CHUNK
from tests.tolerance import equal

LENGTH = CHUNK + 6  # the parallel form needs more than one chunk
KERNELS = {
    "elu": lambda: kernels.Elu(),
    "positive-random": lambda: kernels.PositiveRandom(5, 11, stabilizer="row"),
    "random-fourier": lambda: kernels.RandomFourier(5, 64, sigma=9.0),
    "dot": lambda: kernels.Dot(),
}


def _tensors(length: int = LENGTH) -> list[torch.Tensor]:
    sizes = (5, 5, 3)
    return [torch.randn(2, 3, length, size, dtype=torch.float64, requires_grad=True) for size in sizes]


def _normalizer(kernel: kernels.Kernel) -> normalizers.Normalizer:
    return normalizers.Unnormalized() if kernel.signed else normalizers.RowSum(eps=1e-3)


def _read(tensors, kernel, portions, mask=None, state=None):
    """The outputs of one state that reads the tokens in portions."""
    state = Recurrent() if state is None else state
    slots = {"mask": mask, "normalizer": _normalizer(kernel)}
    parts = zip(*(tensor.split(portions, dim=2) for tensor in tensors), strict=True)
    return torch.cat([gkalib.smooth(*part, kernel, method=state, **slots) for part in parts], dim=2)


@pytest.mark.parametrize("name", KERNELS)
def test_token_by_token_is_the_parallel_and_the_dense_form(name):
    """Recurrent = parallel = dense = the definition, in the output and all gradients."""
    tensors, kernel = _tensors(), KERNELS[name]()
    slots = {"mask": masks.Causal(), "normalizer": _normalizer(kernel)}
    outs = {
        method: gkalib.smooth(*tensors, kernel, method=method, **slots)
        for method in ("reference", "dense", "linear")
    }
    outs["token by token"] = _read(tensors, kernel, 1, masks.Causal())
    outs["in portions"] = _read(tensors, kernel, [1, CHUNK + 2, 3], masks.Causal())
    upstream = torch.randn_like(outs["reference"])
    reference = outs.pop("reference")
    exact = torch.autograd.grad((reference * upstream).sum(), tensors)
    for out in outs.values():
        equal(out.detach(), reference.detach())
        for actual, wanted in zip(torch.autograd.grad((out * upstream).sum(), tensors), exact, strict=True):
            equal(actual, wanted)


def test_the_size_of_the_state_does_not_grow():
    tensors, kernel, state = _tensors(), kernels.Elu(), Recurrent()
    assert state.numbers == 0
    sizes = []
    for token in zip(*(tensor.split(1, dim=2) for tensor in tensors), strict=True):
        gkalib.smooth(*token, kernel, mask=masks.Causal(), method=state)
        sizes.append(state.numbers)
    assert sizes == [2 * 3 * 5 * (3 + 1)] * LENGTH
    assert state.filled == LENGTH


def test_without_a_mask_new_queries_see_all_keys_so_far():
    tensors, kernel, state = [tensor.detach() for tensor in _tensors()], kernels.Elu(), Recurrent()
    out = _read(tensors, kernel, [LENGTH - 4, 4], state=state)[:, :, -4:]
    query, key, value = tensors
    equal(out, gkalib.smooth(query[:, :, -4:], key, value, kernel, normalizer=_normalizer(kernel)))


def test_detach_ends_the_gradient():
    tensors, kernel, state = _tensors(8), kernels.Elu(), Recurrent()
    early, late = ([t[:, :, half] for t in tensors] for half in (slice(4), slice(4, None)))
    gkalib.smooth(*early, kernel, mask=masks.Causal(), method=state)
    state.detach()
    out = gkalib.smooth(*late, kernel, mask=masks.Causal(), method=state)
    grads = torch.autograd.grad(out.sum(), tensors)
    for grad in grads[1:]:
        assert (grad[:, :, :4] == 0).all() and (grad[:, :, 4:] != 0).any()


@pytest.mark.parametrize(
    ("kernel", "mask", "reason"),
    [
        (kernels.Gaussian(1.0), None, "Gaussian is not a finite inner product of features"),
        (kernels.Elu(), masks.Window(3), r"Window\(3\) does not split into sums over keys"),
        (kernels.Elu(), masks.KeyPadding(torch.tensor([3, 4])), "a sum forgets which key was which"),
        (
            kernels.PositiveRandom(5, 8, stabilizer="max"),
            None,
            "a key's features in PositiveRandom depend on the other keys",
        ),
    ],
)
def test_refuses(kernel, mask, reason):
    with pytest.raises(ValueError, match=f"recurrent cannot compute this: .*{reason}"):
        gkalib.smooth(*_tensors(8), kernel, mask=mask, method=Recurrent())


def test_refuses_another_batch():
    state = Recurrent()
    gkalib.smooth(*_tensors(4), kernels.Elu(), method=state)
    other = [tensor[:1] for tensor in _tensors(4)]
    with pytest.raises(ValueError, match="it has read b h e = 2 3 3 and cannot go on with 1 3 3"):
        gkalib.smooth(*other, kernels.Elu(), method=state)
