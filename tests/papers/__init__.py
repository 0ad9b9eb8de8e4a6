"""Assertions behind the ledger's exact cells, and code that is broken on purpose to see whether they notice.

A test here stands behind one cell. Its docstring says what it asserts, in the ledger too; ``broken_by`` names
changes of the code, each of which has to turn it. It takes no fixture, so that it can be called at any time.
"""

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

from gkalib.training import recipe


def run_of(name: str, arm: str) -> Any:
    """The run of a recipe's arm at full size."""
    return recipe(name).run(arm)


@final
@dataclass(frozen=True)
class Mutation:
    """A change of the library's source.

    Args:
        module: which it is in.
        old, new: text that occurs once there, and what takes its place.
        also: other tests that it turns, since they assert what rests on the same line.
    """

    module: str
    old: str
    new: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}: {self.old!r} → {self.new!r}"


def broken_by(module: str, *changes: tuple[str, str], also: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Say which changes of a module (below ``gkalib``) turn a test, each by itself."""

    def decorate(test: Any) -> Any:
        made = [Mutation(f"gkalib.{module}", old, new, also) for old, new in changes]
        test.mutations = [*getattr(test, "mutations", []), *made]
        return test

    return decorate


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The library with a change in it: functions get the changed code, and constants the changed value.

    Raises:
        ValueError: if the text is not there exactly once, or the change reaches nothing.
    """
    module = import_module(mutation.module)
    source = inspect.getsource(module)
    if source.count(mutation.old) != 1:
        raise ValueError(f"{mutation}: the text is there {source.count(mutation.old)} times")
    before = _definitions(source, module)
    after = _definitions(source.replace(mutation.old, mutation.new), module)
    changed = [name for name in before if before[name] != after[name]]
    if not changed:
        raise ValueError(f"{mutation}: it changes no function and no constant")
    with ExitStack() as undo:
        for name in changed:
            undo.callback(_apply(module, name, after[name]))
        yield


def _definitions(source: str, module: types.ModuleType) -> dict[str, types.CodeType | str]:
    """By qualified name: the code of each function and method, the text of each constant's value."""
    found: dict[str, types.CodeType | str] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found[prefix + ast.unparse(target)] = ast.unparse(node.value)
            elif isinstance(node, ast.FunctionDef):
                found[f"{prefix}{node.name} defaults"] = ast.unparse(node.args)

    collect(ast.parse(source).body, "")

    def walk(code: types.CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType) and "<" not in constant.co_qualname:
                if constant.co_flags & inspect.CO_OPTIMIZED:  # the body of a class is not
                    found[constant.co_qualname] = constant
                walk(constant)

    walk(compile(source, module.__file__ or "", "exec"))
    return found


def _apply(module: types.ModuleType, name: str, value: types.CodeType | str) -> Callable[[], None]:
    """Change one definition, and return what changes it back."""
    path, defaults = name.removesuffix(" defaults"), name.endswith(" defaults")
    *outer, last = path.split(".")
    owner: Any = module
    for part in outer:
        owner = getattr(owner, part)
    if isinstance(value, types.CodeType):
        function = _function(owner, last)
        return _replace(function, "__code__", value)
    if defaults:
        function = _function(owner, last)
        made: dict[str, Any] = dict(vars(module))
        exec(f"def changed({value}): pass", made)
        keywords = _replace(function, "__kwdefaults__", made["changed"].__kwdefaults__)
        places = _replace(function, "__defaults__", made["changed"].__defaults__)
        return lambda: (keywords(), places())[0]
    changed: dict[str, Any] = {}
    exec(f"{last} = {value}", dict(vars(module)), changed)
    steps = [_replace(owner, each, new) for each, new in changed.items()]
    return lambda: [step() for step in steps][-1]


def _function(owner: Any, name: str) -> Any:
    """The innermost function, below what checks shapes around it."""
    found = inspect.getattr_static(owner, name)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    return inspect.unwrap(getattr(found, "__func__", found))


def _replace(owner: Any, name: str, value: Any) -> Callable[[], None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)
