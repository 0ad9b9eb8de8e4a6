"""Attention layers: one file a variant, found by the file's name."""

import pkgutil
from importlib import import_module
from typing import Any

from torch import nn

from gkalib.layers.base import Smoother, bind, name_of
from gkalib.shapes import check_known

Attention = str | type[nn.Module] | list

_NO_VARIANTS = {"base", "memory", "parts"}


def variants() -> list[str]:
    """The names of all variants, in alphabetical order: the files of this folder that define one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_VARIANTS)


def attention(name: str, **options: Any) -> type[nn.Module]:
    """The attention layer of a variant, as a class that timm's ``attn_layer`` and our models take.

    Args:
        name: a file of ``gkalib/layers``, such as ``"softmax"`` or ``"gka"``. The one class in the file's
            ``__all__`` is the variant.
        options: arguments of its constructor, bound to the class returned.

    Raises:
        ValueError: if there is no such variant, or it has no such option.

    Chapter 4 teaches the idea; ``add-a-variant`` shows how to write one.
    """
    check_known("attention", "variant", name, variants())
    module = import_module(f"{__name__}.{name}")
    public = [getattr(module, each) for each in module.__all__]
    [layer] = [each for each in public if isinstance(each, type)]
    return bind(layer, **options)


def layers(given: Attention, depth: int) -> list[type[nn.Module]]:
    """One class a layer: of a name, of what ``attention()`` returned, or of a list of either, cycled.

    Raises:
        ValueError: if a name is unknown or the list is empty.
    """
    choices = given if isinstance(given, list) else [given]
    if not choices:
        raise ValueError("attention: the list of layers is empty")
    classes = [attention(choice) if isinstance(choice, str) else choice for choice in choices]
    return [classes[index % len(classes)] for index in range(depth)]


def for_model(
    classes: list[type[nn.Module]], dim: int, num_heads: int, *, length: int
) -> list[type[nn.Module]]:
    """The classes as one model builds its layers; those of one class may share modules, such as an operator.

    Args:
        classes: one a layer.
        dim, num_heads: the sizes of a layer.
        length: the number of tokens, for classes that are built for one.
    """
    bound: dict[type[nn.Module], Any] = {}
    for layer in classes:
        if layer not in bound:
            build = getattr(layer, "for_model", None)
            bound[layer] = layer if build is None else build(dim, num_heads, length=length)
    return [bound[layer] for layer in classes]


def reset_parameters(model: nn.Module) -> None:
    """Let every layer set what must start at a certain value, whatever the model drew for it."""
    for module in model.modules():
        if isinstance(module, Smoother):
            module.reset_parameters()


__all__ = [
    "Attention",
    "Smoother",
    "attention",
    "bind",
    "for_model",
    "layers",
    "name_of",
    "reset_parameters",
    "variants",
]
