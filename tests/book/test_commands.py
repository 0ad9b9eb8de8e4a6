"""The commands in the chapters of the four papers are such that what is typed is understood, arm by arm."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

import gkalib.cli
from chapters.experiments import experiment
from gkalib.bench.run import benchmark
from gkalib.cli.models import Train
from gkalib.evaluation.tasks import TASKS
from gkalib.training.checkpoint import run_folder
from gkalib.training.config import LaunchConfig
from gkalib.training.recipes import chosen_runs

ROOT = Path(__file__).resolve().parents[2]
TYPED = re.compile(r"`python -m (gkalib|chapters\.experiments) ([^`]+)`")
COMMANDS = sorted(
    {
        (page.stem, module, words)
        for page in (ROOT / "chapters" / "text").glob("*.md")
        if int(page.stem[:2]) in range(27, 32)
        for module, words in TYPED.findall(page.read_text(encoding="utf-8").partition("## The full run")[2])
    }
)
PAPERS = {"27": "gpa", "28": "rbf", "29": "karat", "30": "gka"}


def known(folder: str) -> bool:
    """Whether a run's folder is one that a recipe's arm writes, or a stored model."""
    if (ROOT / "data" / "models" / folder).is_dir():
        return True
    _, name, run = folder.split("/")
    arm, _, seed = run.partition("-full-s")
    return [str(run_folder(one, LaunchConfig())) for one in chosen_runs(name, [arm], [int(seed)])] == [folder]


@pytest.mark.parametrize(("page", "module", "words"), COMMANDS, ids=[f"{p[:2]}-{w}" for p, _, w in COMMANDS])
def test_a_command_on_a_page_can_be_typed(page, module, words):
    if module == "chapters.experiments":
        assert experiment(words.split()[0])
        return
    name, *rest = shlex.split(words)
    if name == "train":
        command, settings = tyro.cli(Train, args=rest, return_unknown_args=True)
        assert settings == [] and chosen_runs(command.name, command.arms, command.seed)
        return
    command = tyro.cli(getattr(gkalib.cli, name.title()), args=rest)
    if name == "bench":
        assert set(command.shape) <= set(benchmark(command.name).shapes("full", "cuda"))
    elif name == "data":
        assert command.name
    else:
        assert known(str(command.run if name == "submit" else command.trained.run))
    if name == "look":
        assert command.paper == PAPERS[page[:2]]
    if name == "evaluate":
        assert set(command.tasks) <= TASKS.keys()


def test_every_paper_has_its_commands():
    for number, paper in PAPERS.items():
        assert any(page[:2] == number and f"--paper {paper}" in words for page, _, words in COMMANDS)
    assert {page[:2] for page, *_ in COMMANDS} == {*PAPERS, "31"}
