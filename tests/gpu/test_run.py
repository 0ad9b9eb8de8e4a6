"""The list of what is asked of a card: what is done, what fits, what is stopped, and what its runs prove."""

import tarfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gkalib import results
from gkalib.bench.goals import goals
from gkalib.gpu import run
from gkalib.gpu.run import CODE, Command, commands, main
from gkalib.smoothing.fused import cards

SAVES = """
from gkalib import results
metrics = {"wrong": 0}
print("said in the log")
results.save(results.Record(experiment="toy", arm="one", scale="full", recipe={}, seed=0, wall_seconds=1,
    device=results.processor(), metrics=metrics, **results.provenance()))
"""


def test_the_tests_come_first_then_block_sizes_goals_and_training():
    records = [command.record for command in commands("cuda")]
    kinds = list(dict.fromkeys(experiment for experiment, _ in records))
    assert kinds[:3] == ["correctness", "tuning", "bench"] and len(set(records)) == len(records)
    assert {arm for experiment, arm in records if experiment == "bench"} == {goal.record for goal in goals()}
    small = [command.record for command in commands("cpu")]
    assert set(small) < set(records) and small[0] == ("correctness", "tests")
    assert ("bench", "gka-vit-ti") in small and ("bench", "rbf-article-8192") not in small
    assert main(device="cpu", list=True) == 0


def test_what_ended_well_is_done_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    listed = [
        Command(("-c", SAVES), ("toy", "one"), 20.0),
        Command(("-c", "import time; time.sleep(60)"), ("toy", "two"), 0.2),
        Command(("-c", "raise SystemExit(3)"), ("toy", "three"), 1.0),
    ]
    monkeypatch.setattr(run, "commands", lambda device: iter(listed))
    monkeypatch.setattr(run, "START", 0.2)
    assert run.run(1.0, tmp_path, "cpu") == listed[1:]
    printed = capsys.readouterr().out
    assert "stopped at its limit of 1 s" in printed and "failed with status 3" in printed
    assert (tmp_path / "log.txt").read_text().startswith("said in the log")
    (record,) = results.load("toy", root=tmp_path / "results")
    with tarfile.open(tmp_path / "results.tar.gz") as packed:
        assert f"./toy/{record.run}/run.json" in packed.getnames()
    monkeypatch.setattr(run, "commands", lambda device: iter(listed[:1]))
    assert run.run(1.0, tmp_path, "cpu") == [] and ", about 20 s: done" in capsys.readouterr().out
    now = results.provenance()
    monkeypatch.setattr(results, "provenance", lambda *names: {**now, "commit": "f" * 12})
    run.run(1.0, tmp_path, "cpu")
    assert ", about 20 s: starts" in capsys.readouterr().out, "other code has not run"


def test_what_cannot_be_asked_for_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for minutes, said in ((0.0, "minutes must be above 0"), (30.0, "no CUDA device is here")):
        assert main(minutes, tmp_path) == 2
        printed = capsys.readouterr()
        assert said in printed.err and printed.err.count("\n") == 1


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="one" time="1.5" />
<testcase classname="tests.a" name="two" time="0.5"><failure message="error 1.0">...</failure></testcase>
<testcase classname="tests.a" name="three" time="0.0"><skipped message="no card" /></testcase>
</testsuite></testsuites>"""


def test_how_the_tests_ended_is_a_record(tmp_path, monkeypatch):
    def tests(words, **options):
        if words[0] == "git":
            return real(words, **options)
        if said:
            Path(words[-1].removeprefix("--junitxml=")).write_text(said.pop())
        return CompletedProcess(words, statuses.pop())

    said, statuses, real = [REPORT, REPORT], [1, 2, 1], run.subprocess.run
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(run.subprocess, "run", tests)
    run.check("cpu")
    (record,) = results.load("correctness")
    assert record.metrics == {"cases": 2, "wrong": 1} and record.recipe["programs"] == cards.code(CODE)
    assert [row["outcome"] for row in results.rows(record)] == ["passed", "failure", "skipped"]
    with pytest.raises(ValueError, match="pytest was cut off, with status 2"):
        run.check("cpu")
    with pytest.raises(ValueError, match="no test was run"):
        run.check("cpu")
