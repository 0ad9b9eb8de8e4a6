"""Files of the hub lie in a folder or are fetched into one, whole, and are what the hub says they are."""

import dataclasses
import hashlib
import sys
from types import SimpleNamespace

import pytest

from gkalib.data import registry
from gkalib.data.fetch import SUMS, TIMEOUT, Hub, fetch_hub, find_hub, verify_hub

FILES = {"data/train-0.parquet": b"one", "data/train-1.parquet": b"two", "data/test-0.parquet": b"three"}
COMMIT = "89abcdef" * 5
SET = Hub(
    repo="somebody/something",
    revision="0123456789",
    folder="something",
    files={"train": "train-*.parquet", "test": "test-*.parquet"},
    size="11 bytes",
)


@pytest.fixture
def folder(cache):
    return cache / "something"


def serve(monkeypatch, *, breaks=None, files=FILES, revision=SET.revision):
    """A hub of one data set; it may break after one file."""
    patterns = []

    def info(self, **source):
        assert source == {
            "repo_id": SET.repo,
            "revision": revision,
            "files_metadata": True,
            "timeout": TIMEOUT,
        }
        sums = {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}
        stated = [SimpleNamespace(rfilename=path, lfs=SimpleNamespace(sha256=sums[path])) for path in FILES]
        siblings = [*stated, SimpleNamespace(rfilename="README.md", lfs=None)]
        return SimpleNamespace(siblings=siblings, sha=COMMIT)

    def snapshot(*, allow_patterns, local_dir, **source):
        patterns.extend(allow_patterns)
        (local_dir / ".cache").mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            (local_dir / path).parent.mkdir(exist_ok=True)
            (local_dir / path).write_bytes(content)
            if breaks:
                raise breaks

    client = SimpleNamespace(HfApi=type("HfApi", (), {"dataset_info": info}), snapshot_download=snapshot)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    return patterns


def test_fetched_files_are_found_with_the_sums_that_the_hub_states(folder, monkeypatch):
    patterns = serve(monkeypatch)
    assert find_hub(SET, "train") == []
    assert fetch_hub(SET) == folder
    assert patterns == ["*train-*.parquet", "*test-*.parquet"]
    assert [path.name for path in find_hub(SET, "train")] == ["train-0.parquet", "train-1.parquet"]
    verify_hub(SET)
    assert (folder / SUMS).read_text().splitlines()[
        0
    ] == f"{hashlib.sha256(b'three').hexdigest()}  data/test-0.parquet"


def test_a_branch_is_not_fetched_before_somebody_names_its_commit(folder, monkeypatch):
    """Sums that come with the files vouch for whatever comes."""
    branch = dataclasses.replace(SET, revision="main")
    monkeypatch.delenv("GKALIB_REVISION", raising=False)
    patterns = serve(monkeypatch, revision="main")
    with pytest.raises(
        ValueError, match=f"its main is now {COMMIT}. Who trusts that one sets GKALIB_REVISION="
    ):
        fetch_hub(branch)
    assert not patterns and not folder.exists()
    monkeypatch.setenv("GKALIB_REVISION", COMMIT)
    patterns = serve(monkeypatch, revision=COMMIT)
    assert fetch_hub(branch) == folder and patterns


def test_a_fetch_that_broke_off_has_no_files_until_it_is_taken_up_again(folder, monkeypatch):
    serve(monkeypatch, breaks=ConnectionError("the line is dead\nmore"))
    with pytest.raises(
        ValueError,
        match=r"^data: the hub.s somebody/something could not be fetched: the line is dead; if it cannot",
    ):
        fetch_hub(SET)
    assert (folder / "data" / "train-0.parquet").is_file()
    assert find_hub(SET, "train") == []
    serve(monkeypatch, files=FILES | {"data/train-1.parquet": b"tw0"})
    with pytest.raises(ValueError, match=r"train-1.parquet has sha256 \w{64}, not \w{64}: delete it and get"):
        fetch_hub(SET)
    assert find_hub(SET, "train") == []
    serve(monkeypatch)
    fetch_hub(SET)
    assert len(find_hub(SET, "train")) == 2


def test_a_folder_put_in_place_by_hand_is_as_good(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path / "mine"))
    mine = tmp_path / "mine" / "something" / "anywhere"
    mine.mkdir(parents=True)
    (mine / "train-7.parquet").write_bytes(b"seven")
    assert [path.name for path in find_hub(SET, "train")] == ["train-7.parquet"]
    assert find_hub(SET, "test") == []
    verify_hub(SET)  # nobody stated a sum


def test_missing_files_name_the_command_the_repository_and_the_folder(folder, monkeypatch):
    gated = dataclasses.replace(SET, terms="once its terms are accepted")
    entry = dataclasses.replace(registry.DATASETS["fineweb_edu"], name="something", hub=gated)
    monkeypatch.setitem(registry.DATASETS, "something", entry)
    assert not registry.ready("something")
    with pytest.raises(ValueError) as failure:
        registry.hub_files("something", "train")
    assert str(failure.value) == (
        "data: 'something' is not here. Get it with: python -m gkalib data get something\n"
        "(11 bytes of the hub's data set somebody/something, once its terms are accepted; or put its files "
        f"train-*.parquet and test-*.parquet into the folder something of {folder.parent})"
    )


def test_getting_a_set_fetches_it_and_checking_compares_the_sums(folder, monkeypatch):
    entry = registry.DATASETS["fineweb_edu"]
    actual = dataclasses.replace(
        entry, name="something", hub=SET, loader=lambda: registry.hub_files("something", "test")
    )
    monkeypatch.setitem(registry.DATASETS, "something", actual)
    serve(monkeypatch)
    registry.get("something")
    registry.check("something")
    (folder / "data" / "test-0.parquet").write_bytes(b"four")
    with pytest.raises(ValueError, match=r"test-0.parquet has sha256"):
        registry.check("something")
