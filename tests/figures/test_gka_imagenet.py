"""A box of the removals is filled for a matrix that is left and empty for one that is not."""

from chapters.figures.gka_imagenet import removals


def test_matrices_that_a_model_lacks_are_empty_boxes():
    figure = removals({"all": ("QKV", "a"), "none": ("", "b")})
    for axes, title, left in zip(figure.axes, ("all", "none"), (3, 0), strict=True):
        named = [text.get_text() for text in axes.texts if text.get_text().startswith("$W")]
        assert axes.get_title("left") == title and len(named) == left + 1  # and the output's
        assert sum(not patch.get_fill() for patch in axes.patches if hasattr(patch, "get_width")) == 3 - left
