"""The scorer against likelihoods written down: each rule where another would answer otherwise."""

import math
import random

import pytest
import torch

from gkalib.evaluation import (
    Answer,
    Choice,
    Completion,
    Row,
    Schema,
    TaskResult,
    answers,
    centered,
    core,
    evaluate,
    rows,
    score,
    scorer,
    tasks,
)
from gkalib.evaluation.scorer import BLOCK, result_of
from gkalib.evaluation.tasks import TASKS, Task, drawn
from gkalib.models import gpt
from tests.evaluation.toys import Words, preferring


def asked(monkeypatch, items, **fields):
    """A task of the given questions, in the given order."""
    monkeypatch.setattr(Task, "items", lambda task, limit=None: list(items)[:limit])
    return Task("toy", "toy", **{"shots": 0, "baseline": 0.5, **fields})


def test_a_choice_is_made_by_the_mean_and_not_by_the_sum(monkeypatch):
    """Of seven words, four favored: the mean prefers them, the sum the single word that is not favored."""
    model, words = preferring({None: [" big", " red", " dogs", " bark"]})
    item = Choice("All", ("cats", "big red dogs bark"), gold=1)
    answer = answers(model, words, asked(monkeypatch, [item]))[0]
    short, long = answer.scores
    assert (answer.chosen, answer.right) == (1, True)
    assert short.total > long.total
    assert short.mean < long.mean
    even = math.log(1 / (words.vocab_size + 4))
    assert short.total == pytest.approx(even, rel=1e-6)
    assert long.total == pytest.approx(4 * (even + math.log(2)), rel=1e-6)


def test_words_that_all_options_begin_with_are_not_compared(monkeypatch):
    """The common word is favored; counted in, it would help the shorter option more."""
    model, words = preferring({None: [" the", " deep", " sea"]})
    item = Choice("In", ("the red", "the deep blue cold"), gold=1)
    answer = answers(model, words, asked(monkeypatch, [item]))[0]
    even = math.log(1 / (words.vocab_size + 3))
    assert answer.scores[0].mean == pytest.approx(even, rel=1e-6)
    assert answer.scores[1].mean == pytest.approx(even + math.log(2) / 3, rel=1e-6)
    assert answer.right
    # With the common word the means would be even + ln 2 / 2 for both, and the first would be taken.
    assert answer.scores[0].total / 2 == pytest.approx(answer.scores[1].total / 4, rel=1e-6)


def test_one_option_that_begins_another_still_has_its_last_word_compared():
    actual = rows(Choice("Go", ("far", "far away"), 0), Words())
    assert [row.region for row in actual] == [2, 2]
    assert [len(row.tokens) for row in actual] == [3, 4]


def test_a_schema_is_decided_by_the_words_after_the_context_that_fits(monkeypatch):
    """Each context's own words do not count: the second is the more likely one, and the first is right."""
    follows = {" trophy": [" is"], None: [" suitcase"]}
    model, words = preferring(follows)
    item = Schema(("The trophy", "The suitcase"), "is large.", gold=0)
    answer = answers(model, words, asked(monkeypatch, [item]))[0]
    assert answer.right
    first, second = answer.scores
    assert first.total > second.total
    even = math.log(1 / (words.vocab_size + 1))
    assert first.mean == pytest.approx((2 * even + math.log(2)) / 2, rel=1e-6)
    assert second.mean == pytest.approx(even, rel=1e-6)


def test_a_completion_needs_every_token_to_be_the_most_probable_one(monkeypatch):
    model, words = preferring({" old": [" man"], " man": [" and"], " and": [" the"]})
    right = Completion("the old", "man and the")
    last = Completion("the old", "man and sea")
    first = Completion("the old", "dog and the")
    given = answers(model, words, asked(monkeypatch, [right, last, first]))
    assert [answer.right for answer in given] == [True, False, False]
    assert given[0].scores[0].greedy


