"""The page on using the library: its table is the library's, its code and its commands run."""

import re
import shlex
import shutil

import numpy as np
import pytest
import timm
from PIL import Image

import gkalib
from gkalib import layers
from gkalib.cli import main
from tests.book.conftest import ROOT
from tests.book.test_add_a_variant import blocks

pytestmark = pytest.mark.usefixtures("as_a_user")

PATH = ROOT / "book" / "use-it.md"
PAGE = PATH.read_text(encoding="utf-8")
# What a test can run of it: tiny runs, and no weights from a network.
SMALL = PAGE.replace("-reduced", "-smoke").replace("pretrained=True", "pretrained=False")
COMMANDS = re.findall(r"^python -m gkalib (.+)$", SMALL, re.M)


def of_the_page(name: str) -> str:
    return re.search(rf"<!-- {name} -->\n(.*?)\n?<!-- /{name} -->", PAGE, re.S)[1]


def test_the_table_is_what_the_command_prints(capsys):
    assert main(["variants"]) == 0
    assert capsys.readouterr().out.strip() == of_the_page("variants").strip()


def test_every_variant_has_its_limit():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    assert sorted(name for name, *_ in rows) == layers.variants()
    assert all("chapter" in limit or "{doc}" in limit for name, _, limit in rows if name != "mixed")


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    """A folder with a folder of images and a text file, and the page's commands run in it."""
    folder = tmp_path_factory.mktemp("work")
    for number, name in enumerate(("cat", "dog", "owl")):
        (folder / "photos" / name).mkdir(parents=True)
        for seed in range(8):
            pixels = np.random.default_rng(seed).integers(0, 80 * (number + 1), (40, 48, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{seed}.png")
    words = "It was the best of times, it was the worst of times.\n"
    (folder / "novel.txt").write_text(words * 100, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("GKALIB_RUNS", raising=False)
        shutil.copytree(ROOT / "data" / "models", folder / "data" / "models")  # save adds one
        patch.setenv("GKALIB_RESULTS", str(folder / "data" / "results"))
        for command in COMMANDS:
            training = ["--device", "cpu", "--quiet"] if command.startswith("train") else ["--device", "cpu"]
            assert main([*shlex.split(command), *training]) == 0, command
    return folder


@pytest.mark.slow
def test_the_commands_of_the_page_are_run(at_work):
    of_a_run, of_a_name = ["evaluate", "evaluate", "generate", "look"], ["generate", "look", "save"]
    assert [command.split()[0] for command in COMMANDS] == ["train", "train", *of_a_run, *of_a_name]
    assert [*(at_work / "looks" / "gka-imagenet-tiny").rglob("*.png")]
    assert [*(at_work / "looks" / "gka-cifar10").glob("*.png")]
    assert (at_work / "data" / "models" / "my-novel" / "tokenizer.json").is_file()
    assert [path.name for path in (at_work / "runs").glob("*/*")]


@pytest.mark.slow
def test_the_code_of_the_page_runs_and_predicts(at_work, monkeypatch, capsys):
    monkeypatch.chdir(at_work)
    namespace = {}
    for block in blocks(SMALL):
        exec(compile(block, PATH.name, "exec"), namespace)
    printed = capsys.readouterr().out
    assert "blocks.0-11.attn: gka" in printed and "auto takes dense" in printed
    shares = [float(share) for share in re.findall(r"'(?:cat|dog|owl)': ([\d.e-]+)", printed)]
    assert len(shares) == 3 and sum(shares) == pytest.approx(1)
    assert len(namespace["top"].values) == 3 and namespace["tokenizer"].vocab_size == 17


def test_what_survives_is_what_the_page_says():
    """Of timm's layer: everything under a variant with its projections, less under those without."""
    found = {}
    for name in ("rbf", "gpa", "krause", "gka", "vlt", "l2"):
        swap = gkalib.replace_attention(timm.create_model("vit_tiny_patch16_224", depth=1), name)
        found[name] = {".".join(each.split(".")[3:4]) for each in swap.dropped}
    assert found == {
        **{"rbf": set(), "gpa": set(), "krause": set(), "gka": {"query", "key", "value"}},
        **{"vlt": {"value"}, "l2": {"query", "key"}},
    }
