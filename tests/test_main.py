"""The command line: its flags are frozen here, and each command prints what it promises."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gkalib import results
from gkalib.__main__ import DTYPES, KERNELS, NORMALIZERS, main, parser
from gkalib.data import DATASETS

ROOT = Path(__file__).resolve().parents[1]

FLAGS = """\
bench: name shape* --device=cpu --scale=full --keep=False
counts:
data check: name*
data get: name*
data list: name*
evaluate: run --tasks=None --whole=False --limit=None --shots=None --step=None \
--average=False --device=None --keep=False
explain: --kernel=gaussian --sigma=1.0 --normalizer=row-sum --top=8 --causal=False --window=None \
--queries=1024 --keys=None --heads=4 --key-heads=None --head-dim=64 --value-dim=None \
--dtype=float32 --device=cpu
generate: run --prompt= --count=200 --temperature=0.8 --seed=0 --step=None --average=False --device=None
look: run --picture=None --text=None --held-out=0 --out=None --step=None --average=False --device=None \
--keep=False
reproduce: job* --minutes=10.0 --out=None --device=cuda --list=False --unpack=None \
--report=False
results list:
results table: experiment metric* --scale=None
train: name --arm=[] --smoke=False --reduced=False --seed=0 --seeds=1 --plan=False --settings=False \
--out=None --device=None --workers=0 --compile=False --shard=False --save-every=600.0 --log-every=10 \
--snapshots=0 --fresh=False --from-step=None --keep=False --quiet=False
tune: program* --recorded=False"""


def flags(one: argparse.ArgumentParser, words: str = "") -> list[str]:
    """A line for each command: its arguments, and its options with their defaults."""
    nested = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
    if nested:
        return [line for name, inner in nested[0].choices.items() for line in flags(inner, f"{words} {name}")]
    parts = [
        f"{action.option_strings[0]}={action.default}"
        if action.option_strings
        else f"{action.dest}{action.nargs or ''}"
        for action in one._actions
        if action.dest != "help"
    ]
    return [f"{words.strip()}: {' '.join(parts)}".rstrip()]


def test_the_flags_are_these():
    assert "\n".join(sorted(flags(parser()))) == FLAGS


def test_the_module_runs():
    command = [sys.executable, "-m", "gkalib", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "explain" in done.stdout and done.stderr == ""


def test_no_command_is_an_error(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_data_list_names_every_set(capsys: pytest.CaptureFixture):
    assert main(["data", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DATASETS)


def test_data_check_prints_the_registered_sum(capsys: pytest.CaptureFixture):
    assert main(["data", "check", "mcycle"]) == 0
    assert DATASETS["mcycle"].sha256 in capsys.readouterr().out


def test_data_check_says_what_it_did_not_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    kept = {name: DATASETS[name] for name in ("mcycle", "minilm")}
    monkeypatch.setattr("gkalib.data.registry.DATASETS", kept)
    monkeypatch.setattr("gkalib.data.fetch.find", lambda archive: None)
    assert main(["data", "check"]) == 0
    checked, skipped = capsys.readouterr().out.splitlines()
    assert checked.startswith("mcycle: as registered") and skipped == "minilm: not here, so not checked"
    assert main(["data", "check", "minilm"]) == 2
    assert "python -m gkalib data get minilm" in capsys.readouterr().err


def test_what_a_user_can_mend_is_one_line_and_status_two(capsys: pytest.CaptureFixture):
    assert main(["data", "get", "mcicle"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("datasets: no data set named 'mcicle'. Known: ")
    assert printed.err.count("\n") == 1 and printed.out == ""


def test_results_are_listed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    for seed in (0, 1):
        results.save(
            results.Record(
                experiment="one-trial",
                arm="first",
                scale="smoke",
                recipe={"steps": 1},
                seed=seed,
                device="cpu",
                commit="0" * 12,
                clean=True,
                date="2026-01-01T00:00:00+00:00",
                wall_seconds=1.0,
                metrics={"loss": 0.5 + seed, "accuracy": 0.25},
            )
        )
    assert main(["results", "list"]) == 0
    assert capsys.readouterr().out == "one-trial  2 runs\n"
    assert main(["results", "table", "one-trial", "loss"]) == 0
    shown = capsys.readouterr().out
    assert "1.5" in shown and "smoke" in shown and "accuracy" not in shown
    assert main(["results", "table", "one-trial", "--scale", "full"]) == 2
    assert "no full-scale run of 'one-trial'" in capsys.readouterr().err


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_explain_knows_every_kernel_and_normalizer(
    kernel: str, normalizer: str, capsys: pytest.CaptureFixture
):
    assert main(["explain", "--kernel", kernel, "--normalizer", normalizer, "--queries", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[:-1]} >= {"reference", "dense", "padded", "linear", "fused"}
    assert lines[-1].startswith("auto takes ")


@pytest.mark.parametrize("dtype", DTYPES)
def test_explain_reads_sizes_masks_and_types(dtype: str, capsys: pytest.CaptureFixture):
    sizes = "--queries 5 --keys 9 --heads 4 --key-heads 2 --head-dim 8 --value-dim 3 --causal --window 4"
    assert main(["explain", *sizes.split(), "--dtype", dtype]) == 0
    assert "auto takes" in capsys.readouterr().out


def test_explain_refuses_a_size_of_zero(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        main(["explain", "--queries", "0"])
    assert "must be at least 1, not 0" in capsys.readouterr().err


def test_explain_passes_on_what_does_not_fit(capsys: pytest.CaptureFixture):
    assert main(["explain", "--heads", "4", "--key-heads", "3"]) == 2
    assert "3" in capsys.readouterr().err


def test_bench_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    assert main(["bench", "smoth"]) == 2
    assert capsys.readouterr().err.startswith("bench: no benchmark named 'smoth'. Known: smooth")
    asked = []
    monkeypatch.setattr("gkalib.bench.run.run", lambda *name, **options: asked.append((*name, options)))
    assert main(["bench", "smooth", "--scale", "smoke", "--keep"]) == 0
    assert main(["bench", "gka", "vit-ti", "text", "--device", "cuda"]) == 0
    flags = {"device": "cpu", "scale": "smoke", "keep": True}
    on_gpu = {"device": "cuda", "scale": "full", "keep": False}
    assert asked == [("smooth", [], flags), ("gka", ["vit-ti", "text"], on_gpu)]


def test_without_a_card_reproduce_shows_the_queue_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "correctness-gka" in listed and re.search(r"\d+ minutes are left of \d+ jobs", listed)
    assert main(["reproduce", "--minutes", "3"]) == 2
    printed = capsys.readouterr()
    assert printed.out == listed and "no CUDA device is here" in printed.err


def test_reproduce_fails_when_a_job_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    asked = []

    def reproduce(known, minutes, **options):
        asked.append((minutes, options))
        return [("one", "done"), ("two", "failed with status 1")]

    monkeypatch.setattr("gkalib.gpu.queue.reproduce", reproduce)
    assert main(["reproduce", "two", "--device", "cpu", "--minutes", "3"]) == 2
    assert "two did not end well" in capsys.readouterr().err
    assert asked == [(3.0, {"device": "cpu", "out": None, "names": ["two"]})]
