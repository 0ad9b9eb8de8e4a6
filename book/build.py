"""Builds the book's HTML from stored outputs: `python book/build.py` writes `_build/html`.

Nothing is executed and torch is not needed. Every warning is an error, that of an entry of ``_toc.yml``
without a page too, and the doctrees are fresh.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pybtex.plugin
import yaml
from jupyter_book.config import get_final_config
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import docutils_namespace, patch_docutils
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parent.parent
# Jupyter Book loads both on every page; the book uses neither, and both point to other hosts.
UNWANTED = ("sphinx_thebe", "sphinx_comments")
INPUTS = {
    "book": (".md", ".bib", ".py", ".css", ".js", ".svg", ".png", ".jpg", ".json"),
    "chapters": (".ipynb",),
    "gkalib": (".py",),
    "data/models": (".json", ".safetensors"),
    "data/results": (".json", ".csv"),
    "tests": (".py",),
}
NPM_SECONDS = 120  # one package of 6 MB; without a network npm would try for minutes
# A citation asks for four plugins, and each question reads the entry points of every installed package.
pybtex.plugin._load_entry_point = cache(pybtex.plugin._load_entry_point)
PICTURE = ROOT / "book" / "img" / "smoother.png"  # of a link to the book
DESCRIPTION = (
    "Attention is kernel regression: a book with tested code, from the Nadaraya-Watson estimator to "
    "transformers with other kernels, their fused operations and their training."
)
MATHJAX_PARTS = ("tex-mml-chtml.js", "input", "output/chtml", "a11y", "sre", "ui")


def toc_entries(toc: Path) -> list[str]:
    """The documents that a ``_toc.yml`` names, in reading order, without suffixes."""
    return [name.removesuffix(".md").removesuffix(".ipynb") for name in parse_toc_yaml(toc)]


def local_mathjax(package: Path, extra: Path) -> str | None:
    """Install MathJax from npm and copy what pages load to ``extra``; the reason where it cannot be done."""
    source = package / "node_modules" / "mathjax" / "es5"
    if not (source / "tex-mml-chtml.js").is_file():
        if shutil.which("npm") is None:
            return "npm is not installed"
        command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(package)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=NPM_SECONDS)
        except subprocess.TimeoutExpired:
            return f"npm took more than {NPM_SECONDS} s"
        if done.returncode:
            return f"npm failed: {done.stderr.strip()[-300:]}"
    target = extra / "mathjax"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for part in MATHJAX_PARTS:
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy2
        copy(source / part, target / part)
    return None


def pages_address(repository_url: str) -> str:
    """Where GitHub publishes the pages of a repository, with a slash at the end."""
    owner, name = repository_url.rstrip("/").removesuffix(".git").split("/")[-2:]
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def link_tags(title: str, address: str | None) -> dict[str, str]:
    """What a page says of itself where somebody links to it; its picture needs the public address."""
    tags = {"description": DESCRIPTION}
    if address:
        tags |= {
            "property=og:title": title,
            "property=og:description": DESCRIPTION,
            "property=og:type": "book",
            "property=og:image": f"{address}{PICTURE.name}",
            "twitter:card": "summary_large_image",
        }
    return tags


def run_sphinx(source: Path, html: Path, doctrees: Path, config: dict) -> int:
    """Run Sphinx with a whole configuration, from scratch, with warnings as errors; 0 means success."""
    # The extensions read the results store through the library, installed or not.
    sys.path.insert(0, str(ROOT))
    with patch_docutils(), docutils_namespace():
        try:
            app = Sphinx(
                source,
                None,
                html,
                doctrees,
                "html",
                confoverrides=config,
                status=None,
                warning=sys.stderr,
                freshenv=True,
                warningiserror=True,
                keep_going=True,
            )
            # Pages are written in parallel; they are read one by one, since sphinx_proof cannot do otherwise.
            app.connect("env-updated", lambda app, env: setattr(app, "parallel", os.cpu_count() or 1))
            app.build(force_all=True)
        except SphinxError as error:
            print(f"book: {error.category}: {error}", file=sys.stderr)
            return 1
    return app.statuscode


def inputs_digest(source: Path) -> str:
    """A hash of everything that the pages are made from; it tells whether a built book is still current."""
    names = ["_config.yml", "_toc.yml"]
    for folder, suffixes in INPUTS.items():
        paths = (path.relative_to(source).as_posix() for path in (source / folder).rglob("*.*"))
        names += [name for name in paths if name.endswith(suffixes) and "/node_modules/" not in name]
    state = hashlib.sha256()
    for name in sorted(names):
        state.update(f"{name}\0".encode() + (source / name).read_bytes())
    return state.hexdigest()


def build(
    source: Path,
    output: Path,
    *,
    repository_url: str | None = None,
    cdn: bool = False,
    solutions: bool = True,
) -> int:
    """Build a book into ``output/html``; 0 means success.

    Args:
        source: the folder that holds ``_config.yml`` and ``_toc.yml``.
        output: the folder for ``html``, the doctrees and the digest of what was built.
        repository_url: the public address, instead of the one in ``_config.yml``; with either, pages have
            links to the repository, and a picture for links to themselves.
        cdn: load MathJax from its public host even where npm could bring it.
        solutions: whether exercises have their solutions; without them no page offers its source.
    """
    html, extra, mark = output / "html", output / "extra", output / "inputs.sha256"
    for stale in (html, extra, output / "doctrees"):
        shutil.rmtree(stale, ignore_errors=True)
    mark.unlink(missing_ok=True)
    extra.mkdir(parents=True)
    digest = inputs_digest(source)
    overrides: dict = {"latex_individualpages": False, "html_extra_path": [str(extra)]}
    reason = "that was asked for" if cdn else local_mathjax(ROOT / "book", extra)
    if reason is None:
        overrides["mathjax_path"] = "../mathjax/tex-mml-chtml.js"
    else:
        print(f"book: formulas will load MathJax from its public CDN, because {reason}", file=sys.stderr)
    settings = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    url = repository_url or settings["repository"]["url"]
    address = pages_address(url) if url else None
    if url:
        overrides |= {"html_theme_options": {"repository_url": url}, "html_baseurl": address}
        shutil.copy2(PICTURE, extra)
    overrides["myst_html_meta"] = link_tags(settings["title"], address)
    if not solutions:
        overrides |= {"gkalib_solutions": False, "html_copy_source": False}
        overrides["html_theme_options"] = {"use_download_button": False}  # nor links to a repository
    config, _ = get_final_config(
        user_yaml=source / "_config.yml", cli_config=overrides, sourcedir=source, raise_on_invalid=True
    )
    config["extensions"] = [name for name in config["extensions"] if name not in UNWANTED]
    config.pop("comments_config", None)
    status = run_sphinx(source, html, output / "doctrees", config)
    if status:
        print("book: the build failed; each warning above is an error", file=sys.stderr)
        return status
    root = toc_entries(source / "_toc.yml")[0]
    (html / "index.html").write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>The book</title>'
        f'<meta http-equiv="refresh" content="0; url={root}.html"></head>'
        f'<body><p><a href="{root}.html">Open the book</a></p></body></html>\n',
        encoding="utf-8",
    )
    mark.write_text(digest + "\n", encoding="utf-8")
    return 0


def main() -> int:
    """Read the command line, build, and print where the book is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", type=Path, default=ROOT, help="folder of _config.yml and _toc.yml")
    parser.add_argument("--output", type=Path, help="folder for html and doctrees, _build unless given")
    parser.add_argument("--repository-url", help="the public address, instead of the one in _config.yml")
    parser.add_argument("--cdn", action="store_true", help="load MathJax from its public host")
    parser.add_argument("--without-solutions", action="store_true", help="leave out what solves exercises")
    options = parser.parse_args()
    started = time.perf_counter()
    source = options.source.resolve()
    output = options.output.resolve() if options.output else source / "_build"
    if options.without_solutions:
        output /= "without-solutions"
    chosen = {"cdn": options.cdn, "solutions": not options.without_solutions}
    status = build(source, output, repository_url=options.repository_url, **chosen)
    if status == 0:
        seconds = time.perf_counter() - started
        print(f"book: built in {seconds:.0f} s, open {output / 'html' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
