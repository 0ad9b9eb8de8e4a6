"""A question of each evaluation set, out of the layout of its archive, reads as in CORE."""

import pytest

from gkalib.data.tasks import _SOURCES

ICE = {"query": "Question: What is ice?\nAnswer:", "choices": ["water", "iron", "salt"], "gold": 0}
COLD = {"query": "Ice -- Ice is cold.\nQuestion: is ice cold?\nAnswer:", "choices": ["yes", "no"], "gold": 0}
WHERE = {"query": "Question: Where is ice?\nAnswer:", "choices": ["sun", "pole", "oven"], "gold": 1}
SEINE = {"query": "Category: RIVERS\nQuestion: It flows through Paris\nAnswer:", "answer": "the Seine"}
TURNS = [{"question": "Who?", "answer": "Tom"}, {"question": "What did he?", "answer": "slept"}]

# What an archive has of a question, and the question with its answer.
QUESTIONS = {
    "hellaswag": (
        {"query": "Rowing: A boat lies still. She", "choices": ["rows.", "sleeps."], "gold": 0},
        "Rowing: A boat lies still. She rows.",
    ),
    "copa": (
        {"premise": "It rained.", "question": "cause", "choice1": "Clouds came.", "choice2": "I slept."}
        | {"label": 0},
        "It rained, because clouds came.",
    ),
    "openbookqa": (
        {"query": "Question: Ice is\nAnswer:", "choices": ["cold", "hot"], "gold": 0},
        "Ice is cold",
    ),
    "lambada": ({"query": " He met his old ", "choices": ["friend"]}, "He met his old friend"),
    "winograd": (
        {"context_options": ["The cat ran because the cat", "The cat ran because the dog"]}
        | {"continuation": "barked.", "gold": 1},
        "The cat ran because the dog barked.",
    ),
    "winogrande": (
        {"sentence": "Ann paid Sue as _ had worked.", "option1": "Ann", "option2": "Sue", "answer": "2"},
        "Ann paid Sue as Sue had worked.",
    ),
    "jeopardy": (SEINE, "RIVERS: It flows through Paris\nAnswer: the Seine"),
    "arc_easy": (ICE, "Question: What is ice?\nAnswer: water"),
    "arc_challenge": (ICE, "Question: What is ice?\nAnswer: water"),
    "commonsense_qa": (WHERE, "Question: Where is ice?\nChoices:\nA. sun\nB. pole\nC. oven\nAnswer: B"),
    "piqa": (
        {"goal": "make ice", "choices": ["freeze water ", "boil water"], "gold": 0},
        "Question: make ice\n\nAnswer: freeze water",
    ),
    "squad": (
        {
            "query": "Title: Ice\nBackground: Ice is cold.\nQuestion: What is cold?\nAnswer:",
            "choices": ["Ice"],
        },
        "Context: Ice is cold.\nQuestion: What is cold?\nAnswer: Ice",
    ),
    "coqa": (
        {"story": "Tom slept.", "id": "3_turn1", "question": "What did he?", "answers": ["slept"]}
        | {"previous_qa": TURNS},
        "Below is a story followed by a series of related questions. Please answer the final question by "
        "referring to the story and the previous questions.\nStory: Tom slept.\nPreceding questions:\n"
        "Question: Who?\nAnswer: Tom\n\nFinal question:\nQuestion: What did he?\nAnswer: slept",
    ),
    "boolq": (COLD, "Passage: Ice is cold.\nQuestion: is ice cold?\nAnswer: yes"),
}


def question(name):
    """A made-up question of a set."""
    return _SOURCES[name][1](QUESTIONS[name][0])


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_reads_as_in_core(name):
    delimiter = "\nAnswer: " if name in ("jeopardy", "arc_easy", "arc_challenge", "piqa", "boolq") else " "
    assert question(name).solved(delimiter) == QUESTIONS[name][1]
