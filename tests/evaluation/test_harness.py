"""The harness finds the likelihoods and accuracies that our scorer finds, through its own code and models."""

import json
import random

import pytest
import torch

from gkalib.data.tokenizers import Characters, train_bpe
from gkalib.evaluation import Choice, Completion, Schema, answers, rows, score
from gkalib.evaluation.harness import harness
from gkalib.evaluation.tasks import Task
from gkalib.models import gpt

lm_eval = pytest.importorskip("lm_eval", reason="the harness is not installed: pip install gkalib[hub]")
NOUNS, VERBS = ("a dog", "the cat", "an old man", "Susan", "the river"), ("runs away", "sings", "is in bloom")


def sentences(seed, count):
    generator = random.Random(seed)
    return [
        f"{generator.choice(NOUNS)} {generator.choice(VERBS)} and {generator.choice(NOUNS)} "
        f"{generator.choice(VERBS)}."
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def tokenizer():
    """Byte pairs learned on the sentences, so that words are one to three tokens."""
    return train_bpe(sentences(0, 200), 300)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(1)
    made = gpt("gpa-dickens", vocab_size=tokenizer.vocab_size, context=24, dim=32, depth=2, num_heads=2)
    with torch.no_grad():
        made.head.weight.mul_(8)  # likelihoods of options far enough apart to choose between them
    return made


def choices(count=40):
    generator = random.Random(5)
    made = []
    for context in sentences(6, count):
        options = generator.sample([f"{noun} {verb}" for noun in NOUNS for verb in VERBS], 4)
        made.append(Choice(context[:-1] + " because", tuple(options), generator.randrange(4)))
    return made


def requests_of(items):
    """What the harness would make of them, option by option."""
    from lm_eval.api.instance import Instance

    return [
        Instance("loglikelihood", {}, prompt, place)
        for item in items
        for place, prompt in enumerate(item.prompts(" "))
    ]


def test_the_harness_and_our_scorer_find_the_same_likelihoods(model, tokenizer):
    """All three kinds of questions; of 160 and more texts some are longer than the context of 24 tokens."""
    items = [
        *choices(),
        Schema(("the dog barks as the dog", "the dog barks as the cat"), "is old.", 0),
        Completion("an old man runs", "away"),
        Choice(
            "Susan sings so Susan sings so Susan sings so Susan sings so Susan sings so", ("a", "b c d"), 0
        ),
    ]
    made = [row for item in items for row in rows(item, tokenizer)]
    assert max(len(row.tokens) for row in made) > 25
    ours = score(model, made)
    theirs = harness(model, tokenizer).loglikelihood(requests_of(items), disable_tqdm=True)
    assert len(ours) == len(theirs) == 40 * 4 + 2 + 1 + 2
    assert max(abs(entry.total - total) for entry, (total, _) in zip(ours, theirs, strict=True)) < 1e-5


def test_the_harness_finds_our_accuracy_in_a_task_of_its_own(model, tokenizer, tmp_path, monkeypatch):
    """A task as its users write one: a file of questions and a template; accuracy by the sum."""
    from lm_eval.tasks import TaskManager

    items = choices()
    lines = [
        {"context": item.context, "options": [f" {entry}" for entry in item.options], "gold": item.gold}
        for item in items
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    task = {
        "task": "toy",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}, "cache_dir": str(tmp_path / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{options}}",
        "doc_to_target": "{{gold}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    manager = TaskManager(include_defaults=False)
    actual = lm_eval.simple_evaluate(
        harness(model, tokenizer), tasks=[task], task_manager=manager, bootstrap_iters=0
    )
    monkeypatch.setattr(Task, "items", lambda task, limit=None: items)
    given = answers(model, tokenizer, Task("toy", "toy", 0, 0.25))
    best = [max(range(4), key=lambda option: entry.scores[option].total) for entry in given]
    accuracy = sum(entry == item.gold for entry, item in zip(best, items, strict=True)) / len(items)
    assert actual["results"]["toy"]["acc,none"] == pytest.approx(accuracy)
    assert 0 < accuracy < 1
    likelihoods = [
        [float(entry[0][0]) for entry in sample["resps"]]
        for sample in sorted(actual["samples"]["toy"], key=lambda entry: entry["doc_id"])
    ]
    ours = [[entry.total for entry in answer.scores] for answer in given]
    assert torch.tensor(likelihoods) == pytest.approx(torch.tensor(ours), abs=1e-5)


def test_a_long_text_is_read_window_by_window(model, tokenizer):
    """Every token is predicted once, in the first window from its beginning, in the last from a full one."""
    from lm_eval.api.instance import Instance

    text = " ".join(sentences(9, 6))
    actual = harness(model, tokenizer).loglikelihood_rolling(
        [Instance("loglikelihood_rolling", {}, (text,), 0)]
    )
    ids = [int(number) for number in tokenizer.encode(text)]
    assert len(ids) > 2 * 24
    total, done = 0.0, 0
    while done < len(ids):
        end = min(done + 24, len(ids))
        read = [tokenizer.bos, *ids[: end - 1]] if done == 0 else ids[max(0, end - 25) : end - 1]
        logs = torch.log_softmax(model(torch.tensor([read])).detach()[0], -1)
        for place in range(done, end):
            total += float(logs[place - end, ids[place]])
        done = end
    assert actual[0] == pytest.approx(total, abs=1e-3)


def test_what_is_written_ends_before_a_word_that_ends_it(model, tokenizer):
    from lm_eval.api.instance import Instance

    context, count = "the cat sings and", 10
    ids = torch.tensor([[tokenizer.bos, *map(int, tokenizer.encode(context))]])
    whole = model.generate(ids, count, temperature=0.0)[0, ids.shape[1] :].tolist()
    expected = tokenizer.decode(whole)
    stop = expected[4:6]
    asked = [
        Instance("generate_until", {}, (context, {"until": [], "max_gen_toks": count}), 0),
        Instance("generate_until", {}, (context, {"until": [stop], "max_gen_toks": count}), 0),
    ]
    actual = harness(model, tokenizer).generate_until(asked)
    assert actual == [expected, expected[: expected.index(stop)]]
    long = [Instance("generate_until", {}, (context, {"max_gen_toks": 40}), 0)]
    with pytest.warns(UserWarning, match="the window slides"):  # the whole prompt is read, and all 40 come
        whole = model.generate(ids, 40, temperature=0.0)[0, ids.shape[1] :].tolist()
    with pytest.warns(UserWarning, match="the window slides"):
        assert harness(model, tokenizer).generate_until(long) == [tokenizer.decode(whole)]
    drawn = [Instance("generate_until", {}, (context, {"do_sample": True}), 0)]
    with pytest.raises(ValueError, match="evaluate: text is written most probable token by token"):
        harness(model, tokenizer).generate_until(drawn)


def test_a_tokenizer_without_a_first_token_is_heard_too():
    letters = Characters("abcdefgh .")
    torch.manual_seed(2)
    model = gpt("gpa-dickens", vocab_size=letters.vocab_size, context=16, dim=32, depth=1, num_heads=2)
    items = [Choice("abc", ("de", "fgh"), 0)]
    theirs = harness(model, letters).loglikelihood(requests_of(items), disable_tqdm=True)
    ours = score(model, [row for item in items for row in rows(item, letters)])
    assert [total for total, _ in theirs] == pytest.approx([entry.total for entry in ours], abs=1e-5)
