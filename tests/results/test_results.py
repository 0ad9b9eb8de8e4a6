"""The results store: what is saved is found again, and what is wrong is refused in the caller's words."""

import importlib
import json
import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gkalib import results
from gkalib.results import Record, store
from tests.records import record


def test_a_saved_record_is_read_back_whole(tmp_path):
    saved = record()
    path = results.save(saved, rows=[{"step": 0, "loss": 1.0}, {"step": 1, "loss": 0.5}], root=tmp_path)
    assert path == tmp_path / "toy" / "gaussian-smoke-s0-cpu"
    assert results.load("toy", root=tmp_path) == [saved]
    assert results.rows(saved, root=tmp_path) == [{"step": "0", "loss": "1.0"}, {"step": "1", "loss": "0.5"}]
    assert sorted(child.name for child in path.parent.iterdir()) == [path.name]
    assert results.experiments(root=tmp_path) == ["toy"]


def test_run_json_holds_the_agreed_keys(tmp_path):
    path = results.save(record(), root=tmp_path)
    fields = json.loads((path / "run.json").read_text(encoding="utf-8"))
    assert set(fields) == {
        "experiment", "arm", "recipe", "recipe_hash", "commit", "clean", "trees", "seed", "device",
        "versions", "wall_seconds", "date", "metrics", "scale", "source", "python", "threads", "cpu",
        "data_sha256", "load",
    }  # fmt: skip


def test_a_metric_is_listed_by_arm_in_the_order_of_seeds():
    losses = {("b", 1): 3.0, ("a", 2): 5.0, ("b", 0): 4.0}
    records = [record(arm=arm, seed=seed, metrics={"loss": loss}) for (arm, seed), loss in losses.items()]
    records.append(record(arm="c", metrics={"accuracy": 0.5}))
    assert results.by_arm(records, "loss") == {"a": [5.0], "b": [4.0, 3.0]}
    with pytest.raises(ValueError, match=r"^results: no record has a metric 'bpb'"):
        results.by_arm(records, "bpb")


def test_saving_again_replaces_the_run(tmp_path):
    results.save(record(), rows=[{"step": 0}], root=tmp_path)
    results.save(record(metrics={"loss": 0.125}), root=tmp_path)
    assert [found.metrics for found in results.load("toy", root=tmp_path)] == [{"loss": 0.125}]
    assert results.rows(record(), root=tmp_path) == []


def test_a_failed_save_leaves_the_old_run(tmp_path):
    results.save(record(), root=tmp_path)
    with pytest.raises(TypeError):
        results.save(record(recipe={"not json": object()}), root=tmp_path)
    assert results.load("toy", root=tmp_path) == [record()]
    assert len(list((tmp_path / "toy").iterdir())) == 1


def test_smoke_runs_on_made_up_data_are_left_out(tmp_path):
    results.save(record(recipe={"data": "made-up"}), root=tmp_path)
    with pytest.raises(ValueError, match="no run of 'toy'"):
        results.load("toy", root=tmp_path)
    results.save(record(recipe={"data": "digits"}), root=tmp_path)
    assert [found.recipe["data"] for found in results.load("toy", root=tmp_path)] == ["digits"]
    results.save(record(arm="other", recipe={"data": "made-up"}, scale="reduced"), root=tmp_path)
    assert {found.arm for found in results.load("toy", root=tmp_path)} == {"gaussian", "other"}


def test_a_run_that_another_process_is_replacing_is_read(tmp_path, monkeypatch):
    """Between two renames it is away."""
    path = results.save(record(scale="full"), rows=[{"step": 1}], root=tmp_path)
    away = path.rename(tmp_path / "away")
    monkeypatch.setattr(store.time, "sleep", lambda _: away.rename(path))
    assert results.rows(record(scale="full"), root=tmp_path) == [{"step": "1"}]
    monkeypatch.setattr(store.time, "sleep", lambda _: None)
    path.rename(away)
    with pytest.raises(FileNotFoundError):
        results.rows(record(scale="full"), root=tmp_path)


def test_rows_of_different_keys_are_refused(tmp_path):
    with pytest.raises(ValueError, match="do not all have the keys step"):
        results.save(record(), rows=[{"step": 0}, {"epoch": 0}], root=tmp_path)


