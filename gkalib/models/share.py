"""What a model gives its attention layers: the number of tokens, and the modules that they share."""

from typing import Any

from torch import nn

from gkalib.layers import Smoother


def shared_by(
    classes: list[type[nn.Module]], dim: int, num_heads: int, *, length: int
) -> tuple[nn.ModuleDict, dict[type[nn.Module], dict[str, Any]]]:
    """The modules that layers of one class share, for the model to register once, and each class's arguments.

    Args:
        classes: the class of each layer.
        dim, num_heads: the sizes of a layer.
        length: the number of tokens, for classes that are built for one.
    """
    registered, arguments = nn.ModuleDict(), {}
    for index, layer in enumerate(dict.fromkeys(classes)):
        given: dict[str, Any] = {"length": length} if getattr(layer, "sized", False) else {}
        share = getattr(layer, "shared", None)
        made = share(dim, num_heads, **given) if share else {}
        for name, module in made.items():
            registered[f"{name}_{index}"] = module
        arguments[layer] = given | made
    return registered, arguments


def start(model: nn.Module) -> None:
    """Let every layer set what must start at a certain value, whatever the model's own start did to it."""
    for module in model.modules():
        if isinstance(module, Smoother):
            module.start()
