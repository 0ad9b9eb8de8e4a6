"""Whole models beside DeiT: they run in small, wrong logits are refused."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench import models, run, timing


@pytest.fixture
def quick(monkeypatch):
    """Few runs of everything."""
    monkeypatch.setitem(models.SECONDS, "cpu", 0.0)


def recipe(mode):
    return models.shapes("smoke", "cpu")[f"ti-{mode}"]


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
    case = recipe("training")
    built = models.model("gka-dense", case)
    before = built.head.weight.clone()
    step = models._training(built, case)
    step(models._images(2, case))
    assert not torch.equal(before, built.head.weight)
    rows = models.time_models({**case, "arms": ["deit-sdpa-flash", "gka-dense"]})
    assert all(row["images_per_second"] > 0 for row in rows)


def test_a_window_is_its_steps_on_two_batches(quick, monkeypatch):
    monkeypatch.setitem(models.WINDOW, "cpu", models.WINDOW["cuda"])
    seen = []
    monkeypatch.setattr(models, "_inference", lambda network, case: lambda images: seen.append(id(images)))
    monkeypatch.setattr(timing, "times", lambda calls, device, seconds: [calls[0]() or 20.0])
    monkeypatch.setattr(timing, "peak_mib", lambda call, device: (1.0, 2.0))
    row = models._step_times("gka-dense", 2, recipe("inference"))
    assert len(seen) == models.WINDOW["cuda"] == 10 and len(set(seen)) == 2
    assert row["ms"] == 2.0 and row["images_per_second"] == 1000.0 and row["peak_mib"] == 1.0


def test_on_a_cpu_the_smallest_models_are_timed_in_small_batches():
    found = models.shapes("reduced", "cpu")
    assert [*found] == ["ti-training", "ti-inference", "karat-tiny-training", "karat-tiny-inference"]
    assert all(case["batches"] == [8] for case in found.values())
    row = {"batch": 8, "ms": 1.0, "peak_mib": 5.0, "reason": ""}
    deit, gka = found["ti-training"]["arms"]
    rows = [{"arm": deit, "images_per_second": 4.0, **row}, {"arm": gka, "images_per_second": 3.0, **row}]
    metrics = models.summarize(rows)
    assert (metrics["throughput_8"], metrics["memory_8"]) == (0.75, 1.0)


def test_wrong_logits_are_not_timed(quick, monkeypatch):
    case = recipe("inference")
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
