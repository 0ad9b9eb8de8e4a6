"""Every set is asked in the words of CORE, on rows of the sets' layout that are made up."""

import json
from pathlib import Path

import pytest

from gkalib.evaluation import SIX, TASKS, Choice, Completion, Schema, answers
from gkalib.evaluation.tasks import Task
from tests.data.test_loaders import need
from tests.evaluation.toys import preferring

ROWS = {
    "hellaswag": {"context": "Rowing: A boat lies still. She", "options": ["rows.", "sleeps."], "answer": 0},
    "copa": {"premise": "It rained.", "asks": "cause", "options": ["Clouds came.", "I slept."], "answer": 0},
    "openbookqa": {"question": "Ice is", "options": ["cold", "hot"], "answer": 0},
    "lambada": {"passage": " He met his old ", "answer": "friend"},
    "winograd": {"contexts": ["The cat ran because the cat", "The cat ran because the dog"]}
    | {"continuation": "barked.", "answer": 1},
    "winogrande": {"sentence": "Ann paid Sue as _ had worked.", "options": ["Ann", "Sue"], "answer": 1},
    "jeopardy": {"category": "RIVERS", "question": "It flows through Paris", "answer": "the Seine"},
    "arc_easy": {"question": "What is ice?", "options": ["water", "iron", "salt"], "answer": 0},
    "arc_challenge": {"question": "What is ice?", "options": ["water", "iron", "salt"], "answer": 0},
    "commonsense_qa": {"question": "Where is ice?", "options": ["sun", "pole", "oven"], "answer": 1},
    "piqa": {"goal": "make ice", "options": ["freeze water ", "boil water"], "answer": 0},
    "squad": {"passage": "Ice is cold.", "question": "What is cold?", "answer": "Ice"},
    "coqa": {"story": "Tom slept.", "earlier": [["Who?", "Tom"]], "question": "What did he?"}
    | {"answer": "slept"},
    "boolq": {"title": "Ice", "passage": "Ice is cold.", "question": "is ice cold?", "answer": 1},
}
SOLVED = {
    "hellaswag": "Rowing: A boat lies still. She rows.",
    "copa": "It rained, because clouds came.",
    "openbookqa": "Ice is cold",
    "lambada": "He met his old friend",
    "winograd": "The cat ran because the dog barked.",
    "winogrande": "Ann paid Sue as Sue had worked.",
    "jeopardy": "RIVERS: It flows through Paris\nAnswer: the Seine",
    "arc_easy": "Question: What is ice?\nAnswer: water",
    "arc_challenge": "Question: What is ice?\nAnswer: water",
    "commonsense_qa": "Question: Where is ice?\nChoices:\nA. sun\nB. pole\nC. oven\nAnswer: B",
    "piqa": "Question: make ice\n\nAnswer: freeze water",
    "squad": "Context: Ice is cold.\nQuestion: What is cold?\nAnswer: Ice",
    "coqa": "Below is a story followed by a series of related questions. Please answer the final question by "
    "referring to the story and the previous questions.\nStory: Tom slept.\nPreceding questions:\n"
    "Question: Who?\nAnswer: Tom\n\nFinal question:\nQuestion: What did he?\nAnswer: slept",
    "boolq": "Passage: Ice is cold.\nQuestion: is ice cold?\nAnswer: yes",
}
WINOGRAD = Path(__file__).parents[2] / "data" / "fixtures" / "winograd-sample.json"


@pytest.mark.parametrize("name", TASKS)
def test_a_question_reads_as_in_core(name):
    task = TASKS[name]
    item = task.item(ROWS[task.data])
    assert item.solved(task.delimiter) == SOLVED[task.data]


@pytest.mark.parametrize("name", TASKS)
def test_the_options_of_a_question_differ_where_they_should(name):
    task = TASKS[name]
    item = task.item(ROWS[task.data])
    prompts = item.prompts(task.delimiter)
    contexts, continuations = {one for one, _ in prompts}, {one for _, one in prompts}
    expected = {Choice: (1, len(prompts)), Schema: (len(prompts), 1), Completion: (1, 1)}[type(item)]
    assert (len(contexts), len(continuations)) == expected
    assert all(one.startswith(" ") and not context.endswith(" ") for context, one in prompts)


def test_guessing_is_one_over_the_options_but_where_one_answer_is_more_frequent():
    for name, task in TASKS.items():
        item = task.item(ROWS[task.data])
        options = {"hellaswag": 4, "openbookqa": 4, "commonsense_qa": 5}.get(task.data, 0)
        if name.startswith("arc"):
            options = 4
        if isinstance(item, Completion):
            assert task.baseline == 0
        elif name == "boolq":
            assert task.baseline == 0.62
        else:
            assert task.baseline == 1 / (options or len(item.prompts(" ")))


def test_the_six_are_tasks_without_examples():
    assert len(SIX) == 6
    assert {TASKS[name].shots for name in SIX} == {0}
    assert {TASKS[name].shots for name in TASKS if name not in SIX} == {0, 10}
    assert len(TASKS) == 15


def test_real_schemas_are_scored(monkeypatch):
    """A model to which only the first reading's noun suggests fear answers the first pair as people do."""
    found = json.loads(WINOGRAD.read_text(encoding="utf-8"))["rows"]
    task = TASKS["winograd"]
    items = [task.item(row) for row in found]
    monkeypatch.setattr(Task, "items", lambda task, limit=None: items)
    model, words = preferring({" councilmen": [" feared"], " demonstrators": [" advocated"]}, context=64)
    given = answers(model, words, task)
    assert [answer.right for answer in given[:2]] == [True, True]
    # Where the model knows nothing all readings are equal, and the first is taken.
    assert all(answer.chosen == 0 for answer in given[2:])
    assert [answer.right for answer in given[2:]] == [item.gold == 0 for item in items[2:]]


@pytest.mark.parametrize("name", TASKS)
def test_every_real_question_can_be_asked(name):
    task = TASKS[name]
    need(task.data)
    items = task.items()
    assert len(items) >= 100
    for item in items:
        prompts = item.prompts(task.delimiter)
        assert 0 <= item.gold < len(prompts)
        assert all(context.strip() and one.strip() for context, one in prompts)
