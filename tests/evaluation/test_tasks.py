"""Every task has its form of question, its guess and its examples, on made-up and on real questions."""

import json
from pathlib import Path

import pytest

from gkalib.evaluation import TASKS, Choice, Completion, Schema, answers
from gkalib.evaluation.tasks import Task
from tests.data.test_tasks import question
from tests.evaluation.toys import preferring
from tests.need import marks

WINOGRAD = Path(__file__).parents[2] / "data" / "fixtures" / "winograd-sample.json"


@pytest.mark.parametrize("name", TASKS)
def test_the_options_of_a_question_differ_where_they_should(name):
    task = TASKS[name]
    item = question(task.data)
    prompts = item.prompts(task.delimiter)
    contexts, continuations = {one for one, _ in prompts}, {one for _, one in prompts}
    expected = {Choice: (1, len(prompts)), Schema: (len(prompts), 1), Completion: (1, 1)}[type(item)]
    assert (len(contexts), len(continuations)) == expected
    assert all(one.startswith(" ") and not context.endswith(" ") for context, one in prompts)


def test_guessing_is_one_over_the_options_but_where_one_answer_is_more_frequent():
    for name, task in TASKS.items():
        item = question(task.data)
        options = {"hellaswag": 4, "openbookqa": 4, "commonsense_qa": 5}.get(task.data, 0)
        if name.startswith("arc"):
            options = 4
        if isinstance(item, Completion):
            assert task.baseline == 0
        elif name == "boolq":
            assert task.baseline == 0.62
        else:
            assert task.baseline == 1 / (options or len(item.prompts(" ")))


def test_the_first_six_are_tasks_without_examples():
    shots = [task.shots for task in TASKS.values()]
    assert len(shots) == 15 and set(shots[:6]) == {0} and set(shots[6:]) == {0, 10}


def test_real_schemas_are_scored(monkeypatch):
    """A model to which only the first reading's noun suggests fear answers the first pair as people do."""
    actual = json.loads(WINOGRAD.read_text(encoding="utf-8"))["rows"]
    task = TASKS["winograd"]
    items = [Schema(tuple(row["contexts"]), row["continuation"], row["answer"]) for row in actual]
    monkeypatch.setattr(Task, "items", lambda task, limit=None: items)
    model, words = preferring({" councilmen": [" feared"], " demonstrators": [" advocated"]}, context=64)
    given = answers(model, words, task)
    assert [answer.right for answer in given[:2]] == [True, True]
    # Where the model knows nothing all readings are equal, and the first is taken.
    assert all(answer.chosen == 0 for answer in given[2:])
    assert [answer.right for answer in given[2:]] == [item.gold == 0 for item in items[2:]]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(task.data)) for name, task in TASKS.items()])
def test_every_real_question_can_be_asked(name):
    task = TASKS[name]
    items = task.items()
    assert len(items) >= 100
    for item in items:
        prompts = item.prompts(task.delimiter)
        assert 0 <= item.gold < len(prompts)
        assert all(context.strip() and one.strip() for context, one in prompts)
