"""Puts a variant into the self-attention layers of a model of timm, torch.nn or Hugging Face."""

from torch import nn

from gkalib.layers import Attention, Smoother, for_model, layers
from gkalib.models import huggingface, multihead, timm
from gkalib.models.swap import Plain, Swap, build, name_of


def replace_attention(model: nn.Module, attention: Attention, *, length: int | None = None) -> Swap:
    """Put a variant into every self-attention layer of a model, in place.

    What the layers had learned is copied where the shapes agree: the projections to query, key and value, the
    norms of query and key, the output projection. Everything else starts as the variant starts; ``"softmax"``
    therefore changes no output. Layers that do more than a variant does, and cross-attention, stay what they
    are. Print what is returned to see all this by name.

    >>> vit = timm.create_model("vit_tiny_patch16_224", pretrained=True)
    >>> print(gkalib.replace_attention(vit, "rbf"))

    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), 2)
    >>> print(gkalib.replace_attention(encoder, "gka"))

    Args:
        model: a model of timm on ``timm.layers.Attention`` (ViT, DeiT and many more), any model with
            ``nn.MultiheadAttention`` in it, alone or in ``nn.TransformerEncoderLayer``, or a model of
            ``transformers`` on layers like BertModel's, ViTModel's or CLIP's.
        attention: the name of a variant, what ``gkalib.attention`` returned, or a list of either for the
            layers, cycled.
        length: the number of tokens, for variants that are built for one.

    Returns:
        The model, and what survived.

    Raises:
        ValueError: if no attention layer is known, with what the first one does more, or a variant does not
            fit.

    Chapter 10 uses it.
    """
    plain, left = _attention_layers(model)
    classes = layers(attention, len(plain))
    sized = [cls for cls in classes if getattr(cls, "sized", False)]
    if sized and length is None:
        raise ValueError(
            f"replace_attention: {name_of(sized[0])} is built for a number of tokens; give length="
        )
    first = next(iter(plain.values()))
    classes = for_model(classes, first.dim, first.num_heads, length=length or 0)
    # All of them before the first is put in: a variant that does not fit leaves the model as it was.
    built = [build(path, plain[path], cls) for path, cls in zip(plain, classes, strict=True)]
    copied, dropped = [], []
    for (path, parts), (layer, names) in zip(plain.items(), built, strict=True):
        copied += [f"{_prefix(path)}{'layer.' if parts.wrap else ''}{name}" for name in names]
        dropped += [f"{_prefix(path)}{name}" for name in parts.weights if name not in names]
        model = _put(model, path, layer if parts.wrap is None else parts.wrap(layer))
    multihead.leave_the_fast_path(model)
    places = tuple(map(_prefix, plain))
    fresh = [name for name, _ in model.named_parameters() if name.startswith(places) and name not in copied]
    variants = {path: name_of(cls) for path, cls in zip(plain, classes, strict=True)}
    return Swap(model, variants, copied, fresh, dropped, left)


def _attention_layers(model: nn.Module) -> tuple[dict[str, Plain], dict[str, str]]:
    """The layers that a variant can stand for, taken apart, and the reasons why it cannot for the others.

    Raises:
        ValueError: if there is none of the first kind.
    """
    plain: dict[str, Plain] = {}
    left: dict[str, str] = {}
    for path, module in model.named_modules():
        if isinstance(module, Smoother):
            raise ValueError(
                f"replace_attention: {path or type(module).__name__} is a variant already; "
                "give attention= where it is built"
            )
        found = (
            multihead.taken_apart(model, path, module)
            or timm.taken_apart(module)
            or huggingface.taken_apart(module)
        )
        if isinstance(found, Plain):
            plain[path] = found
        elif found is not None:
            left[path] = found
    if plain:
        return plain, left
    path, reason = next(iter(left.items()), ("", "has no attention layer that is known"))
    place = path or type(model).__name__
    raise ValueError(
        f"replace_attention: {place} {reason}. A variant can stand for timm.layers.Attention (timm's ViT, "
        "DeiT and others), nn.MultiheadAttention (nn.TransformerEncoder, torchvision's ViT), and layers like "
        "those of transformers' BertModel, ViTModel and CLIPModel"
    )


def _put(model: nn.Module, path: str, layer: nn.Module) -> nn.Module:
    """The model with a layer in its place, in the mode in which the old one was."""
    layer.train(model.get_submodule(path).training)
    if not path:
        return layer
    owner, _, name = path.rpartition(".")
    setattr(model.get_submodule(owner), name, layer)
    return model


def _prefix(path: str) -> str:
    return f"{path}." if path else ""
