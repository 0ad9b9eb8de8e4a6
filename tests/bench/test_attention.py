"""Fused operations beside their rivals: they run in small, wrong results are refused, reasons are said."""

import os
import re
import subprocess
import sys

import pytest
import torch

from gkalib import results
from gkalib.bench import attention, problems, roofline, run, timing
from gkalib.bench.attention import Arm, by, check
from gkalib.bench.problems import problem
from gkalib.kernels import Gaussian
from gkalib.smoothing import make_problem
from gkalib.smoothing.fused.launch import LAUNCHES

RATES = roofline.Rates(products=1e12, memory=1e11, exponentials=1e9)


@pytest.fixture
def quick(monkeypatch):
    """Few runs of everything on one set of inputs, and rates that nobody measured."""
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    monkeypatch.setattr(timing, "rotation", lambda *_: 1)
    monkeypatch.setattr(roofline, "ceilings", lambda device: RATES)


def smoke(name, shape, **changes):
    return problems.shapes(name, "smoke", "cpu")[shape] | changes


def only(monkeypatch, **arms):
    """Let a family have these arms alone: as they are, or by what is given."""
    known = attention.arms

    def chosen(family, windowed):
        every = known(family, windowed=windowed)
        return {name.replace("_", "-"): every[name.replace("_", "-")] if arm is None else arm
                for name, arm in arms.items()}  # fmt: skip

    monkeypatch.setattr(attention, "arms", chosen)


def test_all_arms_of_a_shape_are_rows_of_one_run(quick, monkeypatch):
    only(monkeypatch, fused=None, padded=None, sdpa_cudnn=None, sdpa_flash=None, eager=None)
    before = LAUNCHES.total()
    rows = attention.time_arms(smoke("gka", "text-512", passes=["forward", "both"]))
    assert LAUNCHES.total() > before
    ran = {(row["arm"], row["pass"]) for row in rows if row["ms"] != ""}
    names = ("fused", "padded", "sdpa-flash", "eager")
    expected = {(name, direction) for name in names for direction in ("forward", "both")}
    assert ran == expected | {("fused-again", "forward")}
    (reason,) = {row["reason"] for row in rows if row["arm"] == "sdpa-cudnn"}
    assert reason.startswith("RuntimeError: No viable backend")
    assert all(row["reason"] == "" for row in rows if row["ms"] != "")
    row = next(row for row in rows if (row["arm"], row["pass"]) == ("eager", "forward"))
    floor, flops, bound = roofline.least(problem(smoke("gka", "text-512")), "forward", RATES)
    assert row["percent"] == pytest.approx(1e5 * floor / row["ms"]) and row["bound"] == bound
    assert row["tflops"] == pytest.approx(flops / row["ms"] / 1e9)
    metrics = attention.summarize(rows)
    assert metrics["ratio_eager_both"] == metrics["ms_both_eager"] / metrics["ms_both_fused"]
    assert metrics["ratio_sdpa_forward"] == metrics["ratio_sdpa_flash_forward"]
    assert (metrics["cells"], metrics["cells_run"]) == (10, 8) and "drift" in metrics


SHAPES = [
    ("gka", "vit-ti"),
    ("gka", "text-512"),
    ("rbf", "text"),
    ("gpa", "dickens"),
    ("karat", "vit-s"),
    ("decode", "gka"),
    ("decode", "rbf"),
    ("decode", "gpa"),
]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_every_arm_computes_what_it_is_named_for(name, shape):
    recipe = smoke(name, shape)
    known = attention.arms_of(recipe)
    assert {"fused", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "eager", "compiled"} <= known.keys()
    assert ("flex-softmax" in known) == (recipe["window"] is not None)
    here = known.keys() - {"sdpa-cudnn", "sdpa-efficient", "sdpa-cudnn-unwindowed", "compiled", "flex",
                           "flex-softmax"}  # fmt: skip
    for arm in here:
        check(
            arm, known[arm].compute, known[arm].of(problem(recipe)), backward="backward" in recipe["passes"]
        )


