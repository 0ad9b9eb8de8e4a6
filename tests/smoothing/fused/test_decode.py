"""One new token against a cache: the split programs against the library's reference."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from gkalib.kernels import DecayingPeriodicBank, ExpDot, Gaussian, Kernel
from gkalib.layers import attention
from gkalib.masks import Causal, KeyPadding, Window
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.smoothing import Cache, smooth
from gkalib.smoothing.fused import decode as module
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.decode import decode, parts
from gkalib.smoothing.fused.launch import LAUNCHES, collected
from tests.tolerance import agree

SMALL = Config(rows=16, columns=16, warps=4, stages=2)


@pytest.fixture(autouse=True)
def _small_blocks():
    """Blocks of 16 keys, so that short caches have edges."""
    with forced(SMALL):
        yield


def sample(
    m: int, *, batch: int = 1, heads: int = 2, groups: int | None = None, d: int = 16, e: int | None = None,
    dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """A query, and the first m places of a longer cache, whose other places hold no numbers."""
    query = torch.randn(batch, heads, 1, d, dtype=torch.float64)
    key, value = (
        torch.full((batch, groups or heads, m + 5, width), torch.nan, dtype=torch.float64)[:, :, :m]
        for width in (d, e or d)
    )
    key.normal_()
    value.normal_()
    return tuple(tensor.to(device, dtype) for tensor in (query, key, value))


def relative(actual: Tensor, exact: Tensor) -> float:
    """The largest error over the largest number."""
    return ((actual - exact).abs().max() / exact.abs().max()).item()


def scales(sigma: Tensor) -> Tensor:
    """σ of each head as the factor of q·k."""
    return sigma**-2


SIGMA = torch.tensor([1.5, 2.5], dtype=torch.float64)


@pytest.mark.parametrize("m", [1, 16, 37])
@pytest.mark.parametrize("norm", ["none", "scale", "sigma", "own"])
def test_it_is_the_reference_in_float64(m: int, norm: str):
    """Without norms, with a Gaussian's, and with those of a product of two kernels."""
    query, key, value = sample(m, e=24)
    scale = scales(SIGMA)
    kernel: Kernel = {
        "none": ExpDot(scale),
        "scale": Gaussian(SIGMA),
        "sigma": Gaussian(SIGMA),
        "own": Gaussian(SIGMA) * ExpDot(0.3),
    }[norm]
    numbers = {
        "none": (scale, None),
        "scale": (scale, scale),
        "sigma": (None, None),
        "own": (scale + 0.3, scale),
    }
    given, sigma = numbers[norm], SIGMA if norm == "sigma" else None
    exact = smooth(query, key, value, kernel, method="reference")
    assert relative(decode(query, key, value, *given, None, None, True, sigma=sigma), exact) <= 1e-12
    exact = smooth(query, key, value, kernel, normalizer=Unnormalized(), method="reference")
    assert relative(decode(query, key, value, *given, None, None, False, sigma=sigma), exact) <= 1e-12


@pytest.mark.parametrize("programs", [1, 4, 1024])
def test_any_number_of_parts_gives_the_same(programs: int, monkeypatch: pytest.MonkeyPatch):
    """One part, two parts of unequal length, a part for each block."""
    monkeypatch.setattr(module, "RESIDENT", programs)
    monkeypatch.setattr(module, "PROCESSORS", 1)
    query, key, value = sample(70)
    scale = scales(SIGMA)
    out = decode(query, key, value, scale, scale, None, None, True)
    assert relative(out, smooth(query, key, value, Gaussian(SIGMA), method="reference")) <= 1e-12


@pytest.mark.parametrize("rows", [1, 80, 5000])
@pytest.mark.parametrize("keys", [1, 31, 32, 33, 2048, 131072])
def test_parts_cover_every_key_and_none_is_empty(rows: int, keys: int):
    splits, blocks = parts(rows, keys, 32)
    assert 1 <= splits <= module.MOST_SPLITS
    assert (splits - 1) * blocks * 32 < keys <= splits * blocks * 32
    assert rows * splits <= max(rows, module.RESIDENT * module.PROCESSORS)


def test_a_cache_of_one_tensor():
    """GKA's, in which the token's own key is."""
    _, key, _ = sample(40)
    query = key[:, :, -1:]
    scale = scales(torch.tensor([0.05, 4.0], dtype=torch.float64))  # the first head sees almost only itself
    exact = smooth(query, key, key, Gaussian(scale**-0.5), method="reference")
    out = decode(query, key, key, scale, scale, None, None, True)
    assert relative(out, exact) <= 1e-12


