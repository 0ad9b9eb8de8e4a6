"""The API reference: a page whose front matter says ``gkalib: {api: [package, …]}`` shows those modules.

Read from source by ``ast``, so that no page needs the library's own dependencies.
"""

import ast
import copy
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

from .docstrings import to_myst
from .page import metadata
from .source import DEFINITIONS, definition, find_object, imported, module_path, parse

logger = logging.getLogger(__name__)
PACKAGE = "gkalib"
# A class of ours that its package does not export is shown by name, under a prefix that _config.yml excuses.
INTERNAL = "internal"


def exported(root: Path, module: str) -> list[str]:
    """The names of a module's ``__all__``, or else of its public definitions, in the order of the source."""
    body = parse(module_path(root, module)).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    names = []
    for node in body:
        if isinstance(node, DEFINITIONS):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)
    return [name for name in names if not name.startswith("_")]


def _shows_all(root: Path, module: str) -> bool:
    """Whether all public names of a module are for users: what a package leaves out is its own business."""
    package = module.rpartition(".")[0]
    if module_path(root, module).name == "__init__.py" or package in ("", PACKAGE):
        return True
    names = exported(root, package)
    return not names or module in (find_object(root, f"{package}.{name}") for name in names)


@cache
def public_names(root: Path) -> dict[str, str]:
    """From the full name of everything exported to the shortest name that users import it by."""
    names: dict[str, str] = {}
    files = (path.relative_to(root).with_suffix("") for path in (root / PACKAGE).rglob("*.py"))
    modules = (".".join(path.parts).removesuffix(".__init__") for path in files)
    for module in sorted(modules, key=lambda name: (name.count("."), name)):
        if any(part.startswith("_") for part in module.split(".")) or not _shows_all(root, module):
            continue
        for name in exported(root, module):
            full = find_object(root, f"{module}.{name}")
            if full and module_path(root, full) is None:
                names.setdefault(full, f"{module}.{name}")
    return names


class Resolve(ast.NodeTransformer):
    """Rewrites the names of an annotation to full public names, so that they link."""

    def __init__(self, root: Path, module: str) -> None:
        """Names are looked up in ``module``."""
        self.root, self.module = root, module

    def _named(self, node: ast.expr) -> ast.expr:
        written = ast.unparse(node)
        first, _, rest = written.partition(".")
        full = find_object(self.root, f"{self.module}.{written}")
        if full in public_names(self.root):
            return ast.Name(public_names(self.root)[full])
        alias = definition(self.root, full) if full else None
        if isinstance(alias, ast.Assign) and full:
            value = alias.value
            if isinstance(value, ast.Call):  # a type variable, shown as what bounds it
                value = next((one.value for one in value.keywords if one.arg == "bound"), ast.Name("Any"))
            return Resolve(self.root, full.rpartition(".")[0]).visit(copy.deepcopy(value))
        if full:
            return ast.Name(f"{INTERNAL}.{written}")
        target = imported(self.root, self.module, first)
        return ast.Name(".".join(filter(None, [target, rest]))) if target else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A bare name."""
        return self._named(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """A dotted name."""
        return self._named(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """A forward reference in quotes, unless it is the shape in a jaxtyping subscript."""
        if isinstance(node.value, str) and node.value.isidentifier():
            return self._named(ast.Name(node.value))
        return node


def annotation(root: Path, module: str, node: ast.expr | None) -> str:
    """An annotation with full names, or the empty string."""
    return ast.unparse(Resolve(root, module).visit(copy.deepcopy(node))) if node is not None else ""


def signature(root: Path, module: str, function: ast.FunctionDef, *, bound: bool) -> str:
    """The parenthesis after a function's name, and what it returns; ``bound`` drops the first argument."""
    arguments = copy.deepcopy(function.args)
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for argument in filter(None, every):
        if argument.annotation is not None:
            argument.annotation = Resolve(root, module).visit(argument.annotation)
    if bound:
        (arguments.posonlyargs or arguments.args).pop(0)
    returns = annotation(root, module, function.returns)
    return f"({ast.unparse(arguments)})" + (f" -> {returns}" if returns else "")


