"""A run is stored by a name, and every command takes the name."""

import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import gkalib
from gkalib.cli import main
from gkalib.training import checkpoint
from gkalib.training.checkpoint import MODEL, STATE, TOKENIZER, read_state
from tests.training import toy
from tests.training.runs import launch, smoke


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``data/models`` of its own, and a working folder."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "data" / "results"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data" / "models"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps, which keeps an average of its weights."""
    folder = tmp_path_factory.mktemp("pictures")
    smoke("gka-imagenet-tiny", folder, "gka")
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    smoke("gpa-dickens", folder, "bank")
    return folder


def numbers(printed: str) -> dict[str, float]:
    """The lines of a name and a number."""
    lines = re.findall(r"^(\w+) +([\d.e+-]+)$", printed, re.M)
    return {name: float(value) for name, value in lines}


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_the_average_of_a_run_is_stored_with_what_it_reaches(pictures: Path, here: Path, capsys):
    assert main(["save", str(pictures), "small", "--device", "cpu"]) == 0
    saved = capsys.readouterr().out
    assert f"{here / 'small'}, 0." in saved and sorted(os.listdir(here)) == ["small"]
    assert sorted(os.listdir(here / "small")) == [MODEL, STATE]
    average, plain = (checkpoint.load_checkpoint(pictures, averaged=given).model for given in (True, False))
    stored = gkalib.load("small")
    assert not stored.training and stored.state_dict().keys() == average.state_dict().keys()
    assert all(torch.equal(stored.state_dict()[name], each) for name, each in average.state_dict().items())
    assert any(not torch.equal(stored.state_dict()[name], each) for name, each in plain.state_dict().items())
    assert main(["evaluate", str(pictures), "--average", "--device", "cpu"]) == 0
    expected = numbers(capsys.readouterr().out)
    assert set(expected) == {"top1", "top5", "val_loss"} and numbers(saved) == expected
    state = read_state(here / "small")
    assert state["record"]["averaged"] and state["record"]["items"] == 128 and state["step"] == 3
    assert state["record"]["metrics"] == pytest.approx(expected, rel=1e-5)
    assert state["seconds"] == read_state(pictures / "step-00000003")["seconds"] > 0
    assert {"commit", "clean", "date", "versions", "device", "data_sha256"} <= state["record"].keys()


def test_every_command_takes_the_name(pictures: Path, text: Path, here: Path, capsys):
    gkalib.save(pictures, "small", device="cpu")
    gkalib.save(text, "writer", device="cpu")
    assert sorted(os.listdir(here / "writer")) == [MODEL, STATE, TOKENIZER]
    written = []
    for model in (str(text), "writer"):
        words = ["generate", model, "--prompt", "The ", "--count", "12", "--device", "cpu"]
        assert main(words) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1] and written[0].startswith("The ")
    for model in ("small", "writer"):
        assert main(["evaluate", model, "--device", "cpu"]) == 0
        metrics = read_state(here / model)["record"]["metrics"]
        assert numbers(capsys.readouterr().out) == {name: float(f"{x:.6g}") for name, x in metrics.items()}
    assert main(["look", "small", "--device", "cpu"]) == 0
    assert Path("looks/small/rollout.png").is_file() and "looks/small" in capsys.readouterr().out


def test_a_folder_is_loaded_as_a_name_is_and_a_name_can_be_used_again(pictures: Path, text: Path, here: Path):
    gkalib.save(pictures, "model", device="cpu")
    by_name, by_folder = gkalib.load("model").state_dict(), gkalib.load(here / "model").state_dict()
    assert all(torch.equal(by_name[name], tensor) for name, tensor in by_folder.items())
    assert gkalib.load(text).state_dict().keys() != by_name.keys()
    gkalib.save(text, "model", device="cpu")
    assert gkalib.load("model").state_dict().keys() == gkalib.load(text).state_dict().keys()
    path = text / "step-00000003"
    stored = gkalib.load(path).state_dict()
    assert all(torch.equal(stored[name], tensor) for name, tensor in load_file(path / MODEL).items())


@pytest.mark.parametrize("name", [MODEL, STATE, TOKENIZER])
def test_a_changed_file_is_refused(text: Path, here: Path, name: str):
    gkalib.save(text, "model", device="cpu")
    change_a_byte(here / "model" / name)
    with pytest.raises(ValueError, match=r"^load: checkpoint .*model is damaged: .*(changed|JSON)[^.]*$"):
        gkalib.load("model")


def test_what_cannot_be_stored_or_found_is_said(text: Path, here: Path, tmp_path: Path):
    said = r"^load: no folder 'toy' and no trained model of that name in .*models; .* Known: none yet"
    with pytest.raises(ValueError, match=said):
        gkalib.load("toy")
    gkalib.save(text, "writer", device="cpu")
    with pytest.raises(ValueError, match="Known: writer"):
        gkalib.load("toy")
    with pytest.raises(ValueError, match="save: a name is words in lower case joined by hyphens, not 'A b'"):
        gkalib.save(text, "A b")
    with pytest.raises(ValueError, match=f"^there is no checkpoint in {here.parent}"):
        gkalib.save(here.parent, "empty")
    with pytest.raises(SystemExit):
        toy.fit(toy.toy(), launch(tmp_path / "run", save_every=0.0), event=toy.At(3, "SIGTERM"))
    with pytest.raises(ValueError, match=r"run has done 4 of 20 steps; let it end first"):
        gkalib.save(tmp_path / "run", "half")
    assert sorted(os.listdir(here)) == ["writer"]
