"""Reads the ``gkalib`` metadata of a page's source file: a notebook's metadata or a text's front matter."""

import json
from pathlib import Path

import yaml
from sphinx.environment import BuildEnvironment


def metadata(path: Path) -> dict:
    """The mapping under the key ``gkalib``; empty where there is none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return json.loads(text).get("metadata", {}).get("gkalib", {})
    if not text.startswith("---\n"):
        return {}
    front = yaml.safe_load(text.split("\n---", 1)[0][4:])
    return (front or {}).get("gkalib", {})


def page_metadata(env: BuildEnvironment) -> dict:
    """The ``gkalib`` metadata of the page that is being read."""
    return metadata(Path(env.doc2path(env.docname)))
