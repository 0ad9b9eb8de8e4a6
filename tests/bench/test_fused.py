"""Benchmarks of fused operations and whole models: they run in small, refuse wrong results, say why not."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from gkalib import results
from gkalib.bench import arms, cases, fused, models, roofline, run, timing
from gkalib.smoothing.fused.launch import LAUNCHES

RATES = roofline.Rates(products=1e12, memory=1e11, exponentials=1e9)
COMPILED = ("compiled", "compiled-factored", "flex", "flex-softmax", "flex-fixed-table")


@pytest.fixture
def quick(monkeypatch):
    """Two runs of everything on one set of inputs, and rates that nobody measured."""
    for name, value in (("SECONDS", 0.0), ("FEWEST", 2), ("rotation", lambda *_: 1)):
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(models, "SECONDS", 0.0)
    monkeypatch.setattr(roofline, "ceilings", lambda device: (RATES, None))


@pytest.fixture
def here(monkeypatch):
    """Cases run in this process."""
    monkeypatch.setattr(run, "_in_fresh_process", lambda call, *arguments: call(*arguments))


def smoke(family, shape):
    return next(case for case in cases.shapes(family, "smoke", "cpu") if case["shape"] == shape)


def only(monkeypatch, *names, **others):
    """Let a case have these arms alone, and others by what changes them."""
    known = arms.arms

    def chosen(case):
        arms_of = known(case)
        changed = {name: change(arms_of[name]) for name, change in others.items()}
        return {name: arms_of[name] for name in names} | changed

    monkeypatch.setattr(fused, "arms", chosen)


def test_all_arms_of_a_shape_are_rows_of_one_run(quick, monkeypatch):
    only(monkeypatch, "fused", "padded", "sdpa-cudnn", "sdpa-flash", "eager")
    before = LAUNCHES.total()
    rows = fused.time_arms({**smoke("gka", "text-512"), "passes": ["forward", "both"]})
    assert LAUNCHES.total() > before
    ran = {(row["arm"], row["pass"]) for row in rows if row["ms"] != ""}
    names = ("fused", "padded", "sdpa-flash", "eager")
    assert ran == {(name, direction) for name in names for direction in ("forward", "both")} | {
        ("fused-again", "forward")
    }
    (reason,) = {row["reason"] for row in rows if row["arm"] == "sdpa-cudnn"}
    assert reason.startswith("RuntimeError: No viable backend")
    assert all(row["reason"] == "" for row in rows if row["ms"] != "")
    row = next(row for row in rows if (row["arm"], row["pass"]) == ("eager", "forward"))
    floor, flops, bound = roofline.least(smoke("gka", "text-512"), "forward", "gka", RATES)
    assert row["percent"] == pytest.approx(1e5 * floor / row["ms"]) and row["bound"] == bound
    assert row["tflops"] == pytest.approx(flops / row["ms"] / 1e9)
    metrics = fused.summarize(rows)
    assert metrics["ratio_eager_both"] == metrics["ms_both_eager"] / metrics["ms_both_fused"]
    assert metrics["ratio_sdpa_forward"] == metrics["ratio_sdpa_flash_forward"]
    assert (metrics["cells"], metrics["cells_run"]) == (10, 8) and "drift" in metrics


CHEAP = [
    ("gka", "vit-ti"),
    ("gka", "text-1024"),
    ("rbf", "text"),
    ("gpa", "dickens"),
    ("karat", "vit-s"),
    ("decode", "gka"),
    ("decode", "rbf"),
    ("decode", "gpa"),
]


@pytest.mark.parametrize(("family", "shape"), CHEAP)
def test_every_rival_computes_what_it_is_named_for(family, shape, quick):
    case = smoke(family, shape)
    known = arms.arms(case)
    skipped = {"fused", "sdpa-cudnn", "sdpa-efficient", "sdpa-cudnn-unwindowed", *COMPILED}
    skipped |= {name for name in known if name.startswith("fused-")}
    for name in known.keys() - skipped:
        fused.check(name, known[name], case)
    assert {"fused", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "eager", "compiled"} <= known.keys()


@pytest.mark.parametrize(("family", "shape"), [("rbf", "text"), ("gpa", "dickens"), ("karat", "vit-ti")])
def test_the_fused_arm_passes_its_gate(family, shape):
    case = {**smoke(family, shape), "queries": 17, "keys": 17}
    fused.check("fused", arms.arms(case)["fused"], case)


@pytest.mark.parametrize("kernel", ["gka", "rbf", "gpa"])
def test_the_fused_arm_of_decoding_passes_its_gate(kernel):
    case = smoke("decode", kernel)
    fused.check("fused", arms.arms(case)["fused"], case)


def test_a_wrong_result_of_ours_is_not_timed_and_its_rivals_are(quick, here, monkeypatch, tmp_path):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    only(monkeypatch, "sdpa-flash", fused=lambda arm: replace(arm, forward=lambda i: 1.01 * arm.forward(i)))
    wrong = (
        "bench: gka gives wrong results on vit-ti, so it was not timed: wrong result: fused: out is off by "
    )
    with pytest.raises(ValueError, match=re.escape(wrong)):
        run.run("gka", ["vit-ti"], scale="smoke", keep=True)
    (record,) = results.load("bench")
    assert record.metrics["wrong"] == 1 and record.metrics["ms_forward_sdpa_flash"] > 0
    assert "ratio_sdpa_forward" not in record.metrics and "ms_forward_fused" not in record.metrics


def test_a_window_has_a_rival_that_skips_what_it_hides():
    """FlexAttention with a block mask counts among softmax attention, which alone would see all pairs."""
    known = arms.arms(smoke("gka", "text-512"))
    assert "flex-softmax" in known and "flex-softmax" not in arms.arms(smoke("gka", "text"))
    columns = dict.fromkeys((*fused.KEPT, "products", "memory", "exponentials", "clock_mhz", "reason"), "")
    times = {"fused": 2.0, "sdpa-cudnn-unwindowed": 6.0, "flex-softmax": 3.0, "flex": 1.0}
    rows = [{**columns, "arm": name, "pass": "forward", "ms": ms} for name, ms in times.items()]
    assert fused.summarize(rows)["ratio_sdpa_forward"] == 1.5


def test_the_arms_of_a_case_can_be_chosen():
    case = smoke("gka", "text")
    assert [*arms.arms({**case, "arms": ["sdpa-flash", "fused"]})] == ["fused", "sdpa-flash"]
    with pytest.raises(ValueError, match=r"bench: gka has no arm 'sdpa'\. Known: fused, "):
        arms.arms({**case, "arms": ["sdpa"]})


def test_the_program_that_reads_through_a_descriptor_is_timed_beside_the_plain_one():
    case = {**smoke("gka", "text"), "passes": ["forward"]}
    for name, program in (("fused-plain", "gka_forward"), ("fused-described", "gka_forward_described")):
        LAUNCHES.clear()
        fused.check(name, arms.arms(case)[name], case)
        ran = [started for started in LAUNCHES if started.startswith("gka_forward")]
        assert ran == [f"{program}_kernel"]


def test_what_loses_the_device_is_left_out_the_next_time(quick, here, monkeypatch):
    """An arm after which nothing runs in that process: the others run in another one."""
    lost = []

    def dies(arm):
        def forward(i):
            lost.append(True)
            raise RuntimeError("an illegal memory access was encountered")

        return replace(arm, forward=forward)

    only(monkeypatch, fused=dies, padded=lambda arm: arm)
    monkeypatch.setattr(timing, "alive", lambda device: not lost)

    def alone(call, case):
        lost.clear()
        return call(case)

    monkeypatch.setattr(run, "_in_fresh_process", alone)
    rows = run.run("gka", ["vit-ti"], scale="smoke", apart=False)
    reasons = {row["arm"]: row["reason"] for row in rows}
    assert reasons["padded"] == "" and all(row["ms"] for row in rows if row["arm"] == "padded")
    assert reasons["fused"] == (
        "the device was lost with fused: RuntimeError: an illegal memory access was encountered"
    )


def test_a_rehearsal_runs_what_compiles_and_keeps_nothing(quick, monkeypatch, capsys):
    ran = []

    def noted(name):
        def change(arm):
            def forward(i):
                ran.append((name, str(i["query"].dtype), torch.is_grad_enabled()))
                return arm.forward(i)

            return replace(arm, forward=forward)

        return change

    names = ("fused", "padded", "eager")
    only(monkeypatch, **{name: noted(name) for name in names})
    fused.rehearse({**smoke("gka", "vit-ti"), "dtype": "float16"})
    assert ran == [
        ("fused", "torch.float32", True),
        ("fused", "torch.float16", True),
        ("fused", "torch.float16", False),
    ]
    assert capsys.readouterr().out == ""
    (case,) = (shape for shape in models.shapes("smoke", "cpu") if shape["mode"] == "training")
    for arm in ("gka-dense", "deit-sdpa-cudnn"):
        models._rehearse_arm({**case, "arms": [arm]})
    assert capsys.readouterr().out.startswith("deit-sdpa-cudnn 2: RuntimeError: No viable backend")


def test_a_wrong_gradient_is_found(quick):
    case = smoke("gka", "vit-ti")
    arm = arms.arms(case)["padded"]
    for leaf in ("query", "sigma"):
        # The same output, of which a hundredth does not pass on its gradient to this leaf.
        def half(i, leaf=leaf):
            fixed = arm.forward({**i, leaf: i[leaf].detach()})
            return arm.forward(i) + 0.01 * (fixed - fixed.detach() - arm.forward(i) + arm.forward(i).detach())

        small = {**case, "batch": 2}
        with pytest.raises(AssertionError, match=f"broken: the gradient of {leaf} is off by"):
            fused.check("broken", replace(arm, forward=half), small)


def test_numbers_that_are_not_finite_are_wrong(quick):
    case = smoke("gka", "vit-ti")
    arm = arms.arms(case)["padded"]
    with pytest.raises(AssertionError, match="out has numbers that are not finite"):
        fused.check("broken", replace(arm, forward=lambda i: arm.forward(i) / 0.0), case)


def test_a_wrong_rival_is_a_row_that_says_so(quick, monkeypatch):
    only(monkeypatch, "padded", eager=lambda arm: replace(arm, forward=lambda i: arm.forward(i) + i["query"]))
    rows = fused.time_arms({**smoke("gka", "vit-ti"), "passes": ["forward"]})
    (row,) = (row for row in rows if row["arm"] == "eager")
    assert row["ms"] == "" and row["reason"].startswith("wrong result: eager: out is off by")


def test_what_has_no_backward_pass_is_timed_forward(quick, monkeypatch):
    def forward_only(arm):
        return replace(
            arm, forward=lambda i: arm.forward({name: tensor.detach() for name, tensor in i.items()})
        )

    only(monkeypatch, eager=forward_only)
    rows = fused.time_arms(smoke("gka", "vit-ti"))
    ran = {row["pass"]: row["ms"] != "" for row in rows if row["arm"] == "eager"}
    assert ran == {"forward": True, "backward": False, "both": False}
    assert "does not require grad" in next(row["reason"] for row in rows if row["pass"] == "backward")


@pytest.mark.slow
def test_compiled_rivals_run_in_a_process_of_their_own():
    command = [sys.executable, "-m", "gkalib", "bench", "decode", "gpa", "--scale", "smoke"]
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, env=without, check=True)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    for name in ("eager", "compiled", "flex", "sdpa-flash"):
        assert re.fullmatch(rf" *{name} +forward( +[\d.e+-]+){{5}} *", lines[name]), lines[name]
    assert "fused operations run on a CUDA device" in lines["fused"]


def test_a_shape_is_kept_as_one_record(quick, here, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(results, "load_average", lambda: 0.75)
    only(monkeypatch, "padded", "sdpa-cudnn")
    run.run("gka", ["vit-ti"], scale="smoke", keep=True)
    (record,) = results.load("bench")
    assert record.busy and record.load == 0.75
    assert record.arm == "gka-vit-ti" and record.scale == "smoke" and record.recipe["heads"] == 2
    assert record.metrics["ms_forward_padded"] > 0 and record.metrics["cells_run"] == 3
    kept = results.rows(record)
    assert {row["arm"] for row in kept} == {"padded", "sdpa-cudnn", "padded-again"}
    assert all(row["reason"] for row in kept if row["arm"] == "sdpa-cudnn")
    printed = capsys.readouterr().out
    assert "gka vit-ti on cpu, about 30 s" in printed
    assert printed.startswith("other programs used 0.75 of each core in the last minute: records say so")


def test_what_cannot_be_asked_for():
    with pytest.raises(ValueError, match="bench: gka at full scale is sized for a GPU"):
        run.run("gka")
    with pytest.raises(ValueError, match="bench: models is sized for a GPU"):
        run.run("models")
    with pytest.raises(
        ValueError, match=r"bench: gka has no shape 'vit'\. Known: vit-ti, vit-s, vit-b, text"
    ):
        run.run("gka", ["vit"], scale="smoke")
    with pytest.raises(ValueError, match="bench: smooth has no shapes to choose from"):
        run.run("smooth", ["vit"])
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="and no CUDA device is there"):
            run.run("gka", device="cuda")


def test_reasons_name_no_path_of_the_machine():
    said = cases.reason_of(RuntimeError("failed in /tmp/some/where.py: n/a\nmore"))
    assert said == "RuntimeError: failed in …: n/a"


def test_what_is_compiled_for_one_backend_is_not_taken_for_another(monkeypatch, tmp_path):
    # two that a CPU has, under the names of those on a card
    backends = {"sdpa-cudnn": SDPBackend.MATH, "sdpa-flash": SDPBackend.FLASH_ATTENTION}
    monkeypatch.setattr(models, "BACKENDS", backends)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x, hits = torch.randn(1, 2, 8, 16), []
    for arm in ("deit-sdpa-flash", "deit-sdpa-cudnn", "deit-sdpa-flash"):
        torch._dynamo.reset()
        before = counters["aot_autograd"]["autograd_cache_hit"]
        with models.backend(arm):
            torch.compile(scaled_dot_product_attention)(x, x, x)
        hits.append(counters["aot_autograd"]["autograd_cache_hit"] - before)
    assert hits == [0, 0, 1]


def test_whole_models_run_beside_deit(quick, here):
    rows = run.run("models", ["ti-inference"], scale="smoke")
    ran = {row["arm"]: row["images_per_second"] for row in rows if row["reason"] == ""}
    assert ran.keys() == {"deit-sdpa-flash", "gka-fused", "gka-dense"} and min(ran.values()) > 0
    metrics = models.summarize(rows)
    assert metrics["throughput_best"] == ran["gka-fused"] / ran["deit-sdpa-flash"]


def test_training_steps_change_the_model(quick):
    (case,) = (shape for shape in models.shapes("smoke", "cpu") if shape["mode"] == "training")
    built = models.model("gka-dense", case)
    before = built.head.weight.clone()
    step = models._training(built, case)
    step(models._images(2, case))
    assert not torch.equal(before, built.head.weight)
    rows = models.time_models({**case, "arms": ["deit-sdpa-flash", "gka-dense"]})
    assert all(row["images_per_second"] > 0 for row in rows)


def test_a_window_is_twenty_steps_and_graphs_have_a_ratio_of_their_own(quick, monkeypatch):
    (case,) = (shape for shape in models.shapes("smoke", "cpu") if shape["mode"] == "training")
    steps, monkey = [], models._training
    monkeypatch.setattr(models, "_training", lambda *words: steps.append(1) or monkey(*words))
    timed = []
    real = timing.timed
    monkeypatch.setattr(timing, "timed", lambda calls, *words, **options: timed.append((len(calls), options))
                        or real(calls, *words, **options))  # fmt: skip
    rows = models.time_models({**case, "arms": ["gka-dense"]})
    assert len(steps) == 1 and timed[0][0] == models.WINDOW == 10 and timed[0][1]["graph"] is False
    assert rows[0]["graph_ms"] == "", "there is no graph on a CPU"
    deit, ours = (
        {"arm": arm, "batch": 64, "reason": "", "ms": 1.0, "peak_mib": 10.0, "images_per_second": rate,
         "graph_images_per_second": graph}
        for arm, rate, graph in (("deit-sdpa-flash", 100.0, 100.0), ("gka-fused", 80.0, 130.0))
    )  # fmt: skip
    metrics = models.summarize([deit, ours])
    assert (metrics["throughput_64"], metrics["throughput_graph_64"]) == (0.8, 1.3)
    assert "throughput_graph_64" not in models.summarize([deit, {**ours, "graph_images_per_second": ""}])


def test_wrong_logits_are_not_timed(quick, monkeypatch):
    (case,) = (shape for shape in models.shapes("smoke", "cpu") if shape["mode"] == "inference")
    real = models.model

    def broken(arm, case):
        built = real(arm, case)
        if arm == "gka-fused":
            built.head.weight.data *= 1.2
        return built

    monkeypatch.setattr(models, "model", broken)
    (row,) = models.time_models({**case, "arms": ["gka-fused"]})
    assert row["ms"] == "" and row["reason"].startswith("wrong result: gka-fused: logits are off by 2")
    assert models.summarize([row])["wrong"] == 1
