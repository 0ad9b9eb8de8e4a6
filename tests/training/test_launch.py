"""What full runs are and cost, and the lines that start them: as they were given, shared evenly, kept."""

import re
import shlex

import pytest

from gkalib.cli import main
from gkalib.layers import variants
from gkalib.training import launch, recipes
from gkalib.training.background import printed_numbers
from gkalib.training.recipes import chosen_runs


@pytest.mark.parametrize("name", list(recipes()))
def test_processes_can_share_the_steps_of_every_arm(name):
    runs = chosen_runs(name, ["all"], [0])
    lines = launch(name, gpus=8).lines
    for where, processes in (("one GPU", 1), ("8 GPUs", 8), ("2 machines", 16), ("SLURM", 16)):
        sizes = {key: int(value) for key, value in re.findall(r"--(device-batch|batch) (\d+)", lines[where])}
        for run in runs:
            batch = sizes.get("batch", run.batch)
            parts, rest = divmod(batch, sizes.get("device-batch", run.device_batch))
            assert rest == 0 and parts % processes == 0, lines[where]
        assert f"train {name} --arms all" in lines[where] and "--compile --keep" in lines[where]


def test_a_launch_has_the_runs_that_its_line_makes():
    """Else those of eight cards, whose parts are smaller, would never be found to have ended."""
    eight, one = launch("gpa-dickens", gpus=8), launch("gpa-dickens", gpus=1)
    assert "--device-batch 32" in eight.lines["8 GPUs"] and "--device-batch" not in eight.lines["one GPU"]
    assert {run.device_batch for run in eight.runs} == {32} and {run.device_batch for run in one.runs} == {
        256
    }
    assert eight.lines == one.lines and eight.folder != one.folder
    assert eight.command[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    assert one.command[1:] == shlex.split(one.lines["one GPU"])[1:]


def one_gpu(words: list[str], capsys: pytest.CaptureFixture) -> list[str]:
    """The words after ``train`` of the line for one GPU that ``--plan`` prints."""
    assert main(["train", *words, "--plan"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("one GPU"))
    return shlex.split(line.split(" train ")[1])


@pytest.mark.parametrize(
    "given",
    [
        "gka-imagenet-tiny --arm gka --data 'my photos' --model.num-classes 3 --lr 0.0001",
        "gka-imagenet-tiny --arms deit vlt --attention non_local",
        "gka-imagenet-tiny --arm vlt --seed 3 5 --workers 7 --clip None",
        "gka-nanochat-d20 --arm gka --reduced --device cuda --betas 0.8 0.99 --rates.head 1e-1",
        "karat-cifar10 --smoke --gpus=1 --augment.mixup 0.3 --batch 32 --model.no-class-token",
        "gpa-dickens --arms bank --out 'my runs' --snapshots 100 --keep --lr 1e-2",
    ],
    ids=["folder", "attention", "seeds", "text", "nested", "launch"],
)
def test_the_lines_are_the_words_that_were_given(given, capsys):
    """Pasted, a line plans the same run again, with the same line."""
    words = [word for word in shlex.split(given) if word != "--gpus=1"]
    there = ["--device", "cuda"]  # where a reduced run is another than on a CPU
    printed = one_gpu([*shlex.split(given), *([] if "--device" in words else there)], capsys)
    kept = (
        words[: words.index("--device")] + words[words.index("--device") + 2 :]
        if there[0] in words
        else words
    )
    assert printed[: len(kept)] == kept and "--keep" in printed
    assert ("--compile" in printed) == ("--smoke" not in words)
    assert one_gpu([*printed, *there], capsys) == printed


def test_what_slurm_wraps_keeps_its_own_quotes():
    line = launch("gpa-dickens", "bank", settings=["--prompt", "It was"]).lines["SLURM"]
    assert "It was" in shlex.split(shlex.split(line)[-1])
    assert "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29500" in line


def test_the_plan_says_what_runs_and_what_it_costs():
    """384 million pictures at 202 a second and core: 35 hours with 15, 4.4 with 120 beside eight cards."""
    plan = launch("gka-imagenet-tiny", ["deit", "gka"], seeds=[1, 4], gpus=8).plan
    assert "runs         4, full scale, seeds 1, 4, data imagenet" in plan
    assert re.search(r"deit +5,717,416 .* 0\.4 to 2\.5 +ema_top1 0\.722\n", plan)
    assert re.search(r"gka +4,383,436 .* 0\.4 to 2\.5 +ema_top1 0\.7154\n", plan)
    assert "together     1.6 to 10 hours on 8 H100, without loading and measuring" in plan
    assert "loading      4.4 hours a run for 120 cores that load images" in plan
    assert "loading      35 hours a run for 15 cores" in launch("gka-imagenet-tiny", "gka", gpus=1).plan
    assert "loading  " not in launch("gpa-dickens", "rope").plan


def test_the_papers_numbers_are_those_of_the_ledger():
    numbers = printed_numbers("gka-imagenet-tiny")
    assert numbers["vlt", "ema_top1"] == pytest.approx(0.735)
    assert printed_numbers("rbf-tinystories")["standard", "train_loss"] == pytest.approx(1.51)
    assert printed_numbers("gpa-dickens") == {}  # a curve without printed numbers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arm": "rope"}, "launch: arm= is now arms: a name, a list of them or"),
        ({"seed": 3}, "launch: seed= is now seeds: how many, or a list of them"),
        ({"sede": 3}, "launch: sede= is no argument"),
    ],
)
def test_an_old_word_is_answered_by_the_new_one(options, message):
    with pytest.raises(TypeError, match=message):
        launch("gpa-dickens", **options)


def test_what_is_no_run_is_refused(capsys):
    with pytest.raises(ValueError, match="train: scale must be smoke, reduced or full, not 'tiny'"):
        launch("gpa-dickens", scale="tiny")
    with pytest.raises(ValueError, match="'bnak'"):
        launch("gpa-dickens", "bnak")
    with pytest.raises(ValueError, match="of arms and seeds one at least"):
        launch("gpa-dickens", seeds=0)
    for words, said in (
        ("--seeds 2 --out x", "--out is the folder of one run"),
        ("--seed 1 2 --seeds 2", "both"),
    ):
        assert main(["train", "gpa-dickens", "--smoke", *words.split()]) == 2
        assert said in capsys.readouterr().err


def test_a_run_with_another_attention_is_no_run_of_its_arm(tmp_path, monkeypatch):
    """Else its record would take the place of the arm's, and its folder would hold the arm's checkpoints."""
    monkeypatch.setenv("GKALIB_RUNS", str(tmp_path))
    there = launch("gka-imagenet-tiny", "deit", scale="smoke", gpus=0, settings=["--attention", "non_local"])
    assert there.runs[0].arm == "deit-non-local"
    assert there.folders == [tmp_path / "gka-imagenet-tiny" / "deit-non-local-smoke-s0"]
    assert there.command[there.command.index("--arms") + 1] == "deit"
    same = launch("gka-imagenet-tiny", "deit", scale="smoke", gpus=0, settings=["--attention", "softmax"])
    assert same.runs[0].arm == "deit"


def test_no_arm_of_a_recipe_is_called_like_one_with_another_attention():
    suffixes = ["-" + name.replace("_", "-") for name in variants()]
    for one in recipes().values():
        assert not {arm + suffix for arm in one.arms for suffix in suffixes} & one.arms.keys()