def test_white_space_before_a_continuation_belongs_to_it():
    words = Words()
    row = rows(Completion("  so long \n", "farewell"), words)[0]
    assert words.decode(row.tokens) == "so long farewell"
    assert words.decode(row.tokens[row.begin :]) == " farewell"
    row = rows(Choice("Question: why?", ("no",), 0), words, delimiter="\nAnswer: ")[0]
    assert words.decode(row.tokens[row.begin :]) == " no"


def test_a_long_text_is_read_from_its_end(monkeypatch):
    """What the model reads ends before the last word, which it only predicts."""
    model, words = preferring({None: [" end"]}, context=4)
    short, long = Completion("x c d e", "end"), Completion("a b c d e", "end")
    given = answers(model, words, asked(monkeypatch, [short, long, Completion("d e", "end")]))
    read = [words.decode(line) for ids in model.read for line in ids if ids.shape[1] <= 4]
    assert sorted(read) == [" b c d e", "d e", "x c d e"]
    assert given[0].scores[0].mean == pytest.approx(given[2].scores[0].mean)


def test_a_continuation_longer_than_the_context_is_scored_as_far_as_it_is_read():
    model, words = preferring({None: [" e"]}, context=3)
    row = rows(Completion("a", "b c d e"), words)[0]
    actual = score(model, [row])[0]
    even = math.log(1 / (words.vocab_size + 1))
    assert actual.total == pytest.approx(3 * even + math.log(2), rel=1e-6)


def test_scores_do_not_depend_on_what_is_scored_beside_them():
    torch.manual_seed(3)
    model = gpt("gpa-dickens", vocab_size=50, context=24, dim=32, depth=2, num_heads=2)
    generator = random.Random(0)
    sequences = []
    for _ in range(40):
        size = generator.randrange(3, 40)
        begin = generator.randrange(1, size)
        sequences.append(
            Row([generator.randrange(50) for _ in range(size)], begin, generator.randrange(1, size))
        )
    together = score(model, sequences, tokens=200)
    for row, actual in zip(sequences, together, strict=True):
        alone = score(model, [row], tokens=1)[0]
        assert actual == pytest.approx(alone, abs=1e-5)
        tokens, begin = row.tokens[-25:], max(1, row.begin - max(0, len(row.tokens) - 25))
        logs = torch.log_softmax(model(torch.tensor([tokens[:-1]]))[0].detach(), -1)
        total = sum(float(logs[place - 1, tokens[place]]) for place in range(begin, len(tokens)))
        assert actual.total == pytest.approx(total, abs=1e-4)
    assert [module.training for module in model.modules()] == [True] * len(list(model.modules()))


def test_centering():
    assert centered(0.25, 0.25) == 0
    assert centered(1.0, 0.62) == 1
    assert centered(0.5, 0.25) == pytest.approx(1 / 3)
    assert centered(0.0, 0.5) == -1
    result = TaskResult("a", 0.5, 0.03, 0.25, 100, 0, 1.0)
    assert result.centered == pytest.approx(1 / 3)
    assert result.centered_error == pytest.approx(0.03 / 0.75)


def test_core_is_the_mean_of_centered_accuracies_with_its_error():
    first = TaskResult("a", 0.5, 0.03, 0.25, 100, 0, 1.0)
    second = TaskResult("b", 0.75, 0.02, 0.5, 100, 10, 1.0)
    actual = core([first, second])
    assert actual.mean == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert actual.error == pytest.approx(math.hypot(0.03 / 0.75, 0.02 / 0.5) / 2)
    assert actual.tasks == 2


def test_the_standard_error_is_that_of_the_mean_of_zeros_and_ones():
    item = Completion("a", "b")
    given = [Answer(item, (), 0, right) for right in (True, False, False, False)]
    actual = result_of(TASKS["copa"], given, seconds=2.0)
    spread = torch.tensor([1.0, 0, 0, 0]).std(unbiased=True) / 2
    assert (actual.accuracy, actual.items) == (0.25, 4)
    assert actual.error == pytest.approx(float(spread))


