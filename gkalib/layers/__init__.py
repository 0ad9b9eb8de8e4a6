"""Attention layers: one file a variant, found by the file's name."""

import inspect
import pkgutil
from functools import partialmethod
from importlib import import_module
from typing import Any

from torch import nn

from gkalib.layers.base import Smoother

Attention = str | type[nn.Module] | list

_FURNITURE = {"base", "heads", "positions"}  # what variants are made of


def variants() -> list[str]:
    """The names of all variants, in alphabetical order: the files of this folder that define one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _FURNITURE)


def attention(name: str, **options: Any) -> type[nn.Module]:
    """The attention layer of a variant, as a class that timm's ``attn_layer`` and our models take.

    Args:
        name: a file of ``gkalib/layers``, such as ``"softmax"`` or ``"gka"``.
        options: arguments of its constructor, bound to the class returned.

    Raises:
        ValueError: if there is no such variant, or it has no such option.

    Chapter 4 teaches the idea; ``add-a-variant`` shows how to write one.
    """
    if name not in variants():
        raise ValueError(f"attention: no variant named {name!r}. Known: {', '.join(variants())}")
    return bind(import_module(f"{__name__}.{name}").Attention, **options)


def bind(layer: type[nn.Module], **options: Any) -> type[nn.Module]:
    """A class whose constructor has some of its keyword arguments set.

    Raises:
        ValueError: if the constructor has no such argument.
    """
    if not options:
        return layer
    known = _options_of(layer)
    unknown = [option for option in options if option not in known]
    if unknown:
        name = getattr(layer, "name", lambda: layer.__name__)()
        raise ValueError(f"{name}: no option {unknown[0]!r}. Known: {', '.join(sorted(known))}")
    bound = {
        "__init__": partialmethod(layer.__init__, **options),
        "__module__": layer.__module__,
        "__doc__": layer.__doc__,
        "options": {**getattr(layer, "options", {}), **options},
    }
    return type(layer.__name__, (layer,), bound)


def layers(attention: Attention, depth: int) -> list[type[nn.Module]]:
    """One class a layer: of a name, of what ``attention()`` returned, or of a list of either, cycled.

    Raises:
        ValueError: if a name is unknown or the list is empty.
    """
    given = attention if isinstance(attention, list) else [attention]
    if not given:
        raise ValueError("attention: the list of layers is empty")
    classes = [_named(one) if isinstance(one, str) else one for one in given]
    return [classes[index % len(classes)] for index in range(depth)]


def _named(name: str) -> type[nn.Module]:
    return attention(name)


def _options_of(layer: type[nn.Module]) -> set[str]:
    """The keyword arguments of a constructor and, where it passes others on, of those above it."""
    names: set[str] = set()
    for cls in layer.__mro__:
        if "__init__" not in vars(cls) or cls is nn.Module:
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()
        names |= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names


__all__ = ["Attention", "Smoother", "attention", "bind", "layers", "variants"]
