"""Citations by author and year in round brackets, as in "Nadaraya (1964)"."""

from dataclasses import dataclass, field

from sphinx.application import Sphinx
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle


def round_brackets() -> BracketStyle:
    """(…)."""
    return BracketStyle(left="(", right=")")


@dataclass
class Round(AuthorYearReferenceStyle):
    """The style of sphinxcontrib-bibtex named author_year, with round brackets."""

    bracket_textual: BracketStyle = field(default_factory=round_brackets)
    bracket_parenthetical: BracketStyle = field(default_factory=round_brackets)
    bracket_author: BracketStyle = field(default_factory=round_brackets)
    bracket_label: BracketStyle = field(default_factory=round_brackets)
    bracket_year: BracketStyle = field(default_factory=round_brackets)


def setup(app: Sphinx) -> dict:
    """Register the style."""
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_round", Round)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
