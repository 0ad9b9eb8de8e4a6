"""The fused smoothing of queries, keys and values, forward."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from gkalib.smoothing.fused import forward
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.forward import smooth_forward
from gkalib.smoothing.fused.launch import LAUNCHES, collected
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import Inputs, random_inputs, smoothed
from tests.tolerance import agree, oracle

FLOAT64 = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 is the interpreter's oracle")
FORMS = {
    "softmax": {},
    "gaussian": {"norm": True},
    "lags": {"table": True},
    "everything": {"norm": True, "table": True},
    "gaussian sums": {"norm": True, "normalize": False},
    "sums with lags": {"table": True, "normalize": False},
}
BLOCKS = (Config(32, 16), Config(16, 32), Config(64, 16), Config(32, 64))


def given(queries: int, keys: int) -> Spans:
    """Causal documents with two queries that see nothing; beside them, all keys but the last two."""
    at = torch.arange(queries) + keys - queries
    half = keys // 2
    first = torch.stack([torch.where(at < half, 0, half), torch.zeros_like(at)])
    last = torch.stack([at + 1, torch.full_like(at, keys - 2)])
    last[0, :2] = first[0, :2]
    return Spans(queries + keys, queries + keys, first.int(), last.clamp(0, keys).int())


MASKS: dict[str, Callable[[int, int], Spans]] = {
    "whole": lambda n, m: Spans(n + m, n + m),
    "causal": lambda n, m: Spans(n + m, 0),
    "window": lambda n, m: Spans(9, 4),
    "narrow causal window": lambda n, m: Spans(2, 0),
    "given": given,
}


def assert_same(inputs: Inputs) -> None:
    """Values and logarithms are those of the formula to 1e-12 of the largest."""
    out, log_sum = smooth_forward(*inputs.to(torch.float64).all())
    exact, exact_log = (each.detach() for each in smoothed(inputs))
    oracle(out, exact)
    assert torch.equal(log_sum.isinf(), exact_log.isinf())
    oracle(log_sum.nan_to_num(posinf=0.0), exact_log.nan_to_num(posinf=0.0))


@FLOAT64
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", MASKS)
def test_values_are_the_formulas(mask: str, form: str):
    """Every form under every mask, a few lengths and blocks in turn."""
    turn = list(MASKS).index(mask) + list(FORMS).index(form)
    queries, keys = ((40, 40), (17, 63), (63, 64), (33, 100))[turn % 4]
    with forced(BLOCKS[turn % 4]):
        batch = 2 if mask == "given" else 1
        assert_same(random_inputs(queries, keys, MASKS[mask](queries, keys), batch=batch, **FORMS[form]))


@FLOAT64
@pytest.mark.parametrize("keys", [1, 17, 63, 64, 100])
@pytest.mark.parametrize("queries", [1, 17, 64])
def test_lengths(queries: int, keys: int):
    """Ragged ones, those of whole blocks, and more queries than keys, of which the first see nothing."""
    with forced(Config(32, 32)):
        assert_same(
            random_inputs(queries, keys, MASKS["causal"](queries, keys), heads=1, groups=1, norm=True)
        )


@FLOAT64
@pytest.mark.parametrize(("width", "value_width"), [(5, 24), (24, 5), (33, 16), (16, 64)])
def test_odd_and_unequal_widths(width: int, value_width: int):
    with forced(Config(32, 32)):
        assert_same(random_inputs(20, 40, Spans(60, 0), width=width, value_width=value_width, norm=True))


@FLOAT64
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (3, 1)])
@pytest.mark.parametrize("form", ["everything", "gaussian sums"])
def test_grouped_heads(form: str, heads: int, groups: int):
    """Each query head has its own scale, norm and table; keys and values are shared."""
    with forced(Config(32, 32)):
        assert_same(random_inputs(33, 33, Spans(70, 0), batch=2, heads=heads, groups=groups, **FORMS[form]))


@FLOAT64
def test_layouts():
    """Strides of every kind, and features that do not lie side by side."""
    inputs = random_inputs(20, 33, Spans(60, 60), batch=2, norm=True).to(torch.float64)
    spread = replace(
        inputs,
        query=inputs.query.mT.contiguous().mT,
        key=inputs.key.repeat_interleave(2, 2)[:, :, ::2],
        value=inputs.value[:1].expand_as(inputs.value),
    )
    with forced(Config(32, 32)):
        assert_same(spread)
        out, _ = smooth_forward(*spread.all())
    assert out.transpose(1, 2).is_contiguous()  # token-major, as the next projection reads it


def far_key(device: torch.device | str = "cpu") -> Inputs:
    """Causal rows that meet, from row 5 on, a key that scores 30 to 40 nats above their own."""
    inputs = random_inputs(40, 40, Spans(80, 0), heads=1, groups=1, device=device)
    query, key = inputs.query.detach().clone(), inputs.key.detach().clone()
    query[..., 0], key[..., 0] = 1.0, 0.0
    key[:, :, 5, 0] = 35 / inputs.scale
    return replace(inputs, query=query, key=key)


@FLOAT64
@pytest.mark.parametrize("form", ["softmax", "everything"])
def test_a_running_maximum_when_the_shift_was_too_small(form: str, monkeypatch: pytest.MonkeyPatch):
    """The second attempt of a block is the formula as well, also for rows that see nothing."""
    monkeypatch.setattr(forward, "limit", lambda dtype: 1.5)
    with forced(Config(32, 16)):
        assert_same(far_key())
        assert_same(random_inputs(40, 40, given(40, 40), batch=2, **FORMS[form]))


@pytest.mark.parametrize("form", ["softmax", "everything"])
def test_weights_that_overflow_half_precision(form: str, device: torch.device):
    """e^35 is no float16: the shift grows, and so it does where a row's own key is hidden by the table."""
    for inputs in (far_key(device), random_inputs(40, 40, Spans(80, 80), device=device, **FORMS[form])):
        if inputs.table is not None:
            inputs.table.detach()[:, 39] = -torch.inf
        half = inputs.to(torch.float16)
        with forced(Config(64, 16)):
            agree(smooth_forward(*half.all())[0], smoothed(half.to(torch.float64))[0], smoothed(half)[0])


