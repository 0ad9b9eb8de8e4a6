"""Each arm leaves out its piece of DeiT's recipe and nothing else."""

from typing import Any

import pytest

from gkalib.training import recipe

PIECES = {
    "no-crop-flip": {"augment.crop": None, "augment.flip": 0.0},
    "no-policy": {"augment.policy": None, "augment.jitter": 0.0},
    "no-mixing": {"augment.mixup": 0.0, "augment.cutmix": 0.0},
    "no-erase": {"augment.erase": 0.0},
    "no-repeats": {"augment.repeats": 1},
    "no-smoothing": {"smoothing": 0.0},
    "no-drop-path": {"model.drop_path": 0.0},
    "no-warmup": {"warmup": 0},
}


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return flat


def _run(arm: str, scale: str):
    full = recipe("deit-pieces").run(arm)
    return {"full": lambda: full, "smoke": full.smoke, "cpu": lambda: full.reduced("cpu")}[scale]()


def _differs(arm: str, scale: str) -> dict[str, Any]:
    whole, other = (_flat(_run(arm_name, scale).settings()) for arm_name in ("all", arm))
    return {name: other[name] for name in whole if other[name] != whole[name] and name != "arm"}


@pytest.mark.parametrize("scale", ["full", "smoke", "cpu"])
@pytest.mark.parametrize("arm", PIECES)
def test_an_arm_leaves_out_one_piece(arm, scale):
    assert _differs(arm, scale) == PIECES[arm]


def test_nothing_leaves_out_all_of_them():
    assert _differs("nothing", "full") == {
        name: value for piece in PIECES.values() for name, value in piece.items()
    }


@pytest.mark.parametrize("arm", PIECES)
def test_a_piece_alone_is_all_that_the_arm_without_it_lacks(arm):
    alone = _differs(arm.replace("no-", "only-"), "cpu")
    assert alone.keys() == _differs("nothing", "cpu").keys() - PIECES[arm].keys()


def test_long_runs_are_four_times_as_long_and_measured_on_the_way():
    short, long = _run("all", "cpu"), _run("all-long", "cpu")
    assert long.steps == 4 * short.steps and long.eval_every == short.steps
    assert _run("all-long", "full").steps == _run("all", "full").steps


def test_the_full_run_has_the_settings_of_deit():
    full = _flat(_run("all", "full").settings())
    assert full["steps"] == 300 * 1251 and full["warmup"] == 5 * 1251
    assert (full["batch"], full["lr"], full["final_lr"], full["warmup_lr"]) == (1024, 1e-3, 1e-5, 1e-6)
    assert (full["weight_decay"], full["clip"], full["ema"]) == (0.05, None, 0.99996)
    assert (full["augment.mixup"], full["augment.cutmix"], full["augment.erase"]) == (0.8, 1.0, 0.25)
    assert (full["smoothing"], full["model.drop_path"], full["eval_crop"]) == (0.1, 0.1, 0.875)
