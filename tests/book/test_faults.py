"""Every check of the build is fed the fault that it is for, and seen to fail the build."""

import json
import os
import re

import pytest

from gkalib.results import save
from tests.book.conftest import tiny_book
from tests.records import record

EQUATION = "```{math}\n:label: eq-double\ny = 2x\n```\n\nSee {eq}`eq-double`."


def registered(entry: str) -> str:
    """Front matter with one equation in the registry."""
    return f"gkalib:\n  equations:\n    eq-double: {entry}"


def store(tiny, **changes) -> None:
    """Put one run into the book's store."""
    metrics = {"loss": 0.94449, "share": 0.12345}
    fields = {"scale": "reduced", "device": "cpu", "date": "2026-01-02", "metrics": metrics}
    save(record(**fields | changes), root=tiny.root / "data" / "results")


def notebook(gkalib: dict, data: dict | None = None, metadata: dict | None = None) -> str:
    """A chapter with one executed cell that displayed ``data``."""
    output = {"output_type": "display_data", "metadata": {}, "data": data}
    code = {
        "cell_type": "code",
        "execution_count": 1,
        "id": "b",
        "metadata": metadata or {},
        "outputs": [output] if data else [],
        "source": "1 + 1",
    }
    title = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# A chapter"}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps(
        {"cells": [title, code], "metadata": {**kernel, "gkalib": gkalib}, "nbformat": 4, "nbformat_minor": 5}
    )


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
STAMPED = {
    "minutes_to_read": 12,
    "gpu": "no",
    "stamp": {"seconds": 3.2, "peak_mib": 1536, "date": "2026-01-02"},
}


def test_a_page_without_a_fault_builds_without_torch(tiny):
    store(tiny)
    tiny.page(
        "# Page\n\n"
        + EQUATION
        + "\n\nLoss {res}`0.944 <toy/gaussian/loss>`, share {res}`12.3% <toy/gaussian-reduced-s0-cpu/share>`."
        + "\n\n![A small white square](picture.svg)\n\n```{ledger}\n```",
        registered('{function: gkalib.double, test: "tests/test_inner.py::test_double"}'),
    )
    picture = notebook(STAMPED, {"image/png": PIXEL}, {"mystnb": {"image": {"alt": "A small white square"}}})
    tiny.write("chapters/01-one.ipynb", picture)
    tiny.write(
        "_toc.yml", "format: jb-book\nroot: start\nchapters:\n  - file: page\n  - file: chapters/01-one\n"
    )
    for name in ("torch", "jaxtyping", "sklearn", "pandas", "matplotlib"):
        tiny.write(
            f"blocked/{name}/__init__.py", f"raise ImportError('{name} is not in the light environment')\n"
        )
    done = tiny.build(env={**os.environ, "PYTHONPATH": str(tiny.root / "blocked")})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    page = tiny.html()
    assert (
        "toy/gaussian/loss: reduced run gaussian-reduced-s0-cpu, commit 0123456, on cpu, 2026-01-02" in page
    )
    assert 'class="gk-tick"' in page and "test_double" in page
    assert "12.3%" in page and "gk-ledger" in page
    index = (tiny.root / "_build" / "html" / "index.html").read_text(encoding="utf-8")
    assert "url=start.html" in index
    chapter = tiny.html("chapters/01-one")
    row = chapter.split('class="gk-badges"')[1].split("</ul>")[0]
    values = [value.split("<")[0] for value in row.split("<strong>")[1:]]
    assert values == ["12 min", "4 s", "not needed", "1.5 GiB", "2026-01-02"]
    assert chapter.index("<h1") < chapter.index('class="gk-badges"')
    assert 'alt="A small white square"' in chapter
    assert not any(name in chapter + page for name in ("colab.research", "mybinder", "/edit/main"))


