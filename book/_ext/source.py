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


@cache
def _imports(path: Path) -> dict[str, tuple[int, str]]:
    """What the imports anywhere in a file bind: by name, how many dots precede the dotted name, and that."""
    bound: dict[str, tuple[int, str]] = {}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            level, base = (node.level, node.module) if isinstance(node, ast.ImportFrom) else (0, None)
            for alias in node.names:
                bound.setdefault(
                    alias.asname or alias.name, (level, ".".join(filter(None, [base, alias.name])))
                )
    return bound


def imported(root: Path, module: str, name: str) -> str | None:
    """The dotted name that an import anywhere in the module binds to ``name``."""
    path = module_path(root, module)
    if path is None or name not in _imports(path):
        return None
    level, target = _imports(path)[name]
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    return ".".join([*(parts[: len(parts) - level + 1] if level else []), target])


@cache
def find_object(root: Path, dotted: str, seen: frozenset[str] = frozenset()) -> str | None:
    """The full name, in its defining module, of what ``dotted`` names, or None where nothing defines it.

    Imports are followed, so a public name leads to its definition: ``gkalib.smooth`` to
    ``gkalib.smoothing.api.smooth``.
    """
    if dotted in seen:
        return None
    parts = dotted.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module, rest = ".".join(parts[:split]), parts[split:]
        path = module_path(root, module)
        if path is None:
            continue
        node = _member(parse(path).body, rest[0])
        if node is not None:
            return dotted if _has_members(root, module, node, rest[1:], seen | {dotted}) else None
        target = imported(root, module, rest[0])
        if target is not None:
            found = find_object(root, ".".join([target, *rest[1:]]), seen | {dotted})
            if found is not None:
                return found
    return dotted if module_path(root, dotted) else None


def definition(root: Path, full: str) -> ast.stmt | None:
    """The statement that defines a full name, as ``find_object`` gives it; None for a module."""
    module, _, name = full.rpartition(".")
    path = module_path(root, module) if module else None
    if path is not None:
        return _member(parse(path).body, name)
    holder = definition(root, module) if module else None
    return _member(holder.body, name) if isinstance(holder, ast.ClassDef) else None


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
    node = _test(root, identifier)
    return None if node is None else node.lineno


def says(root: Path, identifier: str) -> str:
    """The first sentence of a test's docstring; nothing where it has none."""
    node = _test(root, identifier)
    return "" if node is None else (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")


def _test(root: Path, identifier: str) -> ast.FunctionDef | None:
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
    return node if isinstance(node, ast.FunctionDef) and node.name.startswith("test") else None
