"""On a card ``auto`` takes a fused operation where a run has shown that it is right there, and no other."""

from dataclasses import replace

import pytest
import torch

from gkalib import kernels, masks, normalizers
from gkalib.smoothing import api
from gkalib.smoothing.fused import Fused, operation_of, proved
from gkalib.smoothing.fused.proved import Proof, why_unproved
from gkalib.smoothing.problem import make_problem

CARD, TYPE = "A card", "bfloat16"


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A file of proofs for a card, of which a test says what it holds."""
    path = tmp_path / "proved.json"
    monkeypatch.setenv("GKALIB_PROVED", str(path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: CARD)

    def hold(*proofs: Proof) -> None:
        path.write_text(proved.text(proofs))
        proved.forget()

    hold()
    yield hold
    monkeypatch.undo()
    proved.forget()


def proof(operation: str = "gka", direction: str = "forward", **changes: str) -> Proof:
    return replace(Proof(operation, direction, CARD, TYPE, **proved.surroundings()), **changes)


def why(operation: str = "gka", backward: bool = False, dtype: torch.dtype = torch.bfloat16) -> str | None:
    return why_unproved(operation, backward, dtype, torch.device("cuda", 0))


def test_what_is_proved_may_be_taken_and_nothing_else(known):
    assert why() == "no run has shown that the forward pass of gka in bfloat16 is right on A card"
    known(proof())
    assert why() is None
    assert "forward pass of smooth" in why("smooth")
    assert "in float16" in why(dtype=torch.float16)
    assert "backward pass of gka" in why(backward=True)
    known(proof(), proof(direction="backward"))
    assert why(backward=True) is None


@pytest.mark.parametrize("changed", ["device", "programs", "blocks", "torch", "triton"])
def test_a_proof_of_other_surroundings_is_none(known, changed):
    known(proof(**{changed: "another"}))
    assert why() is not None


def test_the_answer_is_a_constant_of_a_compiled_graph(known):
    known(proof())

    def choose(x):
        return x + 1 if why_unproved("gka", False, x.dtype, x.device) is None else x - 1

    x = torch.zeros(2, dtype=torch.bfloat16)
    assert torch.compile(choose, fullgraph=True, backend="eager")(x).tolist() == [1.0, 1.0]


X = torch.randn(1, 2, 8, 16)
GAUSSIAN, EPS, UNNORMALIZED = kernels.Gaussian(2.0), normalizers.RowSum(0.5), normalizers.Unnormalized()


@pytest.mark.parametrize(
    ("operation", "inputs", "slots"),
    [
        ("gka", (X,), {"kernel": GAUSSIAN}),
        ("gka", (X, X, X), {"kernel": GAUSSIAN, "mask": masks.Causal()}),
        ("smooth", (X, X.clone()), {"kernel": GAUSSIAN}),
        ("smooth", (X, X.clone()), {}),
        ("smooth", (X,), {"kernel": GAUSSIAN, "mask": masks.KeyPadding(torch.tensor([4]))}),
        ("gka-eps", (X,), {"kernel": GAUSSIAN, "normalizer": EPS}),
        ("decode-eps", (X[:, :, :1], X), {"kernel": GAUSSIAN, "normalizer": EPS}),
        ("smooth-unnormalized", (X,), {"kernel": GAUSSIAN, "normalizer": UNNORMALIZED}),
        ("decode", (X[:, :, :1], X), {"kernel": GAUSSIAN}),
        ("decode-unnormalized", (X[:, :, :1], X), {"kernel": GAUSSIAN, "normalizer": UNNORMALIZED}),
        ("rows", (X,), {"normalizer": normalizers.RowOperator(2, 8, rank=4)}),
    ],
)
def test_which_operation_a_problem_is_proved_with(operation, inputs, slots):
    query, key, value = (*inputs, None, None)[:3]
    problem = make_problem(query, key, value, **{"kernel": kernels.ExpDot(), **slots})
    assert operation_of(problem) == operation


def test_auto_passes_over_what_is_not_proved_and_explain_says_so(monkeypatch):
    """Its machine is played here: the choice is made from what methods answer."""
    monkeypatch.setattr(api, "ON_CPU", api.ON_GPU)
    monkeypatch.setattr(Fused, "refuses", lambda self, problem: None)
    monkeypatch.setattr(Fused, "unproved", lambda self, problem: "nobody has looked")
    explanation = api.explain(X, kernel=GAUSSIAN)
    assert explanation.choice != "fused" and explanation.refusals["fused"] is None
    assert "fused      yes, but only by name: nobody has looked" in str(explanation)
    monkeypatch.setattr(Fused, "unproved", lambda self, problem: None)
    assert api.explain(X, kernel=GAUSSIAN).choice == "fused"


def test_on_a_cpu_nothing_has_to_be_proved():
    assert Fused().unproved(make_problem(X, X, X, GAUSSIAN)) is None