def test_problems_are_those_of_the_papers():
    gka, rbf = problem(smoke("gka", "text-512")), problem(smoke("rbf", "text"))
    assert gka.one_tensor and not rbf.one_tensor and isinstance(rbf.kernel, Gaussian)
    assert [*problems.leaves(gka)] == ["query", "log_sigma"], "GKA learns its bandwidths"
    assert [*problems.leaves(rbf)] == ["query", "key", "value"], "RBF attention does not"
    assert roofline.band(gka) == (True, 7) and roofline.band(rbf) == (True, None)
    assert "bias" in str([*problems.leaves(problem(smoke("gpa", "dickens")))])
    cache = problem(smoke("decode", "gka"))
    assert cache.grouped_key is cache.grouped_value and cache.sizes[2] == 1
    softmax = problems.softmax(gka)
    assert not softmax.one_tensor and softmax.sizes == gka.sizes and softmax.rules == gka.rules
    shape = problem(problems.shapes("gka", "full", "cuda")["text"], device="meta")
    assert shape.sizes == (8, 10, 2048, 2048) and shape.query.is_meta
    first, again, other = (problem(smoke("gka", "text"), seed).query for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_wrong_result_of_ours_is_not_timed_and_its_rivals_are(quick, here, monkeypatch, store):
    fused = by("padded")
    only(monkeypatch, sdpa_flash=None, fused=Arm(lambda given: 1.01 * fused(given)))
    wrong = (
        "bench: gka gives wrong results, which were not timed: vit-ti: wrong result: fused: out is off by "
    )
    with pytest.raises(ValueError, match=re.escape(wrong)):
        run.run("gka", ["vit-ti"], scale="smoke", keep=True)
    (record,) = results.load("bench")
    assert record.metrics["wrong"] == 1 and record.metrics["ms_forward_sdpa_flash"] > 0
    assert "ratio_sdpa_forward" not in record.metrics and "ms_forward_fused" not in record.metrics


def test_what_skips_hidden_blocks_counts_among_softmax_attention():
    columns = dict.fromkeys((*attention.KEPT, "products", "memory", "exponentials", "reason"), "")
    times = {"fused": 2.0, "sdpa-cudnn-unwindowed": 6.0, "flex-softmax": 3.0, "flex": 1.0}
    rows = [{**columns, "arm": name, "pass": "forward", "ms": ms} for name, ms in times.items()]
    assert attention.summarize(rows)["ratio_sdpa_forward"] == 1.5


def test_the_arms_of_a_shape_can_be_chosen():
    recipe = smoke("gka", "text", arms=["sdpa-flash", "fused"])
    assert [*attention.arms_of(recipe)] == ["fused", "sdpa-flash"]


def test_a_wrong_gradient_is_found():
    recipe, padded = smoke("gka", "vit-ti", batch=2), by("padded")
    for leaf in ("query", "log_sigma"):
        # The same output, of which a hundredth does not pass on its gradient to this leaf.
        def half(given, leaf=leaf):
            x, kernel = given.query, given.kernel
            x, kernel = (x.detach(), kernel) if leaf == "query" else (x, Gaussian(kernel.sigma.detach()))
            whole, fixed = padded(given), padded(make_problem(x, None, None, kernel))
            return whole + 0.01 * (fixed - fixed.detach() - whole + whole.detach())

        with pytest.raises(AssertionError, match=f"broken: the gradient of {leaf} is off by"):
            check("broken", half, problem(recipe))


def test_numbers_that_are_not_finite_are_wrong():
    padded = by("padded")
    with pytest.raises(AssertionError, match="out has numbers that are not finite"):
        check("broken", lambda given: padded(given) / 0.0, problem(smoke("gka", "vit-ti")))


def test_a_wrong_rival_is_a_row_that_says_so(quick, monkeypatch):
    padded = by("padded")
    only(monkeypatch, padded=None, eager=Arm(lambda given: padded(given) + given.query))
    rows = attention.time_arms(smoke("gka", "vit-ti", passes=["forward"]))
    (row,) = (row for row in rows if row["arm"] == "eager")
    assert row["ms"] == "" and row["reason"].startswith("wrong result: eager: out is off by")


def test_what_has_no_backward_pass_is_timed_forward(quick, monkeypatch):
    def forward_only(given):
        with torch.no_grad():
            return by("padded")(given)

    only(monkeypatch, eager=Arm(forward_only))
    rows = attention.time_arms(smoke("gka", "vit-ti"))
    ran = {row["pass"]: row["ms"] != "" for row in rows if row["arm"] == "eager"}
    assert ran == {"forward": True, "backward": False, "both": False}
    assert "does not require grad" in next(row["reason"] for row in rows if row["pass"] == "backward")


@pytest.mark.parametrize("family", ["gka", "rbf"])
def test_a_cpu_does_not_run_compiled_code_that_would_end_the_process(family):
    recipe = smoke(family, "text")
    with pytest.raises(ValueError, match="past the end"):
        attention.arms_of(recipe)["compiled"].compute(problem(recipe))


@pytest.mark.slow
def test_compiled_rivals_run_in_a_process_of_their_own():
    command = [sys.executable, "-m", "gkalib", "bench", "decode", "gpa", "--scale", "smoke"]
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, env=without, check=True)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    for name in ("eager", "compiled", "flex", "sdpa-flash"):
        assert re.fullmatch(rf" *{name} +forward( +[\d.e+-]+){{5}} *", lines[name]), lines[name]
    assert "fused operations run on a CUDA device" in lines["fused"]


