"""Chapters show the same under perturbed arithmetic and on another machine; a cell that does not is found."""

import os
import shutil
import sys

import execute
import jitter
import noise
import pytest
import torch
from jitter import PERTURBATIONS, command, drawn
from pairs import ROOT, paths, slugs

from gkalib.experiments import task
from tests.chapters.conftest import SLUG

DRAWN = drawn(os.environ["JITTER"])
# Each sum lies one unit in the last place above where one decimal is rounded up.
EDGE = """
edges = torch.nextafter(torch.arange(20) + 0.25, torch.tensor(99.0))
print([f"{number:.1f}" for number in edges[:, None].sum(1).tolist()])
"""
# What a machine is: its cache, memory, cores, and those that the kernel may use.
IS = """
import os
from gkalib.bench import timing
print("machine", timing.cache_bytes("cpu"), os.sysconf("SC_PHYS_PAGES"), os.cpu_count(), end=" ")
print(len(os.sched_getaffinity(0)), torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("slug", "name"), [pytest.param(*case, marks=pytest.mark.xdist_group("-".join(case))) for case in DRAWN]
)
def test_a_chapter_of_the_day_shows_the_same(slug, name):
    cells = jitter.jitter(paths(ROOT, slug)[0], name)
    said = "\n".join(f"cell {number}:\n{text}" for number, text in cells.items())
    assert not cells, f"{command(slug, name)} differs from the stored outputs:\n{said}"


@pytest.fixture(scope="module")
def at_the_edge(executed, tmp_path_factory):
    """The example, executed, with a cell that prints numbers at a rounding edge and what the machine is."""
    root = tmp_path_factory.mktemp("edge") / "book"
    shutil.copytree(executed, root)
    notebook, text = paths(root, SLUG)
    text.write_text(text.read_text().replace("record = load", EDGE + IS + "record = load"))
    execute.execute(SLUG, root=root)
    return notebook


def test_a_cell_that_prints_at_a_rounding_edge_is_found(at_the_edge):
    cells = jitter.jitter(at_the_edge, "noise-0")
    assert list(cells) == [3]
    assert "- ['0.3', '1.3'," in cells[3] and "+ ['" in cells[3]


@pytest.mark.skipif(sys.platform != "linux", reason="the size of the cache is read as Linux states it")
def test_a_cell_that_prints_what_the_machine_is_is_found(at_the_edge):
    cells = jitter.jitter(at_the_edge, "machine")
    assert list(cells) == [3]
    here, there = (line.split()[2:] for line in cells[3].splitlines() if "machine" in line)
    assert len(here) == 5 and not any(one == other for one, other in zip(here, there, strict=True))


def test_other_instructions_leave_the_sum_of_one_number(at_the_edge):
    assert jitter.jitter(at_the_edge, "plain") == {}


def test_what_one_seed_draws_is_drawn_again_and_another_day_draws_others():
    assert drawn("2026-01-31") == drawn("2026-01-31") != drawn("2026-02-01")


def test_in_two_months_every_chapter_and_every_perturbation_is_drawn():
    days = [f"2026-{month:02}-{day:02}" for month in (6, 7) for day in range(1, 31)]
    cases = [case for day in days for case in drawn(day)]
    assert {slug for slug, _ in cases} == set(slugs(ROOT))
    assert {name for _, name in cases} == set(PERTURBATIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_one_unit_in_the_last_place_either_way(dtype, seed):
    before = torch.randn(10_000, dtype=dtype)
    after = before.clone()
    noise.perturb(after, seed)
    up = torch.nextafter(before, torch.full_like(before, torch.inf))
    down = torch.nextafter(before, torch.full_like(before, -torch.inf))
    shares = [float((after == moved).double().mean()) for moved in (down, before, up)]
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_noise_depends_on_seed_and_number_alone():
    numbers = torch.randn(1000)
    moved = [numbers.clone(), numbers.clone(), numbers.clone().view(10, 100).T]
    for tensor, seed in zip(moved, (0, 1, 0), strict=True):
        noise.perturb(tensor, seed)
    assert torch.equal(moved[0], moved[2].T.reshape(-1)) and not torch.equal(moved[0], moved[1])


@pytest.mark.parametrize("exact", [0.0, 1.0, -0.5, 50_000.0, torch.inf, -torch.inf])
def test_noise_leaves_what_is_exact_on_any_processor(exact):
    for dtype in (torch.float32, torch.float64):
        numbers = torch.full((9,), exact, dtype=dtype)
        noise.perturb(numbers, 0)
        assert (numbers == exact).all()


def test_noise_is_on_products_sums_and_exponentials_and_their_gradients():
    x = torch.randn(20, 20, requires_grad=True)

    def gradient():
        (found,) = torch.autograd.grad((x @ x).softmax(-1).square().sum(), x)
        return found

    quiet = {"@": x @ x, "sum": x.sum(0), "exp": x.exp(), "norm": x.norm(dim=0), "grad": gradient()}
    with noise.Noise(0):
        noisy = {"@": x @ x, "sum": x.sum(0), "exp": x.exp(), "norm": x.norm(dim=0), "grad": gradient()}
        assert torch.equal(gradient(), gradient())
        assert torch.equal(x + 1, x.detach() + 1)
    for name, before in quiet.items():
        assert not torch.equal(before, noisy[name]), name
        torch.testing.assert_close(noisy[name], before, rtol=1e-5, atol=1e-5)
    into = torch.empty(20, 20)
    with noise.Noise(0), torch.no_grad():
        torch.mm(x, x, out=into)
        grown = x.detach().clone().exp_()
        assert torch.equal(into, x @ x) and torch.equal(grown, x.exp())


def test_normalized_pictures_have_the_same_bits_on_any_processor():
    # A last place here grows to the second printed digit while a chapter trains on the pictures.
    quiet = task("digits").images
    with noise.Noise(0):
        assert torch.equal(task("digits").images, quiet)
