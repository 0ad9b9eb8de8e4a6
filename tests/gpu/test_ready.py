"""What ``ready`` finds wrong, what it drops, which blocks it keeps: without a card, by a clock of our own."""

import math
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from gkalib.cli import main
from gkalib.gpu import cases, ready
from gkalib.gpu.cases import OPERATIONS, Need, compare, compare_all
from gkalib.gpu.ready import Compiler, Fit
from gkalib.smoothing.fused import cards, operation_of
from gkalib.smoothing.fused.cards import Card, Line
from gkalib.smoothing.fused.configs import config

ADA = Card("NVIDIA GeForce RTX 4090", (8, 9), 101_376, 128, triton="3.6")
NEED = Need("smooth-gaussian", "float32", 16)
BLANK = Line("gka", "forward", "float32", 16, "short", cards.code("gka"), "wrong")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_problem_is_of_its_operation_and_the_interpreter_finds_it_right(name: str):
    need = Need(name, "float32", 16)
    assert len(cards.code(name)) == 12
    masks = enumerate(OPERATIONS[name].masks)
    turns = [need.problem(mask, 19, turn, batch=1, heads=2) for turn, mask in masks]
    assert {operation_of(given) for given in turns} == {name}
    posed = [(given, need.exact(given)) for given in turns[-1:]]
    for direction in need.directions:
        error, why = compare_all(posed, direction, need.dtype)
        assert 0 < error <= 1 and not why


def wrong_row(values: dict[str, torch.Tensor]) -> None:
    values["out"][0, 1, 150] *= 1.05


def wrong_entry(values: dict[str, torch.Tensor]) -> None:
    values["key"][1, 0, 77, 5] += 4 * values["key"].abs().mean()


def nan_tile(values: dict[str, torch.Tensor]) -> None:
    values["value"][0, 0, 64:80] = torch.nan


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("plant", "direction", "said"),
    [
        (wrong_row, "forward", "row 347 of the output is off"),
        (wrong_entry, "backward", "of the gradient of key is off"),
        (nan_tile, "backward", "row 64 of the gradient of value is off by inf"),
    ],
)
def test_a_planted_fault_is_found(plant, direction, said, dtype, monkeypatch: pytest.MonkeyPatch):
    given = NEED.problem("causal", 197, batch=2, heads=2 if plant is wrong_row else 4)
    exact = NEED.exact(given)
    faulty = {name: each.clone().to(getattr(torch, dtype)).double() for name, each in exact.items()}
    assert compare(faulty, exact, dtype)[1] == "", "rounding is none"
    plant(faulty)
    monkeypatch.setattr(cases, "values", lambda *_, **__: faulty)
    error, why = compare_all([(given, exact)], direction, dtype)
    assert error > 1 and said in why
    later = [(given, exact), (given, faulty)]
    assert said in compare_all(later, direction, dtype)[1], "a right problem after it excuses nothing"
    assert not compare_all([(given, exact)], "forward" if direction == "backward" else "backward", dtype)[1]


def test_what_does_not_run_is_wrong(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_, **__):
        raise ValueError("smooth: too large\nand more")

    monkeypatch.setattr(cases, "values", refuse)
    told = compare_all([(NEED.problem("all", 19), {})], "forward", "float32")
    assert told == (math.inf, "it does not run: ValueError: smooth: too large")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch):
    """A compiler that answers by a function of the block sizes."""

    def make(of) -> Compiler:
        def ask(self, need, program, sizes):
            answer: Future[Fit] = Future()
            answer.set_result(of(*sizes))
            return answer

        monkeypatch.setattr(Compiler, "ask", ask)
        made = object.__new__(Compiler)
        made.card = ADA
        return made

    return make


TRIED = [[128, 64, 8, 2], [64, 64, 4, 2], [64, 32, 4, 2]]