def test_a_shape_is_kept_as_one_record(quick, here, monkeypatch, capsys, store):
    monkeypatch.setattr(results, "load_average", lambda: 0.75)
    only(monkeypatch, padded=None, sdpa_cudnn=None)
    run.run("gka", ["vit-ti"], scale="smoke", keep=True)
    (record,) = results.load("bench")
    assert record.busy and record.load == 0.75
    assert record.arm == "gka-vit-ti" and record.scale == "smoke" and record.recipe["heads"] == 2
    assert record.metrics["ms_forward_padded"] > 0 and record.metrics["cells_run"] == 3
    kept = results.rows(record)
    assert {row["arm"] for row in kept} == {"padded", "sdpa-cudnn", "padded-again"}
    assert all(row["reason"] for row in kept if row["arm"] == "sdpa-cudnn")
    printed = capsys.readouterr().out
    assert "gka vit-ti on cpu" in printed
    assert printed.startswith("other programs used 0.75 of each core in the last minute: records say so")


def test_recipes_have_the_fields_of_the_recorded_run():
    (old,) = results.load("bench", arm="gka-vit-ti", scale="reduced")
    assert problems.shapes("gka", "reduced", "cpu")["vit-ti"] == old.recipe


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "gkaa"}, r"no benchmark named 'gkaa'\. Known: gka, rbf"),
        ({"name": "gka", "scale": "full"}, "gka at full scale is sized for a GPU"),
        ({"name": "models", "scale": "full"}, "models at full scale is sized for a GPU"),
        ({"name": "gka", "shapes": ["vit"]}, r"gka has no shape 'vit'\. Known: vit-ti, vit-s, vit-b, text"),
        ({"name": "gka", "arms": ["sdpa"]}, r"gka vit-ti has no arm 'sdpa'\. Known: fused, "),
        (
            {"name": "models", "arms": ["gka-dense", "deit"]},
            r"models ti-training has no arm 'deit'\. Known: deit-",
        ),
        ({"name": "gka", "device": "cuda"}, "gka was asked for on cuda, and no CUDA device is there"),
    ],
)
def test_what_cannot_be_asked_for(asked, said):
    """It is refused before anything is timed."""
    if "device" in asked and torch.cuda.is_available():
        pytest.skip("a CUDA device is here: machines without one ask for it in vain")
    with pytest.raises(ValueError, match=f"^bench: {said}"):
        run.run(**{"scale": "smoke"} | asked)


def test_reasons_name_no_path_of_the_machine():
    said = attention.reason_of(RuntimeError("failed in /tmp/some/where.py: n/a\nmore"))
    assert said == "RuntimeError: failed in …: n/a"
