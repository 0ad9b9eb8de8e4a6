"""The tables of the notation page: names that exist, conversions that hold."""

import ast
import inspect
import math
import re
from collections.abc import Callable
from importlib import import_module
from textwrap import dedent

import pytest
import torch
from torch import Tensor

import gkalib
from gkalib import kernels, masks, normalizers
from tests.book.conftest import ROOT
from tests.tolerance import equal

pytestmark = pytest.mark.usefixtures("as_a_user")

PAGE = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
NAME = re.compile(
    r"(?P<path>[A-Za-z_][\w.]*)(\((?P<argument>\w*)\)(\.(?P<attribute>\w+)(\((?P<second>\w+)\))?)?)?"
)


def tables(text: str, column: str) -> list[dict[str, str]]:
    """The rows of all tables that have a column of this title, each as title -> cell."""
    rows, head = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head is None:
            head = cells
        elif not set(line) <= set("|-: "):
            assert len(cells) == len(head), (
                f"a table's row has {len(cells)} cells for {len(head)} titles: {line}"
            )
            if column in head:
                rows.append(dict(zip(head, cells, strict=True)))
    return rows


def find(path: str) -> object:
    """The object below gkalib at a dotted path, or AttributeError."""
    found = gkalib
    for i, part in enumerate(parts := path.split(".")):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = import_module(".".join(["gkalib", *parts[: i + 1]]))
            except ModuleNotFoundError:
                raise AttributeError(path) from None
    return found


def attributes(owner: type) -> set[str]:
    """What an instance of a class has: class attributes, fields, annotations, what its methods set."""
    names = set(dir(owner)) | set(getattr(owner, "__dataclass_fields__", ()))
    for base in owner.__mro__:
        if base.__module__.startswith("gkalib"):
            names |= set(vars(base).get("__annotations__", ()))
            for node in ast.walk(ast.parse(dedent(inspect.getsource(base)))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
    return names


def resolves(name: str) -> bool:
    """Whether a name as the page writes it is in the library."""
    match = NAME.fullmatch(name)
    assert match, f"{name!r} is not a name as the page explains them"
    try:
        found = find(match["path"])
    except AttributeError:
        return False
    if match["argument"]:
        return match["argument"] in inspect.signature(found).parameters
    if match["attribute"]:
        if match["attribute"] not in attributes(found):
            return False
        return (
            not match["second"]
            or match["second"] in inspect.signature(getattr(found, match["attribute"])).parameters
        )
    return True


ROWS = tables(PAGE, "in code")
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row["in code"])})


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_in_the_library(name):
    assert resolves(name)


def test_every_row_names_code_and_every_paper_has_its_table():
    assert all("`" in row["in code"] for row in ROWS)
    for paper in ("Gaussian Kernel Attention (GKA)", "RBF attention", "Gaussian Process Attention (GPA)"):
        section = PAGE.split(f"\n## {paper}\n")[1].split("\n## ")[0]
        assert len(tables(section, "paper")) >= 10
    assert len(tables(PAGE.split("\n## Kolmogorov–Arnold attention (KArAt)\n")[1], "paper")) >= 9


def test_the_checks_of_names_can_fail():
    for wrong in (
        "kernels.Gauss",
        "kernels.Gaussian(bandwidth)",
        "kernels.DecayingPeriodicBank().length",
        "kernels.Kernel().log(position)",
        "smoothing.nothing",
    ):
        assert not resolves(wrong), wrong


def _lengthscales(parameter: float, u: Tensor, d: int) -> Tensor:
    return -(u**2) / (2 * parameter**2)


# The logarithm of each row's kernel, as its source writes it, of the row's parameter, the distance u and d.
THEIRS: dict[str, tuple[str, Callable[[float, Tensor, int], Tensor]]] = {
    "kernel regression, $h$": ("h", _lengthscales),
    "Gaussian processes, lengthscale $\\ell$": ("length", _lengthscales),
    "RBF, $\\gamma$": ("gamma", lambda gamma, u, d: -gamma * u**2),
    "RBF attention, $\\gamma = 1/\\sqrt d$": ("gamma", lambda _, u, d: -(u**2) / math.sqrt(d)),
    "L2 attention": ("", lambda _, u, d: -(u**2) / math.sqrt(d)),
    "Skyformer": ("", lambda _, u, d: -(u**2) / (2 * math.sqrt(d))),
    "GKA, $\\ell = \\log\\sigma$": ("log_sigma", lambda ell, u, d: -(u**2) / (2 * math.exp(2 * ell))),
    # On unit vectors u² = 2 − 2 cos, so the gain times cos − 1 is −gain u²/2.
    "QK-norm with gain $g$": ("gain", lambda gain, u, d: gain * ((2 - u**2) / 2 - 1)),
    "non-local means, $h$": ("h", lambda h, u, d: -(u**2) / h**2),
    "fast Gauss transform, $h$": ("h", lambda h, u, d: -(u**2) / h**2),
}
BANDWIDTHS = {row["where"]: row["in Python"].strip("`") for row in tables(PAGE, "in Python")}
SOFTMAX = "softmax attention, vote removed"


def _sigma(row: str, **known: float) -> float:
    return eval(BANDWIDTHS[row], {"exp": math.exp}, known)


def test_every_bandwidth_of_the_table_is_checked():
    assert BANDWIDTHS.keys() == {*THEIRS, SOFTMAX}


