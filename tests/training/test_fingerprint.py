"""A run knows its data: classes go by name, and what has changed since it was trained is said."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gkalib.data import folders
from gkalib.data.registry import checksum
from gkalib.training import checkpoint, record, train
from gkalib.training.checkpoint import changes
from gkalib.training.record import open_run
from tests.training.runs import launch, picture_run, text_run
from tests.training.test_distributed import ALONE

ROOT = Path(__file__).resolve().parents[2]


def draw(folder: Path, names: str, count: int = 10) -> None:
    for number, name in enumerate(names.split()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed in range(count):
            pixels = np.random.default_rng([number, seed]).integers(0, 200, (9, 10, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{seed}.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A run of two steps on two classes."""
    draw(tmp_path / "photos", "cat dog")
    run = picture_run(data=str(tmp_path / "photos"), steps=2)
    train(run, launch(tmp_path / "run"))
    assert open_run(tmp_path / "run").classes == ("cat", "dog")
    return tmp_path / "photos"


@pytest.fixture(params=["windows", "documents"])
def novel(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of two steps on a text."""
    (tmp_path / "novel.txt").write_text("na ja na ja, na\n\n" * 40)
    run = text_run(data=str(tmp_path / "novel.txt"), rows=request.param, steps=2)
    train(run, launch(tmp_path / "run"))
    return tmp_path / "novel.txt"


def evaluate(folder: Path) -> dict[str, float]:
    return record.evaluate(open_run(folder), ALONE).metrics


def resume(folder: Path) -> None:
    train(open_run(folder).config, launch(folder))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cat", "zebra", r"it lacks cat and it has zebra, which the model does not know"),
        ("cat", "dog/cat", r"it lacks cat;"),
    ],
)
def test_other_classes_are_refused_by_name(old: str, new: str, said: str, photos: Path, tmp_path: Path):
    (photos / old).rename(photos / new)
    for use in (evaluate, resume):
        with pytest.raises(ValueError, match=rf"^(train: )?{photos} has other classes .* trained on: {said}"):
            use(tmp_path / "run")


def test_classes_that_changed_their_names_are_changed_data(photos: Path, tmp_path: Path):
    for old, new in (("cat", "x"), ("dog", "cat"), ("x", "dog")):
        (photos / old).rename(photos / new)
    with pytest.raises(ValueError, match=f"{photos} has changed since the run was trained on it"):
        resume(tmp_path / "run")


def test_added_pictures_are_said(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before = evaluate(tmp_path / "run")
    assert "has changed" not in capsys.readouterr().err
    draw(photos, "cat", 13)
    evaluate(tmp_path / "run")
    said = f"train: {photos} has changed since the run was trained on it: what it has learned may be held out"
    assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"^{said} now\. Delete it to .* with --fresh$"):
        resume(tmp_path / "run")
    for seed in range(10, 13):
        (photos / "cat" / f"{seed}.png").unlink()
    resume(tmp_path / "run")
    assert evaluate(tmp_path / "run") == before


def test_pictures_are_checked_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checked: list[bool] = []
    monkeypatch.setattr(folders, "check_pictures", lambda images, *, quiet: checked.append(quiet))
    resume(tmp_path / "run")
    assert not checked
    train(open_run(tmp_path / "run").config, launch(tmp_path / "other"))
    assert checked == [True]
    draw(photos, "cat", 13)
    with pytest.raises(ValueError, match="has changed"):
        resume(tmp_path / "run")
    assert checked == [True]


def test_more_text_is_said(novel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    novel.write_text(novel.read_text() + "ja na ja na, ja\n\n" * 20)
    evaluate(tmp_path / "run")
    said = f"train: {novel} has changed since the run was trained on it"
    assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"^{said}"):
        resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("limit", "null", 300),
        ("data", r'"\S+novel.txt"', "another.txt"),
        ("prompt", '"[na j]*"', "j"),
    ],
)
def test_other_settings_are_no_changed_data(
    name: str, old: str, new: object, novel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("another.txt").write_text("ja na ja na, ja\n\n" * 50)
    said = rf"of another run: {name} was {old} there and is {json.dumps(new)} here"
    with pytest.raises(ValueError, match=rf"^train: checkpoint run/step-00000002 is {said}"):
        train(replace(open_run("run").config, **{name: new}), launch(Path("run")))


def test_other_characters_are_refused(novel: Path, tmp_path: Path):
    novel.write_text("so ja so ja, so\n\n" * 40)
    with pytest.raises(ValueError, match=f"^train: {novel} gives other tokens than those"):
        evaluate(tmp_path / "run")


def test_a_checkpoint_from_before_it_was_kept_is_read(photos: Path, tmp_path: Path):
    state = checkpoint.read_state(tmp_path / "run" / "step-00000002")
    path = tmp_path / "run" / "step-00000002"
    (path / checkpoint.STATE).unlink()
    checkpoint.write_state(path, {k: v for k, v in state.items() if k not in ("format", "files", "data")})
    assert open_run(path).classes == () and evaluate(path)
    resume(tmp_path / "run")


def test_a_shipped_model_knows_its_classes():
    models = ROOT / "data" / "models"
    assert open_run(models / "gka-cifar10").classes[:3] == ("airplane", "automobile", "bird")
    assert open_run(models / "gpa-dickens").classes == ()


def test_a_folder_called_as_a_photograph_has_a_checksum_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The registry has a photograph called grass; a folder of that name is one's own data all the same."""
    monkeypatch.chdir(tmp_path)
    draw(Path("grass"), "cat dog")
    assert train(picture_run(data="grass", steps=1), launch(Path("run"))).data_sha256 == ""
    known = open_run("run").fingerprint
    assert known and checksum("grass") not in known.values() and known["train"] != known["held_out"]


def test_many_classes_are_named_by_a_few():
    there, here = (
        {"classes": [f"{word}{i}" for i in range(9)], "train": word, "held_out": ""} for word in "ab"
    )
    with pytest.raises(ValueError, match=r"lacks a0, a1, a2, a3, a4, and 4 more and it has b0, .* 4 more, w"):
        changes("photos", there, here)
