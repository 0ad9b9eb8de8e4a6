"""A kernel of a page compiles from its own source, and a fault of it is told."""

import pytest
import torch

from chapters.lab.page import compiled, source_of
from tests.lab import page_kernels as kernels
from tests.tolerance import equal


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16)


@pytest.mark.slow
def test_a_kernel_with_a_helper_compiles_for_wgmma():
    q, k, v = normal(3, 128, 64)
    out, scale = torch.empty_like(q), torch.full((1,), 0.125)
    weights = (0.125 * (q.double() @ k.double().mT)).softmax(-1)
    done = compiled(
        kernels.row_kernel, q, k, v, out, scale, 128, tile=(64, 64), grid=2, B=64, D=64,
        expected={"out": weights @ v.double()},
    )  # fmt: skip
    report = done.report
    assert (report.program, report.rows, report.columns) == ("row", 64, 64)
    assert report.hgmma and report.spills == 0 and 32 < report.registers <= 255
    assert report.per_score is not None and 3 < report.per_score < 12
    assert f"{report.per_score:.2f} instructions per score" in str(done) and "no spills, wgmma" in str(done)
    if done.device is not None:
        assert done.error is not None and done.error < 0.02
        assert done.outputs is not None
        equal(done.outputs["query"].double(), q.double())


@pytest.mark.slow
def test_what_does_not_compile_is_told_in_the_compilers_words():
    q, k, v = normal(3, 64, 64)
    with pytest.raises(ValueError, match=r"untyped_kernel does not compile: .*[Bb]oth operands"):
        compiled(kernels.untyped_kernel, q, k, v, q, torch.ones(1), 64, tile=(64, 64), B=64, D=64)
    x = torch.ones(64, 64)
    report = compiled(kernels.norms_kernel, x, x, 64, tile=(64, 64), B=64, D=64).report
    assert report.per_score is None, "and the child answers the next order"


@pytest.mark.slow
def test_the_scores_of_one_row_are_counted_in_the_loop_of_exponentials():
    """At least two operations for each of 64 elements; with a tile of more rows no loop is a product's."""
    arguments = normal(64), normal(256, 64), torch.empty(1), 256
    report = compiled(kernels.one_row_kernel, *arguments, tile=(1, 32), B=32, D=64).report
    assert not report.hgmma and not report.hmma and len(report.loops) == 1
    assert report.per_score is not None and 2 * 64 < report.per_score < 16 * 64
    square = compiled(kernels.one_row_kernel, *arguments, tile=(32, 32), B=32, D=64).report
    assert square.per_score is None and not square.loops


def test_a_source_holds_what_the_kernel_uses_and_no_more():
    source = source_of(kernels.row_kernel)
    order = [source.index(part) for part in ("LOG2_E = tl.constexpr(1.44", "def rows_of", "def row_kernel")]
    assert max(order) == order[-1] and "norms_kernel" not in source
    assert "LOG2_E" not in source_of(kernels.norms_kernel)


def test_a_plain_number_cannot_go_along():
    with pytest.raises(ValueError, match=r"plain_kernel uses PLAIN, which is no tl\.constexpr"):
        source_of(kernels.plain_kernel)
    assert "IMPORTED = tl.constexpr(1.44" in source_of(kernels.imported_kernel)
