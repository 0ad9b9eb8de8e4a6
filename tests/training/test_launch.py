"""What a run costs, and the lines that launch it: hours by the stated rate, parts that can be shared."""

import re
import shlex
from pathlib import Path

import pytest

from gkalib.cli import main
from gkalib.layers import variants
from gkalib.training import LaunchConfig, cost, launch, launch_lines, plan, recipe, recipes
from gkalib.training.launch import chosen_run, recipe_arm


def test_hours_are_operations_at_the_stated_share_of_the_peak():
    spent = cost(recipe("gka-nanochat-d20").run("baseline"))
    assert spent.hours == pytest.approx(spent.operations / (0.3 * 989e12) / 3600)
    assert spent.operations == pytest.approx(3.0042e9 * 4.5686e9, rel=1e-4)


@pytest.mark.parametrize("name", list(recipes()))
def test_processes_can_share_the_steps_of_the_lines(name):
    run = recipe(name).run()
    lines = launch_lines(run)
    for where, processes in (("one GPU", 1), ("eight GPUs", 8), ("SLURM", 16)):
        sizes = {key: int(value) for key, value in re.findall(r"--(device-batch|batch) (\d+)", lines[where])}
        batch = sizes.get("batch", run.batch)
        parts, rest = divmod(batch, sizes.get("device-batch", run.device_batch))
        assert rest == 0 and parts % processes == 0, lines[where]
        assert f"train {name} --arm {run.arm}" in lines[where]


def one_gpu(words: list[str], capsys: pytest.CaptureFixture) -> list[str]:
    """The words after ``train`` of the line for one GPU that ``--plan`` prints."""
    assert main(["train", *words, "--plan"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("one GPU"))
    return shlex.split(line.split(" train ")[1])


@pytest.mark.parametrize(
    "given",
    [
        "gka-imagenet-tiny --arm gka --data 'my photos' --model.num-classes 3 --lr 0.0001",
        "gka-imagenet-tiny --arm deit --attention non_local",
        "gka-imagenet-tiny --arm vlt --seed 3 --workers 7 --clip None",
        "gka-nanochat-d20 --arm gka --reduced --device cuda --betas 0.8 0.99 --rates.head 0.1",
        "karat-cifar10 --smoke --augment.mixup 0.3 --batch 32 --model.no-class-token",
        "gpa-dickens --arm bank --out 'my runs' --snapshots 100 --keep --lr 0.01",
    ],
    ids=["folder", "attention", "seed", "text", "nested", "launch"],
)
def test_the_lines_keep_every_setting_that_was_given(given, capsys):
    """Pasted, a line plans the same run again, with the same line."""
    words = shlex.split(given)
    printed = one_gpu(words, capsys)
    assert set(words) - {"--device", "cuda"} <= set(printed)
    there = ["--device", "cuda"]  # where a reduced run is another than on a CPU
    assert one_gpu([*printed, *there], capsys) == printed


def test_lines_of_a_recipes_own_run_have_no_settings(capsys):
    assert one_gpu(["gpa-dickens", "--arm", "bank"], capsys) == ["gpa-dickens", "--arm", "bank", "--compile"]


def test_what_slurm_wraps_keeps_its_own_quotes():
    lines = launch_lines(recipe("gpa-dickens").run("bank"), LaunchConfig(out=Path("my runs")))
    assert "my runs" in shlex.split(shlex.split(lines["SLURM"])[-1])
    assert "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29500" in lines["SLURM"]


def test_the_plan_says_how_long_loading_takes():
    """384 million pictures at 202 a second and core: 35 hours with 15, 22 days with none beside training."""
    gka = recipe("gka-imagenet-tiny")
    run = gka.run("gka")
    assert "35 hours for 15 cores that load images, more than computing takes" in plan(gka, run)
    assert "5.3e+02 hours for 1 cores" in plan(gka, run, LaunchConfig(workers=0))
    assert "--workers 15" in launch_lines(run)["eight GPUs"]
    dickens = recipe("gpa-dickens")
    assert "load" not in plan(dickens, dickens.run()) and "--workers" not in plan(dickens, dickens.run())


def test_a_run_with_another_attention_is_no_run_of_its_arm(tmp_path, monkeypatch):
    """Else its record would take the place of the arm's, and its folder would hold the arm's checkpoints."""
    run = chosen_run("gka-imagenet-tiny", "deit", scale="smoke", seed=0, device="cpu")
    words = ["--attention", "non_local"]
    other = chosen_run("gka-imagenet-tiny", "deit", scale="smoke", seed=0, device="cpu", words=words)
    assert (run.arm, other.arm, recipe_arm(other)) == ("deit", "deit-non-local", "deit")
    assert "this run     deit-non-local, smoke" in plan(recipe("gka-imagenet-tiny"), other)
    same = chosen_run(
        "gka-imagenet-tiny", "deit", scale="smoke", seed=0, device="cpu", words=["--attention", "softmax"]
    )
    assert same.arm == "deit"
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path))
    there = launch("gka-imagenet-tiny", "deit", scale="smoke", device="cpu", settings=words)
    assert there.folder == tmp_path / "gka-imagenet-tiny" / "deit-non-local-smoke-s0"
    assert there.command[there.command.index("--arm") + 1] == "deit"


def test_no_arm_of_a_recipe_is_called_like_one_with_another_attention():
    suffixes = ["-" + name.replace("_", "-") for name in variants()]
    for one in recipes().values():
        assert not {arm + suffix for arm in one.arms for suffix in suffixes} & one.arms.keys()