@pytest.mark.parametrize(
    ("of", "kept"),
    [
        (lambda *sizes: Fit(90_000, 0), TRIED),
        (lambda rows, *_: Fit(2000 * rows, 0), [[32, 16, 4, 2]]),
        (lambda rows, columns, *_: Fit(9, 400 * (columns > 32)), TRIED[2:]),
        (lambda rows, columns, *_: Fit(9, 400 * (columns > 16)), [[64, 16, 4, 2]]),
        (lambda rows, columns, *_: Fit(9, rows + columns), [[16, 16, 4, 1]]),
    ],
    ids=["all fit", "rows are halved", "one spills", "columns are halved", "all spill"],
)
def test_what_does_not_fit_or_spills_is_dropped(of, kept, compiler):
    found, why = compiler(of).fitting(NEED, "smooth_forward", TRIED)
    assert (found, why) == (kept, "")


def test_what_never_fits_is_refused_with_the_reason(compiler):
    for fit, said in (
        (Fit(200_000, 0), "needs 200000 bytes of shared memory of 101376"),
        (Fit(0, 0, fault="no"), "no"),
    ):
        found, why = compiler(lambda *sizes, fit=fit: fit).fitting(NEED, "smooth_forward", TRIED)
        assert found == [] and said in why


def test_halving_ends():
    sizes, steps = [128, 64, 8, 3], 0
    while sizes is not None:
        last, sizes, steps = sizes, ready.smaller(sizes), steps + 1
    assert last == [16, 16, 4, 1] and steps < 10


@pytest.mark.parametrize(
    ("times", "kept", "verdict"), [((3.0, 1.0), 64, "right"), ((math.inf,) * 2, 0, "wrong")]
)
def test_the_fastest_that_is_right_is_kept(times, kept, verdict, monkeypatch: pytest.MonkeyPatch):
    """Blocks of 32 rows are wrong, 16 and 64 are right."""

    def forced_rows() -> int:
        return config("smooth_forward", width=16, dtype=torch.float32).rows

    monkeypatch.setattr(ready, "compare_all", lambda *_: (9.0, "row 3") if forced_rows() == 32 else (0.5, ""))
    monkeypatch.setattr(
        ready, "timed", lambda *_: dict(zip((16, 64), times, strict=True)).get(forced_rows(), 0.1)
    )
    monkeypatch.setattr(ready, "rival", lambda *_: ("flex", 2.0))
    monkeypatch.setattr(ready, "large", lambda *_: None)
    monkeypatch.setattr(Need, "problems", lambda self, *_, **__: [])
    fitting = {"smooth_forward": [[rows, 16, 4, 1] for rows in (16, 32, 64)]}
    line = ready.prove(BLANK, Need("gka", "float32", 16), fitting, ADA)
    assert line.verdict == verdict and line.blocks.get("smooth_forward", [0])[0] == kept
    assert (line.ms, line.rival_ms) == ((1.0, 2.0) if kept else (None, None))


def test_what_is_needed_is_what_layers_ask_for():
    default = ready.needed((), (64,), ["bfloat16"])
    assert [need.operation for need in default] == ["gka", "smooth-gaussian", "smooth-lags", "smooth"]
    assert ready.needed(["decode-lags"], (32,), ["float16"]) == [Need("decode-lags", "float16", 32)]
    recipe = ready.needed(["gka-imagenet-tiny"], (64,), ["bfloat16"])
    assert {need.operation for need in recipe} >= {"gka", "smooth"}
    assert {need.width for need in recipe} == {64}
    assert ready.needed(["karat"], (64,), ["bfloat16"]) == [Need("rows", "bfloat16", 64)]
    with pytest.raises(ValueError, match=r"no variant, recipe or trained model 'gak'. Known: .*gka"):
        ready.needed(["gak"], (64,), ["bfloat16"])


def test_a_table_says_what_counts():
    lines = [
        replace(
            BLANK, verdict="right", error=0.5, ms=1.0, rival="flex", rival_ms=2.0, blocks={"a": [1, 2, 3, 4]}
        ),
        replace(BLANK, direction="backward", code="old", why="row 3", rehearsed=True),
    ]
    table = str(ready.report(lines))
    assert "wrong, rehearsed, of older code: row 3" in table and "flex 2" in table and "a 1×2×3×4" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ready"], "ready: no CUDA card is here; --rehearse sm_89"),
        (["ready", "--rehearse", "sm_75"], "no chip 'sm_75' can be rehearsed. Known: sm_80"),
    ],
)
def test_what_cannot_be_is_one_line(words, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(words) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
