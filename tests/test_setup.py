"""What a newcomer relies on: versions that agree, a light package, commands that exist, a true README."""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

import gkalib
from gkalib.viz.digest import digest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = PROJECT["project"]
EXTRAS = PACKAGE["optional-dependencies"]
SITE = PROJECT["dependency-groups"]["site"]
MAKEFILE = (ROOT / "Makefile").read_text()


def lock(name: str) -> dict[str, set[str]]:
    """Each distribution that a lock pins, with its versions: two where the interpreter's version decides."""
    pins: dict[str, set[str]] = {}
    for distribution, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.M):
        pins.setdefault(canonicalize_name(distribution), set()).add(version)
    return pins


FULL, LIGHT = lock("requirements.lock"), lock("requirements-book.lock")


def tracked() -> list[str]:
    """The files of the repository."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def test_the_full_lock_satisfies_every_requirement():
    for text in [*PACKAGE["dependencies"], *(one for extra in EXTRAS.values() for one in extra), *SITE]:
        requirement = Requirement(text)
        versions = FULL[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), (text, versions)


def test_the_versions_behind_the_recorded_results_are_locked():
    wanted = {"torch": "2.11.0", "torchvision": "0.26.0", "triton": "3.6.0", "timm": "1.0.31"}
    assert {name: FULL[name] for name in wanted} == {name: {version} for name, version in wanted.items()}


def test_the_light_lock_is_a_part_of_the_full_one_without_torch():
    assert LIGHT.items() <= FULL.items()
    assert {Requirement(text).name for text in SITE} <= LIGHT.keys()
    assert not LIGHT.keys() & {"torch", "triton", "torchvision", "timm"}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-book.lock"])
def test_a_lock_is_hashed_and_names_no_place(name: str):
    text = (ROOT / name).read_text()
    pins = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    assert all("--hash=sha256:" in pin for pin in pins)
    assert "Python 3.11 on Linux" in text
    assert not re.search(r"://|@ file|^-|\+cpu", text, re.M)


def test_conda_takes_the_locked_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, _, inner = environment["dependencies"]
    assert python == "python=3.11"
    *pins, package = inner["pip"]
    assert package == "-e ."
    stated = {
        canonicalize_name(one.name): {str(one.specifier).removeprefix("==")} for one in map(Requirement, pins)
    }
    chapters = [*PACKAGE["dependencies"], *EXTRAS["vision"], *EXTRAS["language"], *EXTRAS["book"]]
    names = {canonicalize_name(Requirement(text).name) for text in chapters}
    assert stated == {name: FULL[name] for name in names}


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    quoted = re.findall(r"version (\d[\d.]*\d)", (ROOT / "README.md").read_text())
    assert {citation["version"], newest[1], gkalib.__version__, *quoted} == {PACKAGE["version"]}


def test_the_wheel_is_light(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = packed.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0] for name in names} == {"gkalib", f"gkalib-{PACKAGE['version']}.dist-info"}
    needed = map(Requirement, re.findall(r"^Requires-Dist: (.*)", metadata, re.M))
    light = {one.name: str(one.marker or "") for one in needed if "extra" not in str(one.marker)}
    core = "torch numpy einops jaxtyping scikit-learn scipy tyro filelock safetensors rich"
    assert light == {**dict.fromkeys(core.split(), ""), "triton": 'sys_platform == "linux"'}


def test_the_library_works_without_triton_and_the_extras():
    code = """
import sys
for name in "triton torchvision timm skimage statsmodels beartype tokenizers".split():
    sys.modules[name] = None
import torch, gkalib
for name in gkalib.__all__:
    name == "viz" or getattr(gkalib, name)