def test_a_key_of_an_arm_takes_the_newest_clean_run_of_the_largest_scale(tmp_path):
    for changes in (
        {"scale": "smoke", "seed": 9, "date": "2026-09-01", "metrics": {"loss": 9.0}},
        {"scale": "reduced", "seed": 1, "date": "2026-01-01T00:00:00+00:00", "metrics": {"loss": 1.0}},
        {"scale": "reduced", "seed": 2, "date": "2026-02-01", "metrics": {"loss": 2.0}},
        {"scale": "reduced", "seed": 3, "date": "2026-03-01", "metrics": {"loss": 3.0}, "clean": False},
        {"scale": "full", "seed": 4, "date": "2026-04-01", "metrics": {"loss": 4.0}, "source": "paper"},
    ):
        results.save(record(**changes), root=tmp_path)
    found, value = results.find("toy/gaussian/loss", root=tmp_path)
    assert (found.run, value) == ("gaussian-reduced-s2-cpu", 2.0)
    found, value = results.find("toy/gaussian-full-s4-cpu/loss", root=tmp_path)
    assert (found.source, value) == ("paper", 4.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda root: results.load("gka-imagenet-tiny", scale="full", root=root),
            "results: no full-scale run of 'gka-imagenet-tiny'. Make one with: "
            "python -m gkalib train gka-imagenet-tiny, if that is a recipe, or "
            "python -m chapters.experiments gka-imagenet-tiny",
        ),
        (
            lambda root: results.load("nothing", root=root),
            "results: no run of 'nothing'. Make one with: python -m gkalib train nothing, if that is a "
            "recipe, or python -m chapters.experiments nothing",
        ),
        (
            lambda root: results.load("toy", scale="big", root=root),
            "results: scale must be one of smoke, reduced, full, not 'big'",
        ),
        (
            lambda root: results.find("toy/loss", root=root),
            "results: a key reads experiment/arm/metric or experiment/run/metric, not 'toy/loss'",
        ),
        (
            lambda root: results.find("toy/laplace/loss", root=root),
            "results: no arm 'laplace' in 'toy'. Arms: dirty, gaussian",
        ),
        (
            lambda root: results.find("toy/gaussian/accuracy", root=root),
            "results: toy/gaussian-smoke-s0-cpu has no metric 'accuracy'. It has: loss",
        ),
        (
            lambda root: results.find("toy/gaussian-full-s0-cpu/loss", root=root),
            "results: no run 'gaussian-full-s0-cpu' of 'toy'",
        ),
        (
            lambda root: results.find("toy/dirty/loss", root=root),
            "results: no run of toy/dirty was measured from a clean tree. To quote another, name the run: "
            "dirty-smoke-s0-cpu",
        ),
        (
            lambda root: results.table("toy", "accuracy", root=root),
            "results: no run of 'toy' has a metric 'accuracy'. They have: loss",
        ),
    ],
)
def test_what_does_not_exist_is_said_in_the_callers_words(tmp_path, call, message):
    results.save(record(), root=tmp_path)
    results.save(record(arm="dirty", clean=False), root=tmp_path)
    with pytest.raises(ValueError) as error:
        call(tmp_path)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arm": "Gaussian"}, "arm must be words in lower case joined by hyphens, not 'Gaussian'"),
        ({"experiment": "a/b"}, "experiment must be words"),
        ({"arm": "x-full-s1-cpu"}, "reads like the name of a run"),
        ({"scale": "huge"}, "scale must be one of smoke, reduced, full, not 'huge'"),
        ({"source": "rumor"}, "source must be one of measured, paper, not 'rumor'"),
        ({"date": "yesterday"}, "date must be ISO 8601, not 'yesterday'"),
        (
            {"metrics": {"loss": float("nan")}},
            "metric 'loss' of 'gaussian-smoke-s0-cpu' must be a finite number",
        ),
        ({"metrics": {"loss": True}}, "must be a finite number, not True"),
    ],
)
def test_a_record_refuses_a_wrong_field(changes, message):
    with pytest.raises(ValueError, match=message):
        record(**changes)


def test_a_recipe_edited_after_the_run_is_noticed(tmp_path):
    path = results.save(record(), root=tmp_path) / "run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"steps": 3', '"steps": 4'), encoding="utf-8")
    with pytest.raises(ValueError, match="was edited after the run"):
        results.load("toy", root=tmp_path)


def test_a_run_in_the_wrong_folder_is_noticed(tmp_path):
    results.save(record(), root=tmp_path).rename(tmp_path / "toy" / "laplace-smoke-s0-cpu")
    with pytest.raises(ValueError, match="holds the run 'gaussian-smoke-s0-cpu'"):
        results.load("toy", root=tmp_path)


@pytest.mark.parametrize("text", ["[]", "null", "3", '"abc"', '{"recipe_hash":', "{}"])
def test_what_is_no_record_is_refused_by_its_name(text):
    with pytest.raises(ValueError, match=r"^results: toy/run\.json is not a record \("):
        Record.from_json(text, "toy/run.json")
    fields = json.loads(record().to_json())
    del fields["seed"]
    with pytest.raises(ValueError, match=r"run\.json is not a record .*seed"):
        Record.from_json(json.dumps(fields))


def test_a_record_from_before_a_key_was_kept_is_read():
    fields = json.loads(record().to_json())
    for name in ("python", "threads", "cpu", "data_sha256", "load"):
        del fields[name]
    assert Record.from_json(json.dumps(fields)) == record()
    assert not record().busy and record().threads is None