# What is wrong, the page that has it, its front matter, and what the build says.
FAULTS = [
    (
        "a wrong number",
        "{res}`0.945 <toy/gaussian/loss>`",
        "",
        "toy/gaussian/loss is 0.94449 (gaussian-reduced-s0-cpu), which does not round to the printed 0.945",
    ),
    ("too many digits", "{res}`0.9444 <toy/gaussian/loss>`", "", "does not round to the printed 0.9444"),
    ("a wrong percentage", "{res}`13% <toy/gaussian/share>`", "", "does not round to the printed 13%"),
    ("not a number", "{res}`small <toy/gaussian/loss>`", "", "'small' is not a number"),
    ("no key", "{res}`0.944`", "", "write {res}`number <experiment/arm/metric>`, not '0.944'"),
    ("an unknown metric", "{res}`0.9 <toy/gaussian/gain>`", "", "has no metric 'gain'"),
    ("an unknown arm", "{res}`0.9 <toy/laplace/loss>`", "", "no arm 'laplace' in 'toy'"),
    ("an unknown experiment", "{res}`0.9 <none/gaussian/loss>`", "", "no run of 'none'. Make one with"),
    ("an unregistered equation", EQUATION, "", "eq-double is not in the page's metadata"),
    (
        "an equation without a test",
        EQUATION,
        registered("{function: gkalib.double}"),
        "must name a function and a test",
    ),
    (
        "a missing function",
        EQUATION,
        registered('{function: gkalib.triple, test: "tests/test_inner.py::test_double"}'),
        "names the function gkalib.triple, which no source file defines",
    ),
    (
        "a missing test",
        EQUATION,
        registered('{function: gkalib.double, test: "tests/test_inner.py::test_triple"}'),
        "names the test tests/test_inner.py::test_triple, which does not exist",
    ),
    (
        "a definition with a test",
        EQUATION,
        registered('{definition: true, test: "tests/test_inner.py::test_double"}'),
        "is a definition and also names something else",
    ),
    (
        "a registered equation that is not there",
        "Text.",
        registered("{definition: true}"),
        "eq-double is in the metadata but not on the page",
    ),
    ("no alternative text", "![](picture.svg)", "", "picture.svg has no alternative text"),
    ("a path as text", "![img/picture.svg](picture.svg)", "", "has a file path as its alternative text"),
    ("one word as text", "![Square](picture.svg)", "", "has one word as its alternative text"),
    ("no text in HTML", "<img src='picture.svg'>", "", "an image in HTML has no alternative text"),
    ("a broken cross-reference", "See {ref}`nowhere`.", "", "undefined label: 'nowhere'"),
    ("a broken equation reference", "See {eq}`eq-nowhere`.", "", "equation not found: eq-nowhere"),
    ("a broken link to a page", "See [that](nowhere.md).", "", "'nowhere.md'"),
    ("an unknown citation", "{cite:t}`nobody1900`", "", 'could not find bibtex key "nobody1900"'),
    ("an unknown function", "{py:func}`gkalib.nothing`", "", "reference target not found: gkalib.nothing"),
    ("a page that does not parse", "```{nonsense}\n```", "", "Unknown directive type: 'nonsense'"),
    ("a missing module", "Text.", "gkalib:\n  api: [gkalib.nothing]", "no module gkalib.nothing"),
]


UNSTAMPED = {**STAMPED, "stamp": {"seconds": 3.2, "date": "2026-01-02"}}
# The same for chapters: the notebook's metadata, what its cell displayed, and what the build says.
CHAPTER_FAULTS = [
    (
        "no metadata",
        {},
        None,
        "lacks gkalib.minutes_to_read, gkalib.gpu, gkalib.stamp.seconds, gkalib.stamp.peak_mib, "
        "gkalib.stamp.date; write the stamp with: python book/execute.py 00-fault",
    ),
    ("half a stamp", UNSTAMPED, None, "lacks gkalib.stamp.peak_mib;"),
    ("a picture without text", STAMPED, {"image/png": PIXEL}, "alternative text"),
    (
        "nothing to show",
        STAMPED,
        {"application/vnd.x+json": {}},
        "outputs: cell 2 displays only application/vnd.x+json",
    ),
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """What the build says of a book in which every page has one fault, line by line."""
    made = tiny_book(tmp_path_factory.mktemp("faulty"))
    store(made)
    files = ["absent"]
    for number, (_, text, front, _) in enumerate(FAULTS):
        # A label belongs to one page.
        text, front = (part.replace("eq-double", f"eq-double-{number}") for part in (text, front))
        files.append(f"page-{number}")
        made.page(f"# Page {number}\n\n{text}", front, name=files[-1])
    for number, (_, gkalib, data, _) in enumerate(CHAPTER_FAULTS):
        files.append(f"chapters/{number:02}-fault")
        made.write(f"{files[-1]}.ipynb", notebook(gkalib, data))
    toc = "".join(f"  - file: {file}\n" for file in files)
    made.write("_toc.yml", f"format: jb-book\nroot: start\nchapters:\n{toc}")
    done = made.build("--cdn")
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if "WARNING" in line]


def test_the_build_says_nothing_else(faulty):
    assert len(faulty) == len(FAULTS) + len(CHAPTER_FAULTS) + 1


def test_the_build_says_which_entry_of_the_contents_does_not_exist(faulty):
    assert len([line for line in faulty if "nonexisting document 'absent'" in line]) == 1


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault[0] for fault in FAULTS])
def test_the_build_says_what_is_wrong_with_a_page(faulty, number):
    said = [line for line in faulty if re.search(rf"\bpage-{number}\b", line)]
    assert len(said) == 1, "the page has this one fault"
    assert FAULTS[number][3].replace("eq-double", f"eq-double-{number}") in said[0]


@pytest.mark.parametrize("number", range(len(CHAPTER_FAULTS)), ids=[fault[0] for fault in CHAPTER_FAULTS])
def test_the_build_says_what_is_wrong_with_a_chapter(faulty, number):
    said = [line for line in faulty if f"chapters/{number:02}-fault" in line]
    assert len(said) == 1, "the chapter has this one fault"
    assert CHAPTER_FAULTS[number][3] in said[0]