def test_examples_are_other_questions_and_always_the_same(monkeypatch):
    items = [Completion(f"question {place}", f"answer {place}") for place in range(30)]
    for index in (0, 7, 29):
        examples = drawn(items, index, 10)
        assert items[index] not in examples
        assert len(set(examples)) == 10
        others = [place for place in range(30) if place != index]
        expected = random.Random(1234 + index).sample(others, 10)
        assert examples == [items[place] for place in expected]
    model, words = preferring({None: []}, context=200)
    answers(model, words, asked(monkeypatch, items[:3], shots=2))
    read = {words.decode(line) for ids in model.read for line in ids}
    for index in range(3):
        places = [items.index(example) for example in drawn(items[:3], index, 2)]
        before = "".join(f"question {place} answer {place}\n\n" for place in places)
        assert any(text.startswith(f"{before}question {index}") for text in read)


def test_questions_of_several_blocks_keep_their_order_and_their_examples(monkeypatch):
    items = [Completion(f"q{place % 9}", f"a{place % 5}") for place in range(BLOCK + 3)]
    model, words = preferring({}, context=16)
    given = answers(model, words, asked(monkeypatch, items, shots=1))
    assert [answer.item for answer in given] == items
    seen = []
    monkeypatch.setattr(
        "gkalib.evaluation.scorer.drawn", lambda items, index, shots: seen.append(index) or []
    )
    answers(model, words, asked(monkeypatch, items))
    assert seen == list(range(BLOCK + 3))


def test_questions_are_shuffled_before_they_are_limited(monkeypatch):
    questions = [Schema((f"a{n}", f"b{n}"), "c", n % 2) for n in range(40)]
    monkeypatch.setattr(tasks, "benchmark", lambda name: list(questions))
    expected = list(range(40))
    random.Random(1337).shuffle(expected)
    assert [item.contexts[0] for item in TASKS["winograd"].items(7)] == [f"a{n}" for n in expected[:7]]
    assert len(TASKS["winograd"].items()) == 40


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_blocks_of_all_tasks_and_what_they_sum_is_what_one_finds(size, monkeypatch):
    model, words = preferring({None: [" a"]})
    items = [Choice("Say", (f"a{' a' * (n % 3)}", "b"), gold=n % 2) for n in range(7)]
    asked(monkeypatch, items)
    monkeypatch.setattr(scorer, "BLOCK", 2)
    names = ["copa", "winograd"]
    alone = evaluate(model, words, names, shots=2)
    assert [result.items for result in alone] == [7, 7] and 0 < alone[0].accuracy < 1
    parts, model.read = [], []
    for rank in range(size):
        evaluate(
            model,
            words,
            names,
            shots=2,
            share=(rank, size),
            total=lambda result: parts.append(result) or result,
        )
        if not rank:
            asked_of_the_first = sum(map(len, model.read))
    assert asked_of_the_first == pytest.approx(28 / size, abs=4)
    sums = sum(part[:, :2] for part in parts).tolist()
    assert sums == [[result.items, result.items * result.accuracy] for result in alone]


def test_a_model_that_cannot_be_asked_is_refused(monkeypatch):
    model, words = preferring({})
    model.config.vocab_size = 60
    with pytest.raises(ValueError, match="'words' has 64 tokens and the model 60: they do not belong"):
        answers(model, words, asked(monkeypatch, [Completion("a", "b")]))
    del model.config.context
    with pytest.raises(ValueError, match="evaluate: the model does not say how much it reads"):
        score(model, [Row([1, 2], 1, 1)])
    broken = gpt("gpa-dickens", vocab_size=50, context=24, dim=32, depth=1, num_heads=2)
    torch.nn.init.constant_(broken.head.bias, math.nan)
    with pytest.raises(ValueError, match="evaluate: the model's logits are not numbers"):
        score(broken, [Row([1, 2], 1, 1)])
    words.bos = None
    with pytest.raises(ValueError, match="has no token to begin with"):
        rows(Completion("", "b"), words)
