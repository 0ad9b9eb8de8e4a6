"""Puts a variant into the self-attention layers of a model of timm, torch.nn or Hugging Face."""

import copy
from typing import Any

import torch
from torch import nn

from gkalib.kernels import Kernel
from gkalib.layers import Attention, Smoother, for_model, layers, name_of, variants
from gkalib.layers import attention as attention_of
from gkalib.models import huggingface, multihead, saved, timm
from gkalib.models.swap import Parts, Swap, between_projections, build, has_usual_projections, tie
from gkalib.normalizers import Dropout, Normalizer


@torch.inference_mode(False)  # and with gradients: what a layer is taken apart into says what was frozen
def replace_attention(
    model: nn.Module, attention: Attention | Kernel | Normalizer, *, length: int | None = None
) -> Swap:
    r"""Put a variant, a kernel or a normalizer into every self-attention layer of a model, in place.

    What the layers had learned stays where the shapes agree: the projections to query, key and value, the
    norms of query and key, the output projection. Everything else starts as the variant starts; ``"softmax"``
    and ``ExpDot()`` therefore change no output. Layers that do more than a variant does, and cross-attention,
    stay what they are. Print what is returned to see all this by name. A model that learned with softmax
    needs training with anything else.

    **timm.** Models on ``timm.layers.Attention``, such as ViT and DeiT: the variant stands in the layer's
    place. In rotary models, such as EVA-02 and DINOv3, it smooths between the layer's own projections, after
    its rotations, as in Hugging Face's.

    ```python
    vit = timm.create_model("vit_tiny_patch16_224", pretrained=True)
    print(replace_attention(vit, "gka"))
    ```

    **torch.nn.** ``nn.MultiheadAttention``, alone, in ``nn.TransformerEncoderLayer`` or in torchvision's ViT.
    It is called as before, masks and weights included, with a value that is the key.

    ```python
    layer = nn.TransformerEncoderLayer(64, 4)
    encoder = nn.TransformerEncoder(layer, 2)
    print(replace_attention(encoder, Gaussian(2.0)))
    ```

    **Hugging Face.** A variant that has a query, a key and a value smooths between the projections of the
    model's own layers (Llama, Qwen, GPT-2, BERT, ViT, T5 and most others): rotary positions, grouped keys,
    caches, ``generate``, sliding windows, dropout and ``output_attentions`` stay the model's. Its slots are
    ``smoother`` of each attention layer; they are trained and saved with the model, and can be assigned.
    ``save_pretrained`` writes the swap into ``config.json``, from which ``gkalib.models.from_pretrained``
    makes it anew, or warns that it cannot. A variant with other projections, such as ``"gka"``, stands in the
    place of layers that only project and attend (BERT, RoBERTa, ViT, CLIP), without a cache.

    ```python
    llama = AutoModelForCausalLM.from_pretrained(...)
    print(replace_attention(llama, Gaussian(2.0, learn=True)))
    layer = llama.model.layers[0].self_attn
    layer.smoother.kernel = Laplace(2.0)
    ```

    Args:
        model: of one of these libraries, or with such layers in it.
        attention: the name of a variant; what ``gkalib.attention`` returned; a kernel or a normalizer, of
            which each layer gets its own copy in place of softmax attention's; or a list of these for the
            layers, cycled.
        length: the number of tokens, for variants that are built for one.

    Returns:
        The model, and what survived.

    Raises:
        ValueError: if no attention layer is known, with what the first one does more, or a variant does not
            fit; the model is then as it was.

    Chapter 10 uses it.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"replace_attention: model must be a module, not {model!r}")
    replaceable, left = _attention_layers(model)
    classes, slots = _chosen(attention, len(replaceable))
    sized = [cls for cls in classes if getattr(cls, "sized", False)]
    if sized and length is None:
        raise ValueError(
            f"replace_attention: {name_of(sized[0])} is built for a number of tokens; give length="
        )
    first = next(iter(replaceable.values()))
    bound = for_model(classes, first.dim, first.num_heads, length=length or 0)
    # All of them before the first is put in: a variant that does not fit leaves the model as it was.
    built = [
        _layer(model, path, parts, cls, slot)
        for (path, parts), cls, slot in zip(replaceable.items(), bound, slots, strict=True)
    ]
    copied, dropped, tied = [], [], {}
    for (path, parts), (layer, names) in zip(replaceable.items(), built, strict=True):
        module = model.get_submodule(path)
        layer.train(module.training)
        if names is None:
            copied += [f"{_prefix(path)}{name}" for name, _ in module.named_parameters()]
            module.add_module("smoother", layer)
            continue
        tie(layer, parts, names, tied)
        copied += [f"{_prefix(path)}{'layer.' if parts.wrap else ''}{name}" for name in names]
        dropped += [f"{_prefix(path)}{name}" for name in parts.weights if name not in names]
        model = _put(model, path, layer if parts.wrap is None else parts.wrap(layer).train(module.training))
    if any(names is None for _, names in built):
        timm.use_smoothers(model)
        huggingface.use_interface(model)
    multihead.leave_fast_path(model)
    given = attention if isinstance(attention, list) else [attention]
    saved.remember(model, {path: given[i % len(given)] for i, path in enumerate(replaceable)}, length)
    places = tuple(_prefix(path) for path in replaceable)
    fresh = [name for name, _ in model.named_parameters() if name.startswith(places) and name not in copied]
    kinds = {
        path: name_of(cls) if slot is None else f"{name_of(cls)} with {' '.join(repr(slot).split())}"
        for path, cls, slot in zip(replaceable, classes, slots, strict=True)
    }
    return Swap(model, kinds, copied, fresh, dropped, left)


def _is_choice(each: Any) -> bool:
    """Whether it is a variant by name or class, or an object for a slot; the class of a slot is not."""
    if isinstance(each, type):
        return not issubclass(each, Kernel | Normalizer)
    return isinstance(each, str | Kernel | Normalizer)


def _chosen(attention: Any, depth: int) -> tuple[list[type[nn.Module]], list[Kernel | Normalizer | None]]:
    """The class of each layer, and what is put into its slot."""
    given = attention if isinstance(attention, list) else [attention]
    wrong = [each for each in given if not _is_choice(each)]
    if wrong:
        raise ValueError(
            "replace_attention: attention must be the name of a variant, what gkalib.attention returned, a "
            f"kernel or a normalizer, not {wrong[0]!r}"
        )
    slots = [each if isinstance(each, Kernel | Normalizer) else None for each in given]
    classes = ["softmax" if slot is not None else each for each, slot in zip(given, slots, strict=True)]
    return layers(classes, depth), [slots[index % len(slots)] for index in range(depth)]


def _layer(
    model: nn.Module, path: str, parts: Parts, cls: type[nn.Module], slot: Kernel | Normalizer | None
) -> tuple[nn.Module, list[str] | None]:
    """What is put into a layer of the model, and which weights it took from it; None for what goes inside."""
    layer: Any = between_projections(path, parts, cls) if parts.inside else None
    names = None
    if layer is None:
        if not parts.whole:
            usual = [name for name in variants() if has_usual_projections(attention_of(name))]
            usual = [name for name in usual if name != name_of(cls)]
            raise ValueError(
                f"replace_attention: {path} does more than project and attend (rotations, grouped keys, "
                f"a cache), so {name_of(cls)}, which has other projections, cannot stand in its place. These "
                f"smooth between its own projections: {', '.join(usual)}"
            )
        layer, names = build(path, parts, cls)
    if slot is not None:
        like = next(iter(parts.weights.values()))
        own = copy.deepcopy(slot).to(dtype=like.dtype)
        unsaved = {name: buffer for name, buffer in own.named_buffers() if name not in own.state_dict()}
        own.to(device=like.device)
        for name, buffer in unsaved.items() if like.is_meta else ():  # no state would bring them back
            owner, _, last = name.rpartition(".")
            setattr(own.get_submodule(owner), last, buffer)
        setattr(layer, "kernel" if isinstance(slot, Kernel) else "normalizer", own)
    for smoother in layer.modules() if parts.attn_drop else ():
        if isinstance(smoother, Smoother):
            smoother.normalizer = Dropout(smoother.normalizer, parts.attn_drop)
    return layer, names


def _attention_layers(model: nn.Module) -> tuple[dict[str, Parts], dict[str, str]]:
    """The layers that a variant can stand for, taken apart, and the reasons why it cannot for the others."""
    parts: dict[str, Parts] = {}
    left: dict[str, str] = {}
    for path, module in model.named_modules():
        if isinstance(module, Smoother):
            raise ValueError(
                f"replace_attention: {path or type(module).__name__} is a variant already; "
                "assign its slots, or give attention= where it is built"
            )
        result = (
            multihead.read_layer(model, path, module)
            or timm.read_layer(module)
            or huggingface.read_layer(path, module)
        )
        if isinstance(result, Parts):
            parts[path] = result
        elif result is not None:
            left[path] = result
    if parts:
        return parts, left
    path, reason = next(iter(left.items()), ("", "has no attention layer that is known"))
    place = path or type(model).__name__
    raise ValueError(
        f"replace_attention: {place} {reason}. A variant can stand for timm.layers.Attention (timm's ViT, "
        "DeiT and others), nn.MultiheadAttention (nn.TransformerEncoder, torchvision's ViT), and in layers "
        "of transformers that look their attention function up (Llama, BERT, ViT and most others)"
    )


def _put(model: nn.Module, path: str, layer: nn.Module) -> nn.Module:
    """The model with a layer wherever the one at a path stands."""
    old = model.get_submodule(path)
    if old is model:
        return layer
    for owner in list(model.modules()):
        for name, module in owner.named_children():
            if module is old:
                setattr(owner, name, layer)
    return model


def _prefix(path: str) -> str:
    return f"{path}." if path else ""
