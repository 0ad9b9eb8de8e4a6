"""The table of a paper's protocol names settings of the recipe, and says why where the paper is silent."""

import csv

import pytest

from gkalib import results
from gkalib.training import recipes
from gkalib.training.protocol import HEADER, protocol

with (results.folder() / "papers" / "protocol.csv").open(encoding="utf-8", newline="") as file:
    ROWS = [*csv.DictReader(file)]


@pytest.mark.parametrize("name", sorted({row["recipe"] for row in ROWS}))
def test_every_row_names_settings_of_the_recipe_and_gives_a_reason_where_the_paper_is_silent(name):
    table = protocol(name)
    assert len(table.cells) == sum(row["recipe"] == name for row in ROWS)
    for setting, paper, ours, why in table.cells:
        assert setting and ours
        assert why or paper != "not printed", setting
    assert all(word in str(table) for word in HEADER) and "<table" in table._repr_html_()


def test_values_are_the_recipes_own_and_say_what_they_are():
    cells = {row[0]: row[2] for row in protocol("gka-imagenet-tiny").cells}
    assert cells["length"] == "214,481 steps, 1,792 a step"
    assert cells["rate"] == "rate 0.00175, 3,574 steps of warm-up, to 1e-06"
    assert cells["smoothing, repeats"] == "smoothing 0.1, repeats 3"


def test_each_paper_has_a_table_and_others_are_refused():
    assert {recipes()[row["recipe"]].paper for row in ROWS} == {"gka", "gpa", "karat", "rbfattention"}
    with pytest.raises(ValueError, match="protocol: there is no table for 'karat-imagenet'"):
        protocol("karat-imagenet")
