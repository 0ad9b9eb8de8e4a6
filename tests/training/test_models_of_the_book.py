"""The trained models that come with the book: small, whole, and as they are said to be, by every command."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import gkalib
from gkalib.cli import main
from gkalib.training import LanguageConfig, VisionConfig
from gkalib.training.checkpoint import MODEL, STATE, TOKENIZER, read_state
from gkalib.training.record import open_run
from tests.need import marks
from tests.training.test_trained import change_a_byte, numbers

HOME = Path(__file__).resolve().parents[2] / "data" / "models"
NAMES = sorted(path.parent.name for path in HOME.glob(f"*/{STATE}"))
LARGEST, ALL = 3e6, 15e6  # bytes: of a file, and of all of them, which every clone has to fetch


def row(name: str) -> str:
    """A model's row in ``data/README.md``."""
    trained, state = open_run(HOME / name), read_state(HOME / name)
    config, record = trained.config, state["record"]
    metrics = record["metrics"]
    size = sum(parameter.numel() for parameter in trained.model.parameters())
    found = f"top-1 {metrics['top1']:.1%}" if "top1" in metrics else f"loss {metrics['val_loss']:.3f} nats"
    recipe = f"`{config.experiment}`, `{config.arm}`"
    length = f"{state['step']:,} | {state['seconds'] / 60:.1f}"
    return f"| `{name}` | {recipe} | {config.data} | {size:,} | {length} | {found} |"


def test_the_readme_has_a_row_for_each_model():
    page = (HOME.parent / "README.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- models -->\n(.*?)<!-- /models -->", page, re.S)
    assert table and table[1].splitlines()[2:] == [row(name) for name in NAMES]


def test_the_models_are_small_and_of_clean_code():
    files = [path for path in HOME.rglob("*") if path.is_file()]
    assert {path.name for path in files} <= {MODEL, STATE, TOKENIZER}
    assert max(path.stat().st_size for path in files) <= LARGEST
    assert sum(path.stat().st_size for path in files) <= ALL
    for name in NAMES:
        state = read_state(HOME / name)
        assert state["record"]["clean"] and state["settings"]["scale"] == "reduced"
        assert state["step"] == state["settings"]["steps"]


def test_there_are_pairs_to_compare():
    assert {f"{name}-{data}" for name in ("gka", "softmax") for data in ("fashion-mnist", "cifar10")} < {
        *NAMES
    }
    assert {"gpa-dickens", "rope-dickens", "rbf-tinystories", "karat-cifar10"} < {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_the_book_loads_and_predicts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model, config = gkalib.load(name), open_run(name).config
    assert not model.training
    if isinstance(config, VisionConfig):
        inputs = torch.zeros(2, config.model.channels, config.model.image_size, config.model.image_size)
        assert model(inputs).shape == (2, config.model.num_classes)
    else:
        assert isinstance(config, LanguageConfig)
        assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, config.model.vocab_size)
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    copy = Path(shutil.copytree(HOME / name, tmp_path / "models" / name))
    change_a_byte(copy / MODEL)
    with pytest.raises(ValueError, match="has changed since it was written"):
        gkalib.load(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(read_state(HOME / name)["settings"]["data"])) for name in NAMES]
)
def test_a_model_of_the_book_reaches_what_is_stored(name: str, capsys):
    assert main(["evaluate", name, "--device", "cpu"]) == 0
    stored = read_state(HOME / name)["record"]["metrics"]
    # Another processor rounds otherwise: a thousandth, or ten of 10,000 pictures.
    assert numbers(capsys.readouterr().out) == pytest.approx(stored, rel=1e-3, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_the_book_writes_and_is_drawn(name: str, tmp_path: Path, capsys):
    if open_run(name).tokenizer_json:
        assert main(["generate", name, "--prompt", "It was ", "--count", "30", "--device", "cpu"]) == 0
        assert re.match(r"It was .{30,}\n$", capsys.readouterr().out, re.S)
    assert main(["look", name, "--out", str(tmp_path), "--device", "cpu"]) == 0
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    expected = "sinks" if open_run(name).tokenizer_json else "rollout"
    assert {expected, "spectra"} <= drawn and ("bandwidths" in drawn) == name.startswith(("gka", "rbf"))
