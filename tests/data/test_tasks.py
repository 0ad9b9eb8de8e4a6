"""The evaluation sets have the sizes that their authors state, and every answer is one of the options."""

import pytest

from gkalib.data import benchmark
from gkalib.data.tasks import _SOURCES, _winograd
from tests.data.test_loaders import need

SIZES = {
    "hellaswag": 10_042,
    "copa": 100,
    "openbookqa": 500,
    "lambada": 5_153,
    "winogrande": 1_267,
    "piqa": 1_838,
    "arc_easy": 2_376,
    "arc_challenge": 1_172,
    "boolq": 3_270,
    "commonsense_qa": 1_221,
    "jeopardy": 2_116,
    "coqa": 7_983,
    "squad": 1_000,
    "winograd": 273,
}


ICE = {"query": "Question: What is ice?\nAnswer:", "choices": ["water", "iron", "salt"], "gold": 0}
DOCS = {
    "hellaswag": {"query": "Rowing: A boat lies still. She", "choices": ["rows.", "sleeps."], "gold": 0},
    "copa": {"premise": "It rained.", "question": "cause", "choice1": "Clouds came.", "choice2": "I slept."}
    | {"label": 0},
    "openbookqa": {"query": "Question: Ice is\nAnswer:", "choices": ["cold", "hot"], "gold": 0},
    "lambada": {"query": " He met his old ", "choices": ["friend"]},
    "winograd": {"context_options": ["The cat ran because the cat", "The cat ran because the dog"]}
    | {"continuation": "barked.", "gold": 1},
    "winogrande": {"sentence": "Ann paid Sue as _ had worked.", "option1": "Ann", "option2": "Sue"}
    | {"answer": "2"},
    "jeopardy": {
        "query": "Category: RIVERS\nQuestion: It flows through Paris\nAnswer:",
        "answer": "the Seine",
    },
    "arc_easy": ICE,
    "arc_challenge": ICE,
    "commonsense_qa": {"query": "Question: Where is ice?\nAnswer:", "choices": ["sun", "pole", "oven"]}
    | {"gold": 1},
    "piqa": {"goal": "make ice", "choices": ["freeze water ", "boil water"], "gold": 0},
    "squad": {"query": "Title: Ice\nBackground: Ice is cold.\nQuestion: What is cold?\nAnswer:"}
    | {"choices": ["Ice"]},
    "coqa": {"story": "Tom slept.", "id": "3_turn1", "question": "What did he?", "answers": ["slept"]}
    | {
        "previous_qa": [
            {"question": "Who?", "answer": "Tom"},
            {"question": "What did he?", "answer": "slept"},
        ]
    },
    "boolq": {"query": "Ice -- Ice is cold.\nQuestion: is ice cold?\nAnswer:", "choices": ["yes", "no"]}
    | {"gold": 0},
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


def question(name):
    """A made-up question of a set, out of the layout of its archive."""
    return (_winograd if name == "winograd" else _SOURCES[name].read)(DOCS[name])


@pytest.mark.parametrize("name", DOCS)
def test_a_question_reads_as_in_core(name):
    delimiter = "\nAnswer: " if name in ("jeopardy", "arc_easy", "arc_challenge", "piqa", "boolq") else " "
    assert question(name).solved(delimiter) == SOLVED[name]


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_every_question_has_its_answer(name, size):
    need(name)
    items = benchmark(name)
    assert len(items) == size
    for item in items:
        options = item.prompts(" ")
        assert item.gold in range(len(options))
        assert all(continuation.strip() for _, continuation in options)
    if len(options) > 1:
        # No right answer is given away by its place: each place has its share.
        share = sum(item.gold == 0 for item in items) / size
        assert 0.4 < share * len(options) < 1.6


def test_a_gap_is_a_word_of_its_own():
    need("winogrande")
    assert all(item.continuation[0] != " " and item.continuation for item in benchmark("winogrande"))


def test_a_conversation_grows_turn_by_turn():
    need("coqa")
    items = benchmark("coqa")[:12]
    assert [item.context.count("\nAnswer: ") for item in items] == list(range(12))
    assert f"\nAnswer: {items[2].continuation}\n" in items[3].context


def test_unknown_questions_are_refused():
    with pytest.raises(ValueError, match="datasets: no questions named 'mmlu'"):
        benchmark("mmlu")