def test_settings_are_the_recipe_without_what_came_later_and_is_empty():
    old, new = record(recipe={"steps": 3}), record(recipe={"steps": 3, "rates": {}, "wrap": None})
    assert old.settings == new.settings != record(recipe={"steps": 0}).settings
    assert old.recipe_hash != new.recipe_hash


def test_a_busy_machine_is_said_beside_the_device(tmp_path):
    for seed, load in enumerate((None, results.BUSY, 0.9)):
        results.save(record(seed=seed, load=load), root=tmp_path)
    shown = {row[4]: row[3] for row in results.table("toy", root=tmp_path).cells}
    assert shown == {"0": "CPU", "1": "CPU", "2": "CPU, busy"}


def test_the_load_is_that_of_each_core(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 9.0, 9.0), raising=False)
    assert results.load_average() == 0.5
    monkeypatch.delattr(os, "getloadavg")
    assert results.load_average() is None


def test_the_table_shows_scale_and_source(tmp_path):
    results.save(record(), root=tmp_path)
    results.save(record(arm="printed", source="paper", metrics={"loss": 0.123456, "a<b": 1.0}), root=tmp_path)
    shown = results.table("toy", root=tmp_path)
    assert shown.header == ["arm", "scale", "source", "device", "seed", "loss", "a<b"]
    assert ["printed", "smoke", "paper", "CPU", "0", "0.1235", "1"] in shown.cells
    assert ["gaussian", "smoke", "measured", "CPU", "0", "0.25", "-"] in shown.cells
    assert "<th>a&lt;b</th>" in shown._repr_html_()
    assert str(shown).splitlines()[0].split() == shown.header


def test_provenance_fills_a_record(tmp_path, monkeypatch):
    facts = results.provenance("numpy")
    made = record(**facts)
    assert made.versions["numpy"] and len(made.commit) == 12
    assert made.python == platform.python_version()
    shown = subprocess.run(
        ["git", "ls-tree", "--full-tree", "HEAD", "gkalib"], capture_output=True, text=True
    )
    assert made.trees["gkalib"] == shown.stdout.split()[2][:12]
    assert results.Record.from_json(made.to_json()) == made
    assert results.provenance(root=tmp_path)["trees"] == {}
    assert results.provenance(root=tmp_path)["commit"] == "unknown"
    monkeypatch.setenv("GKALIB_COMMIT", "f" * 12)
    assert results.provenance(root=tmp_path)["commit"] == "f" * 12
    assert results.provenance(root=tmp_path)["clean"] is False


def test_threads_and_instructions_are_pytorchs_where_it_is_imported(monkeypatch, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A chip @ 2 GHz\nflags\t\t: fpu\n")
    monkeypatch.setattr(importlib.import_module("gkalib.results.record"), "CPUINFO", cpuinfo)
    cpu = SimpleNamespace(get_cpu_capability=lambda: "AVX2")
    played = SimpleNamespace(get_num_threads=lambda: 3, backends=SimpleNamespace(cpu=cpu))
    monkeypatch.setitem(sys.modules, "torch", played)
    facts = results.provenance()
    assert (facts["threads"], facts["cpu"]) == (3, "A chip @ 2 GHz, AVX2")
    monkeypatch.delitem(sys.modules, "torch")
    facts = results.provenance()
    assert (facts["threads"], facts["cpu"]) == (None, "A chip @ 2 GHz")


def test_without_git_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = results.provenance()
    assert (facts["commit"], facts["clean"]) == ("unknown", False)


def test_results_import_neither_torch_nor_the_rest_of_the_library():
    code = (
        "import sys, gkalib.results; "
        "print(sorted(n for n in sys.modules if n in ('torch', 'numpy') or n.startswith('gkalib.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {"", ".checkout", ".record", ".store", ".table"}
    assert done.stdout.strip() == str(sorted(f"gkalib.results{part}" for part in loaded))


def test_runs_of_some_arms(tmp_path):
    for arm in ("smooth-dense", "smooth-padded", "decoding"):
        results.save(record(arm=arm), root=tmp_path)
    assert {run.arm for run in results.load("toy", arm="smooth-*", root=tmp_path)} == {
        "smooth-dense",
        "smooth-padded",
    }
    assert "toy/smooth-*" in results.store.ASKED
    with pytest.raises(ValueError, match=r"^results: no run of arm 'none-\*' of 'toy'\. Make one with"):
        results.load("toy", arm="none-*", root=tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        lambda: results.load("looking"),
        lambda: importlib.import_module("gkalib.results.claims").claims("gka-pictures"),
        lambda: importlib.import_module("chapters.experiments.one_budget").step_costs("one-budget-text"),
        lambda: importlib.import_module("gkalib.training").load("rope-dickens"),
    ],
)
def test_where_there_is_no_repository_who_reads_from_it_says_what_to_type(monkeypatch, tmp_path, read):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GKALIB_RESULTS", raising=False)
    monkeypatch.setattr(store, "repository", lambda: None)
    with pytest.raises(ValueError, match=r"book's repository, which is not around .*; type: git clone \S+"):
        read()
