"""Finds functions, classes and tests in source text by ``ast``, so that nothing is imported."""

import ast
from functools import cache
from pathlib import Path

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@cache
def parse(path: Path) -> ast.Module:
    """The parsed file; parsed once a build."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_path(root: Path, name: str) -> Path | None:
    """The file of a dotted module below ``root``, or None."""
    base = root.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _member(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """What ``name`` is bound to by a definition or an assignment directly in ``body``."""
    for node in body:
        if isinstance(node, DEFINITIONS) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def _imported(tree: ast.Module, module: str, name: str, package: bool) -> str | None:
    """The dotted name that an import anywhere in the module binds to ``name``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                parts = module.split(".") if package else module.split(".")[:-1]
                base = parts[: len(parts) - node.level + 1] if node.level else []
                return ".".join([*base, *filter(None, [node.module]), alias.name])
    return None


def find_object(root: Path, dotted: str, seen: frozenset[str] = frozenset()) -> str | None:
    """The full name, in its defining module, of what ``dotted`` names, or None where nothing defines it.

    Imports are followed, so a public name leads to its definition: ``gkalib.smooth`` to
    ``gkalib.smoothing.dispatch.smooth``.
    """
    if dotted in seen:
        return None
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        module = ".".join(parts[:split])
        path = module_path(root, module)
        if path is None:
            continue
        if split == len(parts):
            return module
        tree, rest = parse(path), parts[split:]
        node = _member(tree.body, rest[0])
        if node is None:
            target = _imported(tree, module, rest[0], path.name == "__init__.py")
            return target and find_object(root, ".".join([target, *rest[1:]]), seen | {dotted})
        return dotted if _has_members(root, module, node, rest[1:], seen | {dotted}) else None
    return None


def _has_members(root: Path, module: str, node: ast.stmt, rest: list[str], seen: frozenset[str]) -> bool:
    """Whether ``rest`` is a chain of members of a class, its bases included."""
    if not rest:
        return True
    if not isinstance(node, ast.ClassDef):
        return False
    member = _member(node.body, rest[0])
    if member is not None:
        return _has_members(root, module, member, rest[1:], seen)
    bases = (find_object(root, f"{module}.{ast.unparse(base)}", seen) for base in node.bases)
    return any(base and find_object(root, ".".join([base, *rest]), seen) for base in bases)


def find_test(root: Path, identifier: str) -> int | None:
    """The line of the test that a pytest id names (``tests/test_x.py::test_y``), or None."""
    file, *names = identifier.split("::")
    path = root / file
    if not names or not path.is_file():
        return None
    body: list[ast.stmt] = parse(path).body
    node: ast.stmt | None = None
    for name in names:
        wanted = name.split("[")[0]
        node = next((n for n in body if isinstance(n, DEFINITIONS) and n.name == wanted), None)
        if node is None:
            return None
        body = node.body if isinstance(node, ast.ClassDef) else []
    return node.lineno if isinstance(node, ast.FunctionDef) and node.name.startswith("test") else None
