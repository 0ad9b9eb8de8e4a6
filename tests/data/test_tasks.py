"""The evaluation sets have the sizes that their authors state, and every answer is one of the options."""

import pytest

from gkalib.data import benchmark
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


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_every_question_has_its_answer(name, size):
    need(name)
    rows = benchmark(name)
    assert len(rows) == size
    for row in rows:
        options = row.get("options") or row.get("contexts")
        if name == "boolq":
            options = ["no", "yes"]
        if options:
            assert row["answer"] in range(len(options))
            assert all(option.strip() for option in options)
        else:
            assert row["answer"].strip()
    if options:
        # No right answer is given away by its place: each place has its share.
        share = sum(row["answer"] == 0 for row in rows) / size
        assert 0.4 < share * len(options) < 1.6


def test_a_gap_is_a_word_of_its_own():
    need("winogrande")
    for row in benchmark("winogrande"):
        before, after = row["sentence"].split("_")
        assert before.endswith((" ", '"', "'", "(")) or not before
        assert after.startswith(" ")


def test_a_conversation_grows_turn_by_turn():
    need("coqa")
    rows = benchmark("coqa")[:12]
    assert [len(row["earlier"]) for row in rows] == list(range(12))
    assert rows[3]["earlier"][2] == [rows[2]["question"], rows[2]["answer"]]


def test_unknown_questions_are_refused():
    with pytest.raises(ValueError, match="datasets: no questions named 'mmlu'"):
        benchmark("mmlu")
