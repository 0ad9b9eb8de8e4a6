"""The evaluation sets have the sizes that their authors state, and every answer is one of the options."""

import pytest

from gkalib.data.tasks import _SOURCES, _winograd

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
    return (_winograd if name == "winograd" else _SOURCES[name][1])(DOCS[name])


@pytest.mark.parametrize("name", DOCS)
def test_a_question_reads_as_in_core(name):
    delimiter = "\nAnswer: " if name in ("jeopardy", "arc_easy", "arc_challenge", "piqa", "boolq") else " "
    assert question(name).solved(delimiter) == SOLVED[name]
