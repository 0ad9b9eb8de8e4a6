"""Drawn sequences: every query has its answer in the context, and points lie on their line."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from chapters.experiments.recall import IGNORED
from gkalib.experiments import Study, evaluate, fit, task


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("pairs", [1, 4, 16])
def test_every_query_has_its_answer_in_the_context_and_nothing_else_is_asked(pairs):
    learned = task("recall", test=4)
    inputs, labels = learned.sequences(pairs, 32, _generator())
    keys, values = inputs[:, : 2 * pairs : 2], inputs[:, 1 : 2 * pairs : 2]
    assert ((keys >= 1) & (keys <= 32)).all() and ((values >= 33) & (values <= 64)).all()
    for row, asked, own, told in zip(inputs, labels, keys, values, strict=True):
        pair = dict(zip(own.tolist(), told.tolist(), strict=True))
        places = (asked != IGNORED).nonzero()[:, 0]
        assert len(pair) == len(set(pair.values())) == len(places) == pairs
        assert (places >= 2 * pairs).all() and sorted(row[places].tolist()) == sorted(pair)
        assert [pair[key] for key in row[places].tolist()] == asked[places].tolist()
        blank = torch.ones(learned.context - 2 * pairs, dtype=torch.bool)
        blank[places - 2 * pairs] = False
        assert not row[2 * pairs :][blank].any()


def test_a_batch_has_as_many_pairs_as_one_of_those_given_and_the_held_out_the_most():
    learned = task("recall", pairs=(2, 4, 8), context=32, test=16)
    batches = learned.batches(8, _generator())
    counts = [(next(batches)[1] != IGNORED).sum(-1) for _ in range(40)]
    assert all((one == one[0]).all() for one in counts)
    assert {int(one[0]) for one in counts} == {2, 4, 8}
    inputs, labels = learned.held_out
    assert ((labels != IGNORED).sum(-1) == 8).all() and learned.count(labels) == 16 * 8
    again = task("recall", pairs=(2, 4, 8), context=32, test=16)
    assert torch.equal(again.held_out[0], inputs)
    again.choose()
    assert not torch.equal(again.held_out[0], inputs)


class Looking(torch.nn.Module):
    """Finds a token where it stood first and answers what came after it there."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        first = (ids[:, :, None] == ids[:, None]).float().argmax(-1)
        after = ids.gather(1, (first + 1).clamp(max=ids.shape[1] - 1))
        return 100.0 * one_hot(after, 65)


def test_only_queries_count():
    learned = task("recall", test=16)
    losses, right = learned.outcomes(Looking())
    assert losses.shape == right.shape == (16,)
    assert (right == 1).all() and losses.max() < 1e-6
    inputs, labels = learned.held_out
    outputs = torch.zeros(*inputs.shape, 65)
    assert learned.nats(outputs, labels).item() == pytest.approx(16 * 16 * math.log(65), rel=1e-5)
    assert learned.baseline().mean().item() == pytest.approx(math.log(32))


def test_a_token_is_read_with_the_one_before_it():
    torch.manual_seed(0)
    model = task("recall", test=1).model("softmax")
    ids = torch.tensor([[3, 40, 5]])
    joined, alone, before = model.embedding(ids)[0], model.embedding.weight, model.embedding.previous.weight
    torch.testing.assert_close(joined, torch.stack([alone[3], alone[40] + before[3], alone[5] + before[40]]))


def test_more_pairs_than_the_context_holds_are_refused():
    with pytest.raises(ValueError, match=r"^recall: 17 pairs and their queries need 68 of 64 places"):
        task("recall", pairs=(17,))


def test_points_lie_on_one_line_and_queries_do_not_tell_their_value():
    learned = task("in-context", dim=3, pairs=10, test=4)
    inputs, labels = learned.draw(32, _generator())
    x, told, asked = inputs[..., :3], inputs[..., 3], inputs[..., 4]
    assert torch.equal(asked, (torch.arange(20) % 2).float().expand(32, 20))
    assert not told[:, 1::2].any() and labels.shape == (32, 10)
    line = torch.linalg.lstsq(x[:, ::2], told[:, ::2, None]).solution
    torch.testing.assert_close((x[:, 1::2] @ line)[..., 0], labels, rtol=1e-3, atol=1e-4)


def test_least_squares_has_the_error_of_theory():
    learned = task("in-context", dim=8, pairs=12, test=2000)
    inputs, labels = (part.double() for part in learned.held_out)
    x, told = inputs[:, ::2, :8], inputs[:, ::2, 8]
    for pairs in (1, 4, 7, 8, 12):
        read = x[:, :pairs]
        gram = read @ read.mT + 1e-9 * torch.eye(pairs, dtype=torch.float64)
        line = read.mT @ torch.linalg.solve(gram, told[:, :pairs, None])
        error = ((inputs[:, 2 * pairs - 1, None, :8] @ line)[:, 0, 0] - labels[:, pairs - 1]).square()
        left = max(0.0, 1 - pairs / 8)
        assert abs(error.mean() - left) < 5 * error.std() / math.sqrt(len(error)) + 1e-3, pairs
    baseline = learned.baseline()
    assert abs(baseline.mean() - 1) < 5 * baseline.std() / math.sqrt(len(baseline))


@pytest.mark.parametrize(("name", "data"), [("recall", {"test": 8}), ("in-context", {"test": 8})])
def test_both_are_learned_by_the_loop_of_all_others(name, data):
    study = Study(
        experiment="toy", arm="one", task=name, attention="softmax", data=data, steps=3, warmup=1, batch=4
    )
    model, learned, rows, _ = fit(study)
    metrics = evaluate(model, learned)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert ("accuracy" in metrics) == (name == "recall")
    assert math.isfinite(metrics["val_loss"]) and math.isfinite(metrics["standard_errors"])