x = torch.randn(1, 2, 600, 8)
gkalib.smooth(x, x, x, gkalib.kernels.Gaussian(2.0))
print(gkalib.explain(x, x, x, gkalib.kernels.Gaussian(2.0)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "auto takes" in done.stdout


def test_the_readme_map_is_the_tree():
    top = {name.split("/")[0] for name in tracked() if not name.startswith(".")} - {"README.md"}
    block = (ROOT / "README.md").read_text().split("```text\n")[1].split("```")[0]
    absent = {name for name in top if not re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", block)}
    assert not absent
    first = {line.split()[0].rstrip("/") for line in block.splitlines()}
    assert first <= top
    folders = {line.split()[0].rstrip("/") for line in block.splitlines() if line.split()[0].endswith("/")}
    assert all((ROOT / name).is_dir() for name in folders)


def test_the_readme_code_runs():
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S):
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("name", ["smoother", "compared"])
def test_a_stored_picture_shows_what_its_script_draws(name):
    script = runpy.run_path(str(ROOT / "book" / "img" / f"{name}.py"))
    with plt.rc_context():
        figure = script["draw"]()
        drawn = digest(figure)
        plt.close(figure)
    with Image.open(ROOT / "book" / "img" / f"{name}.png") as picture:
        assert json.loads(picture.text["digest"]) == drawn


def test_every_target_is_listed_by_help():
    phony = re.search(r"^\.PHONY: (.*)", MAKEFILE, re.M)
    assert phony is not None
    done = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^make (\S+) +\S", done.stdout, re.M)
    assert sorted(listed) == sorted(phony[1].split())


def commands(*words: str) -> str:
    """What make would run."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_test_runs_every_check():
    planned = commands("test")
    checks = ("ruff check .", "ruff format --check .", "lint-imports", "codespell", "pyright")
    for check in (*checks, "book/execute.py --check", "book/build.py", "-m pytest"):
        assert check in planned, check


def test_a_shared_environment_is_named_after_the_lock(tmp_path: Path):
    key = hashlib.sha256((ROOT / "requirements.lock").read_bytes()).hexdigest()[:12]
    assert f"{tmp_path}/{key}/bin/pip install" in commands("env", f"VENV={tmp_path}")


def test_pre_commit_runs_targets_of_the_makefile():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    entries = [hook["entry"].split() for hook in repository["hooks"]]
    assert all(make == "make" for make, _ in entries)
    (line,) = re.findall(r"-j \$\(JOBS\) (lint .*)", MAKEFILE)
    assert {target for _, target in entries} == set(line.split()) - {"book"}


@pytest.mark.parametrize("name", [".ci/run"])
def test_scripts_are_executable_and_parse(name: str):
    assert (ROOT / name).stat().st_mode & 0o111
    subprocess.run(["bash", "-n", name], cwd=ROOT, check=True)


def test_ci_has_what_a_newcomer_has_and_then_the_data(tmp_path: Path):
    """With commands that only say how they were called."""
    clone, data, said = tmp_path / "clone", tmp_path / "shared" / "data", tmp_path / "said"
    (clone / ".ci").mkdir(parents=True)
    data.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", clone / ".ci")
    for name in ("make", "npm", "chromium", "python3"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\n[ {name} != make ] || echo "$1 $(ls -A $HOME | wc -l) $CI $GKALIB_DATA" >> {said}\n'
        )
        (tmp_path / name).chmod(0o755)
    around = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(ROOT), "GKALIB_DATA": str(data)}
    for environment in (around, {**around, "GKALIB_DATA": ""}):
        said.unlink(missing_ok=True)
        subprocess.run([clone / ".ci" / "run"], env=environment, check=True)
        assert said.read_text() == f"test 0 1 \nwith-data 0 1 {data}\n"


def test_no_file_names_a_place_of_this_machine():
    places = [f"{ROOT}/".encode(), f"{ROOT.parent}/".encode(), f"{Path.home()}/".encode()]
    places = [place for place in places if place.count(b"/") > 1 and len(place) > 5]
    naming = [name for name in tracked() if any(place in (ROOT / name).read_bytes() for place in places)]
    assert not naming


def test_source_files_stay_short():
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in tracked() if name.endswith(".py")}
    most = {name: 450 if name.startswith("gkalib/smoothing/fused/") else 400 for name in lines}
    assert not {name: count for name, count in lines.items() if count > most[name]}
