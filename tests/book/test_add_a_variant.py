"""The page on adding a variant: its code runs, and the lines it adds to the tests pass those tests."""

import inspect
import re
import sys
from types import SimpleNamespace

import pytest

from chapters.experiments import one_budget
from chapters.experiments import variants as trained
from chapters.experiments.__main__ import main
from chapters.experiments.one_budget import standings
from gkalib import layers
from gkalib.experiments import loop
from tests import cases, variants
from tests.book.conftest import ROOT
from tests.kernels import test_kernel_laws as kernel_laws
from tests.layers import test_variant_laws as attention_laws
from tests.normalizers import test_averages as normalizer_laws
from tests.smoothing import test_agreement as agreement
from tests.smoothing import test_laws as laws

pytestmark = pytest.mark.usefixtures("as_a_user")

PAGE = (ROOT / "book" / "add-a-variant.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^#{1,2} (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
LINE = re.compile(r"# (?:tests|chapters/experiments)/\w+\.py, in (\w+)\n(.*)", re.S)
TABLES = {
    "VARIANTS": variants.VARIANTS,
    "IMAGE_RATES": one_budget.IMAGE_RATES,
}  # all others are of tests/cases.py


def blocks(text: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def run(text: str) -> tuple[dict, dict[str, dict]]:
    """The namespace after all blocks of a page, and the lines it adds to each table of cases."""
    namespace, added = {}, {}
    for block in blocks(text):
        if line := LINE.match(block):
            # The page's classes stand where they would be once they are in the library.
            known = SimpleNamespace(**namespace)
            names = {"kernels": known, "masks": known, "normalizers": known, "KernelCase": cases.KernelCase}
            names |= {"Variant": variants.Variant, "projected": variants.projected}
            added.setdefault(line[1], {}).update(eval("{" + line[2] + "}", names))
        else:
            exec(compile(block, "book/add-a-variant.md", "exec"), namespace)
    return namespace, added


@pytest.fixture(scope="module")
def page():
    """The page, executed once."""
    return run(PAGE)


@pytest.fixture
def added(page, monkeypatch) -> dict[str, dict]:
    """The lines of the page, added to the tables of the tests."""
    for table, lines in page[1].items():
        for name, case in lines.items():
            monkeypatch.setitem(TABLES[table] if table in TABLES else getattr(cases, table), name, case)
    # The page's layer stands where it would be once its file is in the library.
    layer = page[0]["SigmoidAttention"]
    monkeypatch.setattr(layer, "__module__", "gkalib.layers.sigmoid")
    monkeypatch.setitem(
        sys.modules, layer.__module__, SimpleNamespace(SigmoidAttention=layer, __all__=[layer.__name__])
    )
    known = [*layers.variants(), "sigmoid"]
    for module in (layers, trained):
        monkeypatch.setattr(module, "variants", lambda: known)
    return page[1]


def test_every_way_of_the_page_is_executed_and_asserts(page):
    ways = ["A kernel", "A mask", "A normalizer", "A method", "An attention layer"]
    assert [title for title in SECTIONS if title in ways] == ways
    for title in ways:
        assert re.search(r"^\s*assert |assert_close", "".join(blocks(SECTIONS[title])), re.M), title
    classes = {
        name for name, found in page[0].items() if inspect.isclass(found) and found.__module__ == "builtins"
    }
    assert classes == {
        "Sech",
        "Dial",
        "Neighborhood",
        "Sigmoid",
        "Coarse",
        "SigmoidAttention",
        "HalvingAttention",
    }


def test_a_wrong_page_fails():
    broken = PAGE.replace("math.log(2) - u - softplus(-2 * u)", "-u")
    assert broken != PAGE
    with pytest.raises(AssertionError):
        run(broken)


def test_the_page_adds_a_line_to_each_table(page):
    assert {table: list(lines) for table, lines in page[1].items()} == {
        "KERNELS": ["sech", "dial"],
        "MASKS": ["neighborhood"],
        "NORMALIZERS": ["sigmoid"],
        "VARIANTS": ["sigmoid"],
        "IMAGE_RATES": ["sigmoid"],
    }


@pytest.mark.parametrize("name", ["sech", "dial"])
def test_the_kernels_obey_the_laws(added, name):
    case = added["KERNELS"][name]
    assert case.symmetric and case.semidefinite
    kernel_laws.test_values_are_the_exponential_of_the_logarithm(name)
    kernel_laws.test_symmetry_is_as_claimed(name)
    kernel_laws.test_positive_semidefinite(name)
    kernel_laws.test_shift_invariance_is_as_claimed(name)
    kernel_laws.test_rotation_invariance_is_as_claimed(name)
    for mask in cases.MASKS:
        laws.test_averages_reproduce_constants_and_stay_in_range(name, mask, "row-sum")
        _agrees(name, mask)


def _agrees(kernel: str, mask: str) -> None:
    """Every method that computes them agrees with the reference."""
    able = [
        m for m in agreement.HERE if kernel in agreement.computes(m)[0] and mask in agreement.computes(m)[1]
    ]
    assert "dense" in able
    for method in able:
        agreement.test_method_agrees_with_reference(method, kernel, mask, "float64")
        agreement.test_gradients_agree_with_reference(method, kernel, mask)


def test_the_form_is_the_logarithm(added):
    kernel_laws.test_form_is_the_logarithm("dial")


@pytest.mark.parametrize("kernel", ["gaussian", "expdot", "bank", "elu"])
def test_the_mask_is_obeyed_by_every_method(added, kernel):
    laws.test_averages_reproduce_constants_and_stay_in_range(kernel, "neighborhood", "row-sum")
    _agrees(kernel, "neighborhood")


def test_the_normalizer_keeps_its_promises(added):
    normalizer_laws.test_averages_is_true_exactly_where_rows_are_averages("sigmoid")
    normalizer_laws.test_masked_keys_get_nothing_and_change_nothing("sigmoid")
    laws.test_masked_is_deleted("gaussian", "sigmoid")


def test_the_layer_obeys_the_laws_of_all_variants(added):
    attention_laws.test_parameters_are_the_formulas("sigmoid")
    attention_laws.test_averages_are_averages("sigmoid")
    attention_laws.test_sequences_of_a_batch_are_independent("sigmoid")
    attention_laws.test_permuted_tokens_give_a_permuted_output_or_positions_matter("sigmoid")
    attention_laws.test_masked_tokens_are_as_if_deleted("sigmoid")
    attention_laws.test_the_future_changes_nothing("sigmoid")
    attention_laws.test_every_parameter_learns("sigmoid")
    attention_laws.test_gradients_are_differences("sigmoid")
    attention_laws.test_heads_must_divide_the_width("sigmoid")
    for causal in (False, True):
        attention_laws.test_the_method_chosen_gives_the_definition("sigmoid", causal)
    for options in ({}, {"position": "rope", "registers": 2}):
        attention_laws.test_one_token_from_a_cache_is_its_row_of_the_full_pass("sigmoid", 5, options)


@pytest.mark.data("fashion_mnist")
def test_the_layer_enters_the_comparison_at_one_budget(added, tmp_path, monkeypatch, capsys):
    """The commands of the page, in their smoke form; its line gives the variant its rate."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    few = loop.task("fashion-mnist", train=64, test=64, published=True)  # read once for all runs
    monkeypatch.setattr(loop, "task", lambda name, **data: few)
    lines = re.findall(r"^python -m chapters.experiments (one-budget-\S+ .*)", PAGE, re.M)
    rates, seeds, costs = (line.split() for line in lines)
    assert main([*rates, "--smoke"]) == 0
    assert capsys.readouterr().out.startswith("sigmoid-smoke-s100")
    assert main([*seeds, "--smoke"]) == 0
    assert capsys.readouterr().out.count("sigmoid-smoke-s") == 20
    assert costs == ["one-budget-costs", "images-sigmoid"] and "images-gka" in one_budget.STUDIES
    header, table = (found := standings("one-budget-images")).header, found.cells
    row = next(dict(zip(header, cells, strict=True)) for cells in table if cells[0] == "sigmoid")
    assert row["rate"] == f"{added['IMAGE_RATES']['sigmoid']:g}"
