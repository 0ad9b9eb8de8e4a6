"""``auto`` goes by the card's file: right and no slower, of this code and this Triton, and nothing else."""

import functools
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gkalib import kernels, masks, normalizers
from gkalib.smoothing import api, smooth
from gkalib.smoothing.fused import cards, operation_of
from gkalib.smoothing.fused.cards import Card, Line
from gkalib.smoothing.fused.launch import collected
from gkalib.smoothing.problem import make_problem

ADA = Card("NVIDIA GeForce RTX 4090", (8, 9), 101_376, 128, triton="3.6")
X = torch.randn(1, 2, 20, 16)
GAUSSIAN = kernels.Gaussian(2.0)
EPS, UNNORMALIZED = normalizers.RowSum(0.5), normalizers.Unnormalized()
COMMAND = "gkalib ready gka --width 16 --dtype float32"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that puts a card, and lines that are known of it, in the place of this CPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(api, "ON_CPU", api.ON_GPU)

    def put(card: Card, *lines: Line) -> None:
        monkeypatch.setattr(cards, "here", functools.cache(lambda device: card))
        cards.write(card, lines)

    yield put
    monkeypatch.undo()
    cards.forget()


def line(direction: str = "forward", **changes) -> Line:
    made = Line("gka", direction, "float32", 16, "short", cards.code("gka"), "right", ms=1.0, rival="flex")
    return replace(made, **({"rival_ms": 2.0} | changes))


def choice(x: torch.Tensor = X) -> str:
    return api.explain(x, kernel=GAUSSIAN).choice


def test_auto_takes_what_is_right_and_no_slower(play):
    play(ADA, line())
    assert choice() == "fused"
    play(ADA, line(ms=2.5))
    assert choice() != "fused"
    assert "flex is faster on NVIDIA GeForce RTX 4090: 2 ms against 2.5" in str(
        api.explain(X, kernel=GAUSSIAN)
    )


def test_with_gradients_both_passes_count_together(play):
    x = X.clone().requires_grad_()
    play(ADA, line(ms=2.5))
    with pytest.warns(UserWarning, match=COMMAND):
        assert choice(x) != "fused"
    play(ADA, line("backward", ms=3.0, rival_ms=4.0))
    assert choice(x) == "fused", "5.5 ms against 6"


def test_a_line_that_is_missing_is_said_once_with_the_command_that_makes_it(play, recwarn):
    play(ADA)
    for _ in range(2):
        assert choice() != "fused"
    (said,) = [str(each.message) for each in recwarn]
    assert said.endswith(f"is not proved on {ADA.name}; `{COMMAND}` does that in a few minutes")


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "wrong", "why": "row 3 is off"},
        {"rehearsed": True},
        {"code": "f" * 12},
        {"dtype": "float16"},
    ],
    ids=["wrong", "rehearsed", "of other code", "of another type"],
)
@pytest.mark.filterwarnings("ignore:smooth")
def test_no_other_line_will_do(play, change):
    play(ADA, line(**change))
    explained = api.explain(X, kernel=GAUSSIAN)
    assert explained.choice != "fused" and explained.refusals["fused"] is None
    assert "but only by name" in str(explained)


@pytest.mark.filterwarnings("ignore:smooth")
def test_a_line_of_another_triton_is_not_taken(play):
    play(replace(ADA, triton="3.7"), line())
    play(ADA)
    assert choice() != "fused"


def test_what_does_not_fit_is_refused_with_the_reason(play):
    play(ADA, line(verdict="refused", why="gka_backward needs 172288 bytes of shared memory of 101376"))
    with pytest.raises(ValueError, match="cannot run on NVIDIA GeForce RTX 4090: gka_backward needs 172288"):
        smooth(X, kernel=GAUSSIAN, method="fused")
    assert choice() != "fused"


def test_an_old_card_takes_float16_through_pytorchs_attention(play):
    play(Card("Tesla T4", (7, 5), 65_536, 40, triton="3.6"))
    half = torch.randn(1, 2, 300, 64).half()
    explained = api.explain(half, kernel=GAUSSIAN)
    assert explained.choice == "padded" and "Tesla T4 has 7.5: there take float16" in str(explained)
    assert all("Tesla T4" in (explained.refusals[name] or "") for name in ("fused", "flex"))


def test_rocm_is_refused(play):
    play(Card("AMD Instinct MI300X", (9, 4), 65_536, 304, triton="3.6", rocm=True))
    assert "MI300X runs under ROCm" in api.explain(X, kernel=GAUSSIAN).refusals["fused"]