def test_one_tensor_is_read_once():
    """Under whatever object it comes: what decides is the memory."""
    _, key, value = sample(20)
    for second, once in ((key, True), (key[:, :], True), (value, False), (key[..., :8], False)):
        with collected() as launches:
            decode(key[:, :, -1:], key, second, SIGMA, SIGMA, None, None, True)
        assert (launches[0].arguments["value"].start is None) is once


@pytest.mark.parametrize("groups", [1, 2])
def test_query_heads_share_the_keys_of_their_group(groups: int):
    query, key, value = sample(20, heads=4, groups=groups)
    sigma = torch.linspace(1.0, 2.0, 4, dtype=torch.float64)
    exact = smooth(query, key, value, Gaussian(sigma), method="reference")
    assert relative(decode(query, key, value, scales(sigma), scales(sigma), None, None, True), exact) <= 1e-12


@pytest.mark.parametrize("heads", [8, 36])
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("seen", ["all", "lengths", "some", "none"])
def test_the_heads_of_a_group_share_one_reading_of_its_keys(heads: int, one: bool, seen: str):
    """Two groups of four and of eighteen, more than the least that a product takes; odd widths."""
    query, key, value = sample(70, batch=3, heads=heads, groups=2, d=17, e=24)
    value = key if one else value
    scale, table = torch.linspace(0.5, 3.0, heads).double(), torch.randn(3, heads, 70).double()
    lengths = torch.tensor([1, 40, 70]) if seen == "lengths" else None
    allowed = {"some": torch.rand(3, 1, 1, 70) < 0.4, "none": torch.zeros(3, 1, 1, 70).bool()}.get(seen)
    shown = allowed if lengths is None else torch.arange(70) < lengths[:, None, None, None]
    for lags, normalize in ((None, True), (table, True), (table, False)):
        given = (query, key, value, scale, None, lags, allowed, normalize)
        with collected() as launches:
            decode(*given, lengths=lengths)
        assert launches[0].name == "decode_group_kernel" and launches[0].grid % (3 * 2) == 0
        score = (
            torch.einsum("bhid,bhjd->bhij", query, key.repeat_interleave(heads // 2, 1))
            * scale[:, None, None]
        )
        score = score if lags is None else score + lags[:, :, None]
        weight = score.exp() if shown is None else score.exp() * shown
        exact = weight @ value.repeat_interleave(heads // 2, 1)
        exact = exact / weight.sum(-1, keepdim=True).clamp(min=1e-300) if normalize else exact
        out = decode(*given, lengths=lengths)
        assert (out - exact).abs().max() <= 1e-12 * exact.abs().max()


def test_heads_of_a_group_that_see_different_keys_read_them_each():
    query, key, value = sample(45, heads=4, groups=2)
    allowed = torch.rand(1, 4, 1, 45) < 0.3
    with collected() as launches:
        decode(query, key, value, torch.ones(4).double(), None, None, allowed, True)
    assert launches[0].name == "decode_split_kernel"


def test_scores_of_lags_are_added():
    """GPA: a table's values at the lags of this query, one row a head, and one of −∞ forbids a key."""
    bank = DecayingPeriodicBank(2).double()
    query, key, value = sample(40)
    scale = torch.full((2,), 0.25, dtype=torch.float64)
    at_lag = bank.lag_table(40).detach()  # [h L]
    row = at_lag.flip(-1)[None]  # key j stands 39 − j back
    exact = smooth(query, key, value, ExpDot(0.25) * bank, method="reference")
    assert relative(decode(query, key, value, scale, None, row, None, True), exact) <= 1e-12
    few = row.clone()
    few[..., :30] = -torch.inf
    exact = smooth(query, key, value, ExpDot(0.25) * bank, mask=Window(10), method="reference")
    assert relative(decode(query, key, value, scale, None, few, None, True), exact) <= 1e-12


def test_a_ragged_batch_in_a_window():
    """Sequences of 1 to 50 tokens in one cache, the last 20 seen; what no sequence has yet is never read."""
    lengths = torch.tensor([1, 17, 50])
    query, key, _ = sample(50, batch=3)
    out_of_sight = []
    allowed = torch.zeros(3, 1, 1, 50, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        query[b] = key[b, :, length - 1 : length]
        allowed[b, ..., max(0, length - 20) : length] = True
        seen = key[b : b + 1, :, :length].clone()
        out_of_sight.append(
            smooth(
                query[b : b + 1], seen, seen, Gaussian(SIGMA), mask=Causal() & Window(20), method="reference"
            )
        )
    key.masked_fill_(~allowed.mT, torch.nan)
    scale = scales(SIGMA)
    out = decode(query, key, key, scale, scale, None, allowed, True)
    assert relative(out, torch.cat(out_of_sight)) <= 1e-12


def sizes_of(arguments: Iterable[object]) -> list[object]:
    """What is no tensor, in groups too."""
    each = [sizes_of(one) if isinstance(one, tuple) else one for one in arguments]
    return [one for one in each if not isinstance(one, Tensor)]


@pytest.mark.parametrize("parts", [1, 3])
def test_lengths_stay_on_the_device(parts: int, monkeypatch: pytest.MonkeyPatch):
    """One list of arguments serves while a cache grows, as a captured graph would: what it reads changes."""
    monkeypatch.setattr(module, "RESIDENT", 4 * parts)
    monkeypatch.setattr(module, "PROCESSORS", 1)
    query, key, value = sample(70, batch=2)
    scale, lengths = scales(SIGMA), torch.tensor([1, 40])
    arguments = []
    for more in ([0, 0], [16, 30], [53, 0]):
        lengths += torch.tensor(more)
        with collected() as launches:
            decode(query, key, value, scale, scale, None, None, True, lengths=lengths)
        arguments.append((launches[0].grid, sizes_of(launches[0].arguments.values())))
        out = decode(query, key, value, scale, scale, None, None, True, lengths=lengths)
        mask = KeyPadding(lengths) & Causal()
        exact = smooth(query, key, value, Gaussian(SIGMA), mask=mask, method="reference")
        assert relative(out, exact) <= 1e-12
        by_name = smooth(query, key, value, Gaussian(SIGMA), mask=mask, method="fused")
        assert torch.equal(out, by_name)
    assert arguments[0] == arguments[1] == arguments[2]


def test_any_mask_and_heads_that_see_different_keys():
    query, key, value = sample(45, batch=2)
    allowed = torch.rand(2, 2, 1, 45) < 0.3
    scale = scales(SIGMA)
    exact = smooth(query, key, value, Gaussian(SIGMA), mask=allowed, method="reference")
    assert relative(decode(query, key, value, scale, scale, None, allowed, True), exact) <= 1e-12


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_a_row_that_sees_nothing_is_zero(normalize: bool, eps: float):
    query, key, value = sample(20, batch=2)
    lengths = torch.tensor([0, 20])
    allowed = KeyPadding(lengths).lengths[:, None, None, None] > torch.arange(20)
    scale = scales(SIGMA)
    out = decode(query, key, value, scale, scale, None, allowed, normalize, eps=eps)
    assert (out[0] == 0).all()
    assert (out[1] != 0).all()


def test_a_number_may_be_added_to_the_sum():
    """ε in units of the kernel; far keys leave only ε."""
    query, key, _ = sample(33)
    exact = smooth(query, key, key, Gaussian(SIGMA), normalizer=RowSum(eps=0.5), method="reference")
    scale = scales(SIGMA)
    assert relative(decode(query, key, key, scale, scale, None, None, True, eps=0.5), exact) <= 1e-12
    far = decode(query + 1e3, key, key, scale, scale, None, None, True, eps=0.5)
    assert (far == 0).all()


@pytest.mark.parametrize("d", [17, 40])
def test_odd_widths(d: int):
    query, key, value = sample(20, d=d, e=d + 3)
    scale = scales(SIGMA)
    exact = smooth(query, key, value, Gaussian(SIGMA), method="reference")
    assert relative(decode(query, key, value, scale, scale, None, None, True), exact) <= 1e-12


def test_memory_in_any_order():
    """Heads beside each other in memory, as a projection leaves them, and rows that are no rows in memory."""
    query, key, value = sample(20)
    scale = scales(SIGMA)
    exact = smooth(query, key, value, Gaussian(SIGMA), method="reference")
    by_token = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (query, key, value)]
    by_column = [tensor.mT.contiguous().mT for tensor in (query, key, value)]
    for tensors in (by_token, by_column):
        assert relative(decode(*tensors, scale, scale, None, None, True), exact) <= 1e-12


def test_large_scores_do_not_overflow():
    """Scores of thousands, where exp is infinite in any type."""
    query, key, value = sample(40)
    scale = torch.full((2,), 300.0, dtype=torch.float64)
    exact = smooth(query, key, value, ExpDot(300.0), method="reference")
    assert relative(decode(query, key, value, scale, None, None, None, True), exact) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_types(dtype: torch.dtype, device: torch.device):
    """Sums are in float32, so half precision errs by the rounding of its inputs and of the result alone."""
    tensors = sample(50, e=24, dtype=dtype, device=device)
    scale = scales(SIGMA).float().to(device)
    exact = smooth(*(tensor.double() for tensor in tensors), Gaussian(SIGMA.to(device)), method="reference")
    same = smooth(*tensors, Gaussian(SIGMA.to(device).float()), method="reference")
    agree(decode(*tensors, scale, scale, None, None, True), exact, same)


def test_a_library_cache_is_read_where_it_lies():
    """No copy of it is made: the program gets the cache's own memory."""
    cache = Cache(1, 64)
    tokens = torch.randn(1, 2, 30, 16, dtype=torch.float64)
    cache.append(tokens[:, :, :29], tokens[:, :, :29])
    key, value, _ = cache.append(tokens[:, :, 29:], last := tokens[:, :, 29:])
    assert last.shape[2] == 1
    with collected() as launches:
        decode(tokens[:, :, 29:], key, value, SIGMA, SIGMA, None, None, True)
    assert launches[0].arguments["key"].start.data_ptr() == key.data_ptr()
    assert launches[0].arguments["key"].strides[1] == 64 * 16


def test_two_programs_are_started_and_nothing_is_read_from_the_device():
    query, key, value = sample(40)
    before = LAUNCHES.copy()
    decode(query, key, value, SIGMA, SIGMA, None, None, True)
    assert LAUNCHES - before == {"decode_split_kernel": 1, "decode_combine_kernel": 1}
    meta = [tensor.to("meta") for tensor in (query, key, value, SIGMA)]
    with collected() as launches:  # a tensor on this device has no numbers to read
        decode(*meta, meta[-1], None, torch.ones(1, 1, 1, 40, dtype=torch.bool, device="meta"), True)
    assert [launch.name for launch in launches] == ["decode_split_kernel", "decode_combine_kernel"]


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_smooth_takes_it_for_one_query(eps: float):
    """With a Gaussian the scale is the norm, one tensor: the product of query and key is not formed."""
    query, key, _ = sample(40)
    before, normalizer = LAUNCHES.copy(), RowSum(eps=eps)
    slots = {"mask": Causal() & Window(30), "normalizer": normalizer}
    out = smooth(query, key, key, Gaussian(SIGMA), method="fused", **slots)
    assert LAUNCHES - before == {"decode_split_kernel": 1, "decode_combine_kernel": 1}
    assert relative(out, smooth(query, key, key, Gaussian(SIGMA), method="reference", **slots)) <= 1e-12
    with collected() as launches:
        smooth(query, key, key, Gaussian(SIGMA), method="fused", **slots)
    assert launches[0].arguments["numbers"].sigma is not None
    assert launches[0].arguments["value"].start is None


@pytest.mark.parametrize("name", ["gka", "gpa"])
@torch.no_grad()
def test_a_layer_writes_from_a_ring(name: str):
    """Keys in any order, their positions with them: each token's row is that of the whole pass."""
    layer = attention(name, position="rope", method="fused")(16, num_heads=2).double()
    whole = attention(name, position="rope")(16, num_heads=2).double()
    whole.load_state_dict(layer.state_dict())
    tokens, mask, cache = torch.randn(1, 9, 16, dtype=torch.float64), Causal() & Window(4), Cache(1, 9, 4)
    before = LAUNCHES.copy()
    rows = [layer(token, mask=mask, cache=cache) for token in tokens.split(1, dim=1)]
    assert (LAUNCHES - before)["decode_split_kernel"] == 9
    assert relative(torch.cat(rows, dim=1), whole(tokens, mask=mask)) <= 1e-12


def test_a_growing_cache_compiles_nothing_anew():
    """The two programs of a step are the same from the first token to the 2048th, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.smoothing.fused.growing"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    cases = done.stdout.splitlines()
    assert len(cases) == 12
    assert [case for case in cases if not case.endswith(" 2")] == []


COMPILES = """
from gkalib.gpu.ahead import compiled, disassemble, read, source_of
from gkalib.gpu.cases import Sample
from gkalib.smoothing.fused.configs import Config, forced
with forced(Config(16, 32)):
    for launch in Sample("gka_decode", 128).launches():
        code, log = compiled(*source_of(launch))
        print(read(launch, code, log))
        print(*disassemble(code.asm["cubin"]))
"""


@pytest.mark.slow
def test_machine_code_reads_sixteen_bytes_at_a_time():
    """Compiled for an H100 in a process of its own: no register spilled, no load of keys narrower."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILES],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    split, code, combine, _ = done.stdout.splitlines()
    assert split.startswith("decode_split") and combine.startswith("decode_combine")
    assert all(re.search(r"spills +0 ", line) for line in (split, combine))
    loads = re.findall(r"LDG\.E(\.\w+)?", code)
    copies = re.findall(r"LDGSTS\.E\S*", code)
    assert len(copies) == 8  # 32 × 128 numbers of two bytes by 128 threads, before the loop and in it
    assert all(".128" in copy for copy in copies)
    assert set(loads) == {".U16", ""}  # the query, once; the head's scale, once