def decorators(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The last words of a definition's decorators."""
    return {ast.unparse(one).split("(")[0].rsplit(".", 1)[-1] for one in node.decorator_list}


def constructor(root: Path, full: str) -> str:
    """The signature that makes an object of a class: its ``__init__``, inherited or not, or its fields."""
    node, module = definition(root, full), full.rpartition(".")[0]
    if isinstance(node, ast.ClassDef) and "dataclass" in decorators(node):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        parts = [
            f"{ast.unparse(one.target)}: {annotation(root, module, one.annotation)}"
            + (" = ..." if one.value is not None else "")
            for one in fields
        ]
        keyword = any("kw_only=True" in ast.unparse(one) for one in node.decorator_list)
        return f"({', '.join(['*'] * (keyword and bool(parts)) + parts)})"
    origin = find_object(root, f"{full}.__init__")
    while isinstance(node, ast.ClassDef) and origin and definition(root, origin) is None:
        bases = [find_object(root, f"{module}.{ast.unparse(base)}") for base in node.bases]
        owner = next((base for base in bases if base and find_object(root, f"{base}.__init__")), None)
        if owner is None:
            return ""
        node, module, origin = definition(root, owner), owner.rpartition(".")[0], f"{owner}.__init__"
    init = definition(root, origin) if origin else None
    return signature(root, module, init, bound=True) if isinstance(init, ast.FunctionDef) else ""


def _block(kind: str, head: str, options: list[str], body: list[str], fence: int) -> list[str]:
    """A directive with as long a fence as its content needs."""
    ticks = "`" * fence
    return [f"{ticks}{{py:{kind}}} {head}", *options, "", *body, ticks, ""]


def member(root: Path, module: str, node: ast.FunctionDef) -> list[str]:
    """A documented method or property."""
    words = decorators(node)
    options = [f":{word}:" for word in ("abstractmethod", "staticmethod", "classmethod") if word in words]
    body = to_myst(ast.get_docstring(node) or "")
    if words & {"property", "cached_property"}:
        returns = annotation(root, module, node.returns)
        return _block("property", node.name, options + ([f":type: {returns}"] if returns else []), body, 5)
    head = node.name + signature(root, module, node, bound="staticmethod" not in words)
    return _block("method", head, options, body, 5)


def entry(root: Path, full: str, public: str) -> list[str]:
    """The reference of one function, class or type alias."""
    node, module = definition(root, full), full.rpartition(".")[0]
    home, _, name = public.rpartition(".")
    options = [f":module: {home}"]
    if full != public and isinstance(node, ast.ClassDef | ast.FunctionDef):
        options.append(f":canonical: {full}")
    if isinstance(node, ast.FunctionDef):
        head = name + signature(root, module, node, bound=False)
        return _block("function", head, options, to_myst(ast.get_docstring(node) or ""), 6)
    if isinstance(node, ast.ClassDef):
        body = to_myst(ast.get_docstring(node) or "")
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        for one in methods:
            if not one.name.startswith("_") and ast.get_docstring(one):
                body += member(root, module, one)
        return _block("class", name + constructor(root, full), options, body, 6)
    if isinstance(node, ast.Assign):
        return _block("data", name, [*options, f":value: {ast.unparse(node.value)}"], [], 6)
    if isinstance(node, ast.AnnAssign):
        options.append(f":type: {annotation(root, module, node.annotation)}")
        return _block("data", name, options, [], 6)
    return []


def reference(root: Path, name: str) -> list[str]:
    """The reference of a module or of a package's public names, under the modules that define them."""
    shown = {full: public for full, public in public_names(root).items() if f"{full}.".startswith(f"{name}.")}
    homes: dict[str, list[str]] = {}
    for full in shown:
        homes.setdefault(full.rpartition(".")[0], []).append(full)

    def place(module: str) -> tuple[int, str]:
        return min(shown[full].count(".") for full in homes[module]), module

    lines: list[str] = []
    for module in sorted(homes, key=place):  # what `gkalib` itself exports comes first
        source = module_path(root, module)
        text = ast.get_docstring(parse(source)) if source else None
        lines += [f"## {module.removeprefix(PACKAGE + '.')}", "", *to_myst(text or ""), ""]
        if module not in shown.values():  # a function may share its module's name
            lines += [f"```{{py:module}} {module}", "```", ""]
        for full in sorted(homes[module], key=lambda name: definition(root, name).lineno):
            lines += entry(root, full, shown[full])
    return lines


def extend(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the generated reference to the text of a page that asks for it."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".md":
        return
    root = Path(app.srcdir)
    lines: list[str] = []
    for name in metadata(path).get("api", []):
        if module_path(root, name) is None:
            logger.warning("api: there is no module %s", name, location=docname, type="gkalib", subtype="api")
        lines += reference(root, name)
    if lines:
        source[0] += "\n" + "\n".join(lines) + "\n"


def link_alias(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element):
    """Let a type in a signature link to a type alias: Sphinx looks for classes alone."""
    if node.get("refdomain") != "py" or node.get("reftype") != "class":
        return None
    known = env.domaindata["py"]["objects"].get(node["reftarget"])
    if known is None or known.objtype != "data":
        return None
    short = node["reftarget"].rpartition(".")[2]
    return make_refnode(app.builder, node["refdoc"], known.docname, known.node_id, nodes.Text(short))


def setup(app: Sphinx) -> dict:
    """Register the extension."""
    app.connect("source-read", extend)
    app.connect("missing-reference", link_alias)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
