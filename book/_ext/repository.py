"""Shows the repository, edit, Colab and Binder links only where the repository's address is known."""

from sphinx.application import Sphinx
from sphinx.config import Config

BUTTONS = ("use_repository_button", "use_edit_page_button", "use_issues_button", "use_source_button")


def set_buttons(app: Sphinx, config: Config) -> None:
    """Turn every button on with an address; without one turn them off and drop the launch links."""
    options = config.html_theme_options
    known = bool(options.get("repository_url"))
    options.update(dict.fromkeys(BUTTONS, known))
    if not known:
        options.pop("repository_url", None)
        options["launch_buttons"] = {}


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("config-inited", set_buttons, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
