"""The parts of the extensions that need no build: rounding, names found in source, docstrings, signatures."""

import ast
from pathlib import Path

import pytest
import yaml
from _ext.alt_text import fault
from _ext.api import public_names, reference
from _ext.docstrings import to_myst
from _ext.page import metadata
from _ext.results_role import agrees
from _ext.source import find_object, find_test, module_path

from tests.book.conftest import ROOT


@pytest.mark.parametrize(
    ("printed", "value", "expected"),
    [
        ("0.944", 0.94449, True),
        ("0.944", 0.9445, True),
        ("0.944", 0.9436, True),
        ("0.944", 0.94451, False),
        ("0.9440", 0.94449, False),
        ("12", 12.4999, True),
        ("12", 12.6, False),
        ("1,234", 1234.2, True),
        ("-0.5", -0.52, True),
        ("−0.5", -0.52, True),
        ("0.5", -0.52, False),
        ("1.2e-5", 1.23e-5, True),
        ("1.2e-5", 1.26e-5, False),
        ("1.2e3", 1249, True),
        ("12.3%", 0.12345, True),
        ("12.3 %", 0.12345, True),
        ("12.4%", 0.12345, False),
    ],
)
def test_a_number_agrees_with_what_rounds_to_it(printed, value, expected):
    assert agrees(printed, value) is expected


@pytest.mark.parametrize("printed", ["", "about 3", "nan", "inf", "3 ms"])
def test_what_is_no_number_is_refused(printed):
    with pytest.raises(ValueError, match="is not a number"):
        agrees(printed, 3.0)


@pytest.fixture
def tree(tmp_path) -> Path:
    """A library with a lazy public name, a class with a base, and tests."""
    files = {
        "lib/__init__.py": "if TYPE_CHECKING:\n    from lib.part import Child\n",
        "lib/part/__init__.py": "from .inner import Child, explore as look\n"
        "from lib.part import inner\nNAME = 1\n",
        "lib/part/inner.py": "class Base:\n    def fit(self): ...\n\nclass Child(Base):\n    size: int = 3\n"
        "    def predict(self): ...\n\ndef explore(): ...\nround_about = 2\n",
        "lib/circle.py": "from lib.circle import nothing\n",
        "tests/test_x.py": "import pytest\ndef helper(): ...\ndef test_a(): ...\nclass TestB:\n"
        "    def test_c(self): ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("dotted", "full"),
    [
        ("lib.Child", "lib.part.inner.Child"),
        ("lib.part.Child", "lib.part.inner.Child"),
        ("lib.part.look", "lib.part.inner.explore"),
        ("lib.part.inner.Child.predict", "lib.part.inner.Child.predict"),
        ("lib.Child.fit", "lib.part.inner.Child.fit"),
        ("lib.Child.size", "lib.part.inner.Child.size"),
        ("lib.part.inner", "lib.part.inner"),
        ("lib.part.NAME", "lib.part.NAME"),
        ("lib.Child.score", None),
        ("lib.part.explore", None),
        ("lib.nothing", None),
        ("lib.circle.nothing", None),
        ("elsewhere.Child", None),
    ],
)
def test_a_name_leads_to_its_definition(tree, dotted, full):
    assert find_object(tree, dotted) == full


@pytest.mark.parametrize(
    ("identifier", "line"),
    [
        ("tests/test_x.py::test_a", 3),
        ("tests/test_x.py::test_a[case-1]", 3),
        ("tests/test_x.py::TestB::test_c", 5),
        ("tests/test_x.py::TestB", None),
        ("tests/test_x.py::TestB::test_a", None),
        ("tests/test_x.py::helper", None),
        ("tests/test_x.py", None),
        ("tests/test_y.py::test_a", None),
    ],
)
def test_a_test_is_found_by_its_id(tree, identifier, line):
    assert find_test(tree, identifier) == line


@pytest.mark.parametrize(
    ("alt", "reason"),
    [
        ("Three curves that cross at zero", None),
        (None, "has no alternative text"),
        ("  ", "has no alternative text"),
        ("../_images/0a1b.png", "has a file path as its alternative text (../_images/0a1b.png)"),
        ("figure", "has one word as its alternative text (figure)"),
    ],
)
def test_alternative_text_must_describe(alt, reason):
    assert fault(alt) == reason


def test_a_type_variable_is_shown_as_what_bounds_it():
    lines = reference(ROOT, "gkalib.training")
    assert any(line.endswith("{py:method} smoke() -> gkalib.training.TrainConfig") for line in lines)


def test_a_docstring_becomes_markdown():
    docstring = """The sum, as in :func:`add`.

    $$a + b$$

    Args:
        a, b: the terms,
            of any size.
        *rest: more.

    Returns:
        ``a + b``.

    Raises:
        ValueError: if it is
            too large.

    Chapter 1 teaches it.
    """
    assert to_myst(docstring) == [
        "The sum, as in `add`.", "", "$$a + b$$", "", "",
        "**Args**", "", "`a`, `b`", ": the terms,", "  of any size.", "", "`*rest`", ": more.", "",
        "**Returns**", "", "``a + b``.", "",
        "**Raises**", "", "`ValueError`", ": if it is", "  too large.", "",
        "Chapter 1 teaches it.", "",
    ]  # fmt: skip


def documented() -> set[str]:
    """The modules and packages that the API pages ask for."""
    pages = [metadata(path).get("api", []) for path in sorted((ROOT / "book" / "api").glob("*.md"))]
    return {name for names in pages for name in names}


def test_every_part_of_the_library_is_on_a_page_of_the_reference():
    parts = {
        f"gkalib.{path.stem if path.is_file() else path.name}"
        for path in (ROOT / "gkalib").iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
    }
    assert parts - documented() == set()


def test_every_public_name_of_the_library_is_on_a_page_of_the_reference():
    tree = ast.parse((ROOT / "gkalib" / "__init__.py").read_text(encoding="utf-8"))
    public = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    shown = "\n".join(line for name in sorted(documented()) for line in reference(ROOT, name))
    for name in public:
        full = find_object(ROOT, f"gkalib.{name}")
        if full and module_path(ROOT, full) is None and not name.startswith("__"):
            assert public_names(ROOT)[full] == f"gkalib.{name}"
            assert f"}} {name}" in shown, name


def test_the_configuration_lists_every_extension_of_the_folder():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    files = {
        f"_ext.{path.stem}"
        for path in (ROOT / "book" / "_ext").glob("*.py")
        if "def setup(" in path.read_text(encoding="utf-8")
    }
    assert set(config["sphinx"]["local_extensions"]) == files and len(files) >= 9
