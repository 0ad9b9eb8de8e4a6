"""The directive ``model``: a trained model of text computes in the page, by ``book/_static/model.js``."""

import base64
import html
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

STORE = Path(__file__).resolve().parents[2] / "data" / "models"


def script(folder: Path) -> str:
    """A stored model as a script: its settings, its symbols and its weights, safetensors in base64."""
    stored = {
        "settings": json.loads((folder / "state.json").read_text(encoding="utf-8"))["settings"]["model"],
        "symbols": json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["symbols"],
        "weights": base64.b64encode((folder / "model.safetensors").read_bytes()).decode("ascii"),
    }
    return f"(window.gkStored ??= {{}})[{json.dumps(folder.name)}] = {json.dumps(stored)};\n"


class Model(SphinxDirective):
    """``{model} NAME``, a model of ``data/models``; ``text`` is what it reads first."""

    required_arguments = 1
    option_spec: ClassVar = {"text": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Place the element that the script fills, and write the model beside it."""
        (name,) = self.arguments
        code = script(STORE / name)
        path = Path(self.env.app.outdir, "_static", f"{name}.js")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
        data = {"model": name, "size": f"{len(code) / 1e6:.1f} MB", "text": self.options["text"]}
        attributes = " ".join(f'data-{key}="{html.escape(value)}"' for key, value in data.items())
        return [nodes.raw("", f'<div class="gk-model" {attributes}></div>', format="html")]


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.add_directive("model", Model)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