@pytest.mark.parametrize("value", [0.3, 1.7])
@pytest.mark.parametrize("row", THEIRS)
def test_a_bandwidth_makes_their_kernel_ours(row, value):
    d = 48
    name, theirs = THEIRS[row]
    query, key = torch.randn(2, 1, 1, 7, d, dtype=torch.float64)
    if row.startswith("QK-norm"):
        query, key = (torch.nn.functional.normalize(vectors, dim=-1) for vectors in (query, key))
    ours = kernels.Gaussian(_sigma(row, d=d, **({name: value} if name else {}))).log(query, key)
    equal(ours, theirs(value, torch.cdist(query, key), d))


def test_softmax_attention_without_its_vote_is_gaussian():
    query, key = torch.randn(2, 1, 1, 7, 48, dtype=torch.float64)
    norms = query.square().sum(-1)[..., None] + key.square().sum(-1)[..., None, :]
    equal(
        kernels.Gaussian(_sigma(SOFTMAX, d=48)).log(query, key),
        kernels.ExpDot().log(query, key) - norms / (2 * 48**0.5),
    )


def test_rbf_attention_is_twice_as_sharp_as_softmax_without_its_vote():
    query, key = torch.randn(2, 1, 1, 7, 48, dtype=torch.float64)
    sharp = _sigma("RBF attention, $\\gamma = 1/\\sqrt d$", d=48)
    equal(
        kernels.Gaussian(sharp).log(query, key), 2 * kernels.Gaussian(_sigma(SOFTMAX, d=48)).log(query, key)
    )


def test_the_formula_is_smooth():
    query, key, value = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    allowed = torch.rand(5, 5) < 0.7
    allowed.fill_diagonal_(True)
    numerator = allowed * torch.exp(query @ key.mT / 2)
    weights = numerator / numerator.sum(-1, keepdim=True)
    equal(gkalib.attention_weights(query, key, kernels.ExpDot(), mask=allowed), weights)
    equal(gkalib.smooth(query, key, value, kernels.ExpDot(), mask=allowed), weights @ value)


@pytest.mark.parametrize("eps", [0.0, 1e-2])
def test_gaussian_kernel_attention(eps):
    """Affinities, window, ε and output as GKA writes them."""
    n, window = 9, 4
    x, sigma = (
        torch.randn(1, 3, n, 5, dtype=torch.float64),
        torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64),
    )
    i, j = torch.arange(n)[:, None], torch.arange(n)
    allowed = (i - window < j) & (j <= i)
    assert allowed[-1].sum() == window
    distance = (x[:, :, :, None] - x[:, :, None]).square().sum(-1)
    affinity = torch.exp(-distance / (2 * sigma[:, None, None] ** 2)) * allowed
    weights = affinity / (affinity.sum(-1, keepdim=True) + eps)
    slots = {"mask": masks.Causal() & masks.Window(window), "normalizer": normalizers.RowSum(eps=eps)}
    equal(gkalib.attention_weights(x, x, kernels.Gaussian(sigma), **slots), weights)
    equal(gkalib.smooth(x, x, x, kernels.Gaussian(sigma), **slots), weights @ x)


def test_the_query_norm_cancels():
    query, key = torch.randn(2, 1, 2, 6, 8, dtype=torch.float64)
    gamma = 0.35
    kernel = kernels.Gaussian((2 * gamma) ** -0.5)
    scores = 2 * gamma * query @ key.mT - gamma * key.square().sum(-1)[..., None, :]
    equal(gkalib.attention_weights(query, key, kernel), scores.softmax(-1))
    form = kernel.form(8)
    assert math.isclose(form.scale, 2 * gamma)
    assert math.isclose(form.norm, 2 * gamma)
    equal(form.key_term(key), -gamma * key.square().sum(-1))


def test_distance_of_sinusoids():
    gamma, n = 0.2, 20
    omega, amplitude = torch.rand(2, 6, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64)[:, None]
    positions = torch.cat([amplitude * torch.sin(omega * t), amplitude * torch.cos(omega * t)], -1)[
        None, None
    ]
    lag = (t - t.T)[..., None]
    squared = (2 * amplitude**2 * (1 - torch.cos(omega * lag))).sum(-1)
    equal(kernels.Gaussian((2 * gamma) ** -0.5).log(positions, positions)[0, 0], -gamma * squared)


def test_a_term_of_the_bank_is_a_product_of_our_kernels():
    alpha, sigma, length, tau, n = 0.8, 1.3, 25.0, 3.0, 40
    bank = kernels.DecayingPeriodicBank(
        1, 1, alpha=alpha, sigma=sigma, length=length, tau=(tau, tau)
    ).double()
    place = torch.arange(n, dtype=torch.float64)[None, None, :, None]
    term = kernels.Laplace(length) * kernels.Periodic(1 / alpha, period=math.pi * tau)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    ours = bank.log(place, place, lag)
    # The bank's parameters are made in float32 and so carry its rounding.
    torch.testing.assert_close(ours, sigma**2 * term(place, place), rtol=1e-5, atol=1e-6)
    assert sum(parameter.numel() for parameter in kernels.DecayingPeriodicBank(1).parameters()) == 4 * 64
    content = torch.randn(1, 1, n, 8, dtype=torch.float64)
    product = kernels.ExpDot() * bank
    equal(product.log(content, content, lag), content @ content.mT / 8**0.5 + ours)


def test_karat_starts_from_our_score():
    query, key = torch.randn(2, 1, 2, 6, 16, dtype=torch.float64)
    scores = kernels.ExpDot().log(query, key)
    equal(scores, query @ key.mT / 4)
    equal(normalizers.RowSum()(scores), scores.softmax(-1))
