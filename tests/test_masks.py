"""Which keys each mask shows, written out."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks


def _seen(mask, n: int = 4, m: int = 4, positions=None, batch: int = 1) -> list:
    """Which keys get weight, as 0 and 1, of the first head."""
    query, key = torch.zeros(batch, 2, n, 3), torch.zeros(batch, 2, m, 3)
    weights = gkalib.attention_weights(query, key, kernels.Gaussian(1.0), mask=mask, positions=positions)
    return (weights[:, 0] > 0).int().tolist()


def test_causal():
    assert _seen(masks.Causal()) == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]]


def test_causal_with_fewer_queries_aligns_the_last():
    assert _seen(masks.Causal(), n=2) == [[[1, 1, 1, 0], [1, 1, 1, 1]]]


def test_causal_with_more_queries_leaves_the_first_without_a_key():
    assert _seen(masks.Causal(), n=3, m=2) == [[[0, 0], [1, 0], [1, 1]]]


def test_window_is_symmetric_and_with_causal_shows_exactly_size_keys():
    assert _seen(masks.Window(2)) == [[[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]]
    assert _seen(masks.Causal() & masks.Window(2)) == [
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    ]


def test_key_padding_may_leave_a_sequence_empty():
    assert _seen(masks.KeyPadding(torch.tensor([0, 2])), n=1, batch=2) == [[[0, 0, 0, 0]], [[1, 1, 0, 0]]]


def test_document():
    ids = torch.tensor([5, 5, 9, 9])
    assert _seen(masks.Document(ids)) == [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]]
    assert _seen(masks.Document(ids), n=1) == [[[0, 0, 1, 1]]]
    per_batch = torch.tensor([[5, 5, 9, 9], [1, 2, 3, 4]])
    assert _seen(masks.Document(per_batch), n=1, batch=2) == [[[0, 0, 1, 1]], [[0, 0, 0, 1]]]


def test_tensor_is_taken_pair_by_pair_and_broadcast():
    allowed = torch.tensor([[True, False], [False, False]])
    assert _seen(allowed, 2, 2) == [[[1, 0], [0, 0]]]
    assert _seen(allowed[None, None, :1], 2, 2) == [[[1, 0], [1, 0]]]
    assert _seen(torch.stack([allowed, ~allowed])[:, None], 2, 2, batch=2) == [
        [[1, 0], [0, 0]],
        [[0, 1], [1, 1]],
    ]


def test_positions_move_masks():
    positions = (torch.tensor([7, 1]), torch.tensor([0, 1, 7, 9]))
    assert _seen(masks.Causal(), n=2, positions=positions) == [[[1, 1, 1, 0], [1, 1, 0, 0]]]
    per_batch = (torch.tensor([[7], [1]]), torch.tensor([[0, 1, 7, 9], [0, 1, 2, 3]]))
    assert _seen(masks.Causal(), n=1, positions=per_batch, batch=2) == [[[1, 1, 1, 0]], [[1, 1, 0, 0]]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "kernel", [kernels.Gaussian(1.0), kernels.LagTable(2, 300), kernels.ALiBi(2)], ids=str
)
def test_narrow_positions_are_those_numbers(kernel, dtype):
    """A difference of unsigned bytes is never negative, one of half precision is rounded."""
    low, high = (0, 255) if dtype == torch.uint8 else (-100, 100)
    numbers = torch.tensor([low, low + 1, 3, high - 1, high]).to(dtype)
    if dtype.is_floating_point and isinstance(kernel, kernels.LagTable):
        return  # it refuses positions that are no whole numbers
    x = torch.randn(1, 2, 5, 4)
    wide = numbers.float() if dtype.is_floating_point else numbers.long()
    slots = {"mask": masks.Window(4), "kernel": kernels.ExpDot() * kernel}
    want = gkalib.smooth(x, positions=(wide, wide), **slots)
    assert torch.equal(gkalib.smooth(x, positions=(numbers, numbers), **slots), want)


@pytest.mark.usefixtures("as_a_user")  # sizes of a trace are tensors
@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kernel", [kernels.ExpDot(), kernels.Gaussian(2.0), kernels.Laplace(1.0)], ids=str)
def test_a_trace_with_a_mask_of_zeros_reads_later_ones(kernel):
    def smoothed(x, attn_mask):
        mask, bias = masks.mask_and_bias(attn_mask, name="smooth")
        return gkalib.smooth(x, kernel=kernel, mask=mask, bias=bias)

    x, later = torch.randn(1, 2, 4, 3), torch.randn(4, 4)
    later[1, 2], later[3] = -torch.inf, -torch.inf
    traced = torch.jit.trace(smoothed, (x, torch.zeros(4, 4)))
    torch.testing.assert_close(traced(x, later), smoothed(x, later))


def test_a_function_counts_rows_from_the_first_key():
    def sees_three(b, h, q, k):
        return (k <= q) & (q - k < 3)

    rule = masks.Causal() & masks.Window(3)
    for n, m in ((4, 4), (2, 5), (1, 6)):
        assert _seen(sees_three, n, m) == _seen(rule, n, m)
    # a query of the whole sequence and the same query beside a cache see the same keys
    assert _seen(sees_three, 6, 6)[0][-2:] == _seen(sees_three, 2, 6)[0]


def test_a_function_may_read_sequence_and_head():
    def own(b, h, q, k):
        return (k + b + h) % 2 == 0

    assert _seen(own, 1, 4, batch=2) == [[[1, 0, 1, 0]], [[0, 1, 0, 1]]]
    query, key = torch.zeros(1, 2, 1, 3), torch.zeros(1, 2, 4, 3)
    weights = gkalib.attention_weights(query, key, kernels.Gaussian(1.0), mask=own)
    assert (weights[0, 1, 0] > 0).int().tolist() == [0, 1, 0, 1]


def test_a_function_and_a_mask_join_both_ways():
    def even(b, h, q, k):
        return k % 2 == 0

    wanted = [[[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]]
    assert _seen(masks.Causal() & even) == wanted
    assert _seen(even & masks.Causal()) == wanted
    assert repr(masks.Causal() & even) == "Causal() & MaskFunction(even)"
    with pytest.raises(TypeError):
        masks.Causal() & 3


def test_the_tensors_of_a_mask_move_with_it_and_are_not_saved():
    rule = masks.Causal() & masks.KeyPadding(torch.tensor([1, 2])) & masks.Document(torch.tensor([0, 0, 1]))
    assert len(list(rule.buffers())) == 2 and not rule.state_dict()
    assert all(tensor.is_meta for tensor in rule.to("meta").buffers())


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.Window(0), "size must be at least 1, not 0"),
        (lambda: masks.Window(2.5), "Window: size must be a whole number, not 2.5"),
        (lambda: masks.Window(True), "Window: size must be a whole number, not True"),
        (lambda: masks.Window(float("nan")), "Window: size must be a whole number, not nan"),
        (lambda: masks.KeyPadding(torch.tensor([3, -1])), "lengths must be zero or more, not -1"),
        (lambda: masks.KeyPadding(torch.ones(2)), "lengths must be whole numbers"),
        (lambda: masks.Document(torch.zeros(2, 2, 2, dtype=torch.long)), "ids must be whole numbers"),
        (lambda: masks.Pairs(torch.zeros(3, 3)), "must be boolean"),
        (lambda: _seen(masks.KeyPadding(torch.ones(3, dtype=torch.long))), "3 lengths for a batch of 1"),
        (lambda: _seen(masks.Document(torch.zeros(3, dtype=torch.long))), "do not fit"),
        (lambda: _seen(torch.ones(4, 5, dtype=torch.bool)), r"mask \[1, 1, 4, 5\] does not broadcast"),
    ],
)
def test_bad_masks(make, message):
    with pytest.raises(ValueError, match=message):
        make()