@contextmanager
def raised_shifts() -> Iterator[Counter]:
    """Count the interpreter's blocks, by products, and those in which the shift grew, by powers."""
    from triton.runtime.interpreter import interpreter_builder as builder

    counts, own = Counter(), (builder.create_dot, builder.create_exp2)

    def counted(name: str, function: Callable) -> Callable:
        def call(*given):
            counts[name] += 1
            return function(*given)

        return call

    builder.create_dot, builder.create_exp2 = (
        counted(*each) for each in zip(("products", "powers"), own, strict=True)
    )
    try:
        yield counts
    finally:
        builder.create_dot, builder.create_exp2 = own
        counts["blocks"] = counts["products"] // 2
        counts["raised"] = (counts["powers"] - counts["blocks"]) // 2


@FLOAT64
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("spread", [1.0, 2.0, 4.0])
def test_no_block_is_done_twice_in_half_precision(norm: bool, spread: float):
    """As in the article on RBF attention, causal, γ = 1/√d: each block has its two products once.

    The shift grows seldom, for numbers of standard deviation 1 never.
    """
    inputs = random_inputs(96, 96, Spans(200, 0), width=64, norm=norm)
    two = torch.full((2,), 2 / 64**0.5, dtype=torch.float64)
    query, key = (spread * each.detach() for each in (inputs.query, inputs.key))
    inputs = replace(inputs, query=query, key=key, scale=two, norm=two if norm else None).to(torch.float16)
    with forced(Config(32, 16)), raised_shifts() as counts:
        out, _ = smooth_forward(*inputs.all())
    assert counts["blocks"] == 2 * (2 + 4 + 6)
    assert counts["raised"] <= {1.0: 0, 2.0: 12, 4.0: 24}[spread]
    agree(out, smoothed(inputs.to(torch.float64))[0], smoothed(inputs)[0])


def test_a_table_may_forbid_lags(device: torch.device):
    """Minus infinity at a lag, also at that of the row's own key."""
    inputs = random_inputs(33, 33, Spans(66, 0), table=True, device=device)
    table = inputs.table.detach().clone()
    table[:, 32] = -torch.inf
    table[:, 40] = -torch.inf
    inputs = replace(inputs, table=table).to(torch.float32)
    with forced(Config(32, 16)):
        out, _ = smooth_forward(*inputs.all())
    exact = smoothed(inputs.to(torch.float64))[0]
    assert (out[:, :, 0] == 0).all()  # the first row saw itself alone
    agree(out, exact, smoothed(inputs)[0])


@pytest.mark.parametrize("form", ["everything", "gaussian sums"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types(dtype: torch.dtype, form: str, device: torch.device):
    if dtype == torch.bfloat16 and device.type == "cpu":
        pytest.skip("the interpreter computes nonsense in bfloat16; op.py hands it float32")
    inputs = random_inputs(63, 100, Spans(170, 0), width=24, device=device, **FORMS[form]).to(dtype)
    out, log_sum = smooth_forward(*inputs.all())
    exact, same = smoothed(inputs.to(torch.float64)), smoothed(inputs)
    agree(out, exact[0], same[0])
    if inputs.normalize:
        agree(log_sum, exact[1], same[1])


def test_no_program_too_many(device: torch.device):
    """Norms of keys and the padded table are formed once; a form without them is one program."""
    for form, programs in {
        "softmax": {"smooth_forward_kernel": 1},
        "everything": {"smooth_forward_kernel": 1, "squared_norms_kernel": 1, "pad_table_kernel": 1},
    }.items():
        LAUNCHES.clear()
        smooth_forward(
            *random_inputs(17, 17, Spans(34, 34), device=device, **FORMS[form]).to(torch.float32).all()
        )
        assert programs == LAUNCHES


def test_starts_are_counted_in_64_bits():
    """A head's start beyond 2³¹ elements reaches the program as it is."""
    query = torch.empty(1, device="meta").expand(2, 1, 20, 16)
    far = torch.empty(2**32 + 400, device="meta").as_strided((2, 1, 20, 16), (2**32, 320, 16, 1))
    with collected() as launches:
        one = torch.empty(1, device="meta")
        smooth_forward(query.contiguous(), far, far, one, None, None, Spans(40, 40), True)
    assert launches[0].arguments["key"].strides[0] == 2**32