def test_the_blocks_of_the_file_are_what_runs(play):
    play(ADA, line(blocks={"smooth_forward": [16, 16, 2, 1]}))
    with collected() as started:
        smooth(X, kernel=GAUSSIAN, method="fused")
    assert [(each.config.rows, each.config.columns) for each in started] == [(16, 16)]


def test_the_answer_is_a_constant_of_a_compiled_graph(play):
    play(ADA, line())
    asked = "gka", False, torch.float32, 16, "short", torch.device("cpu")

    def choose(x):
        return x + 1 if cards.passed_over(asked) is None and cards.refusal(asked) is None else x - 1

    assert torch.compile(choose, fullgraph=True, backend="eager")(torch.zeros(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("ACC: tl.constexpr", "ACC:  tl.constexpr", True),
        ('"""The block of rows', '"""Those rows', True),
        ("    MASKED: tl.constexpr =", "    # A comment.\n    MASKED: tl.constexpr =", True),
        ("grad.to(ACC) / total[:, None]", "grad.to(ACC) * total[:, None]", False),
    ],
    ids=["layout", "docstring", "comment", "code"],
)
def test_a_line_counts_as_long_as_the_code_is_the_same(old, new, same, play, tmp_path, monkeypatch):
    before = {name: cards.code(name) for name in ("gka", "rows")}
    for path in cards.FOLDER.glob("*.py"):
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace(old, new) if path.stem == "symmetric" else text)
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    cards.forget()
    assert (cards.code("gka") == before["gka"]) == same
    assert cards.code("rows") == before["rows"], "which is other code"


def _write(width: int) -> None:
    for length in ("short", "long") * 5:
        cards.write(ADA, [line(width=width, length=length)])


def _write_for_ever(width: int) -> None:
    while True:
        _write(width)


def test_two_that_write_at_once_and_one_that_is_killed_lose_nothing(play):
    play(ADA)
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=_write, args=(width,)) for width in (16, 32)]
    killed = fork.Process(target=_write_for_ever, args=(64,))
    for process in (killed, *both):
        process.start()
    time.sleep(0.2)
    os.kill(killed.pid, signal.SIGKILL)
    for process in (killed, *both):
        process.join(60)
    cards.write(ADA, [line(width=128)])
    widths = sorted(each.width for each in cards.read(ADA.path()).values())
    assert [width for width in widths if width != 64] == [16, 16, 32, 32, 128]


def test_a_damaged_file_says_so(play):
    play(ADA, line())
    ADA.path().write_text("{")
    cards.forget()
    with pytest.raises(ValueError, match=r"is damaged.*gkalib ready --forget"):
        choice()


@pytest.mark.parametrize(
    ("operation", "inputs", "slots"),
    [
        ("gka", (X,), {"kernel": GAUSSIAN}),
        ("gka", (X, X, X), {"kernel": GAUSSIAN, "mask": masks.Causal()}),
        ("gka", (X,), {"kernel": GAUSSIAN, "normalizer": EPS}),
        ("smooth-gaussian", (X, X.clone()), {"kernel": GAUSSIAN}),
        ("smooth-gaussian", (X,), {"kernel": GAUSSIAN, "mask": masks.KeyPadding(torch.tensor([4]))}),
        ("smooth", (X, X.clone()), {}),
        ("smooth-lags", (X,), {"kernel": kernels.ExpDot() * kernels.Kerple(2)}),
        ("smooth-gaussian-unnormalized", (X,), {"kernel": GAUSSIAN, "normalizer": UNNORMALIZED}),
        ("decode-gaussian", (X[:, :, :1], X), {"kernel": GAUSSIAN, "normalizer": EPS}),
        ("decode", (X[:, :, :1], X), {}),
        ("rows", (X,), {"normalizer": normalizers.RowOperator(2, 20, rank=4)}),
    ],
)
def test_which_operation_a_problem_is(operation, inputs, slots):
    query, key, value = (*inputs, None, None)[:3]
    with torch.no_grad():
        problem = make_problem(query, key, value, **{"kernel": kernels.ExpDot(), **slots})
        assert operation_of(problem) == operation


def test_a_tie_is_no_slower(play):
    play(ADA, line(ms=2.0))
    assert choice() == "fused"


def test_the_users_line_comes_before_a_shipped_one(play, tmp_path, monkeypatch):
    shipped = tmp_path / "fused"
    shutil.copytree(cards.FOLDER, shipped)
    (shipped / "cards").mkdir(exist_ok=True)
    monkeypatch.setattr(cards, "FOLDER", shipped)
    play(ADA, line(ms=2.5))
    ADA.path().rename(shipped / "cards" / ADA.path().name)
    cards.forget()
    assert len(cards.known(ADA)) == 1 and choice() != "fused"
    play(ADA, line())
    assert choice() == "fused"
