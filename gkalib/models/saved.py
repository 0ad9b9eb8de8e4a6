"""Swapped models of ``transformers`` in files and in other processes."""

import functools
import inspect
import json
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from gkalib import kernels, normalizers
from gkalib.kernels import Kernel
from gkalib.layers import Smoother, name_of, variants
from gkalib.layers import attention as attention_of
from gkalib.models import huggingface
from gkalib.normalizers import Normalizer


def from_pretrained(model_class: Any, folder: Any, **options: Any) -> Any:
    """``model_class.from_pretrained(folder, **options)``, swapped as the model was that was saved there.

    A process that has swapped a model, or loaded one with this, needs only ``model_class.from_pretrained``.
    In another, ``transformers`` warns that it does not know the type ``gkalib``, and computes softmax.

    Args:
        model_class: of ``transformers``, such as ``LlamaForCausalLM`` or ``AutoModel``.
        folder: where ``save_pretrained`` of a swapped model wrote.
        options: of its ``from_pretrained``.
    """
    register()
    return model_class.from_pretrained(folder, **options)


def register() -> None:
    """Let ``transformers`` find our attention, and what exchanges it in a model that is being loaded."""
    huggingface.register()
    _register_loader()


def remember(model: nn.Module, given: dict[str, Any], length: int | None) -> None:
    """Let each model of ``transformers`` in a model know what its layers, by name, were given."""
    if not (PreTrainedModel := huggingface.model_class()):
        return
    for path, module in model.named_modules():
        if isinstance(module, PreTrainedModel):
            choices = [choice for layer, choice in given.items() if layer.startswith(path and f"{path}.")]
            if choices:
                register()
                swapped: Any = Swapped(module, choices, length)
                module.save_pretrained = swapped.save_pretrained
                module.set_attn_implementation = swapped.set_attn_implementation


class Swapped:
    """What a swapped model does otherwise: it is saved with the swap, and tells when it is undone.

    Args:
        model: of ``transformers``.
        choices: what each of its layers was given, as ``replace_attention`` takes it.
        length: the number of tokens, for variants that are built for one.
    """

    def __init__(self, model: Any, choices: list, length: int | None):
        self.model, self.choices, self.length = model, choices, length
        self.slots = self._slots()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process, too, the model finds our attention."""
        self.__dict__.update(state)
        register()

    def save_pretrained(self, *args: Any, **options: Any) -> None:
        """As the model's own, with the swap in ``config.json``, or a warning that says why not."""
        model = self.model
        try:
            said = self._said()
        except ValueError as error:
            warnings.warn(
                f"save_pretrained: {error}, so from_pretrained gives the model its own attention; swap it "
                "again, and load the state",
                stacklevel=2,
            )
            return type(model).save_pretrained(model, *args, **options)
        # The one hook of transformers that exchanges modules before the weights are read has this name.
        model.config.quantization_config = said
        try:
            type(model).save_pretrained(model, *args, **options)
        finally:
            del model.config.quantization_config

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **options: Any) -> None:
        """As the model's own, with a warning where it passes our attention by."""
        model = self.model
        inside = any(hasattr(module, "smoother") for module in model.modules())
        if inside and attn_implementation != huggingface.NAME:
            warnings.warn(
                f"set_attn_implementation: {attn_implementation!r} computes the model's own attention, not "
                f"what replace_attention put in; {huggingface.NAME!r} brings that back",
                stacklevel=2,
            )
        type(model).set_attn_implementation(model, attn_implementation, *args, **options)

    def _slots(self) -> list:
        smoothers = [module for module in self.model.modules() if isinstance(module, Smoother)]
        return [getattr(layer, slot) for layer in smoothers for slot in ("kernel", "normalizer", "mask")]

    def _said(self) -> dict[str, Any]:
        """The swap as JSON has it.

        Raises:
            ValueError: with the reason why it cannot be said.
        """
        if getattr(self.model.config, "quantization_config", None) is not None:
            raise ValueError("config.json has the model's quantization in the place of the swap")
        if any(now is not then for now, then in zip(self._slots(), self.slots, strict=True)):
            raise ValueError("slots were assigned after the swap, which config.json cannot say")
        said = [describe(choice) for choice in self.choices]
        said = said[:1] if all(each == said[0] for each in said) else said
        return {"quant_method": huggingface.NAME, "attention": said, "length": self.length}


def describe(choice: Any) -> Any:
    """A variant, a kernel or a normalizer as JSON has it: its name, or its name with its arguments.

    Raises:
        ValueError: if that would not make it again.
    """
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Kernel | Normalizer):
        names = list(inspect.signature(type(choice).__init__).parameters)[1:]
        options = {name: _argument(choice, name) for name in names if name not in ("args", "kwargs")}
        said = {type(choice).__name__: options}
    else:
        said = {name_of(choice): getattr(choice, "options", {})}
    try:
        again = read(json.loads(json.dumps(said)))
        same = _shape(again) == _shape(choice)
    except (AttributeError, TypeError, ValueError):
        same = False
    if not same:
        what = " ".join(repr(choice).split())
        raise ValueError(f"config.json cannot say {what} by a name of gkalib's and plain arguments")
    return said


def read(said: Any) -> Any:
    """What ``describe`` gave, as ``replace_attention`` takes it."""
    if isinstance(said, str):
        return said
    [(name, options)] = said.items()
    if name in variants():
        return attention_of(name, **options)
    cls = getattr(kernels if hasattr(kernels, name) else normalizers, name)
    return cls(**{key: _value(value) for key, value in options.items()})


def _argument(owner: Any, name: str) -> Any:
    """The argument that a kernel or a normalizer was made with, from what it keeps of it."""
    if name == "learn":
        return bool(list(owner.parameters()))
    value = getattr(owner, name, None)
    if isinstance(value, Kernel | Normalizer):
        return describe(value)
    return value.tolist() if isinstance(value, Tensor) else value


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return read(value)
    return torch.tensor(value) if isinstance(value, list) else value


def _shape(choice: Any) -> Any:
    """What two choices have in common that are the same."""
    if isinstance(choice, nn.Module):
        tensors = [*choice.named_parameters(), *choice.named_buffers()]
        return repr(choice), type(choice), [(name, tensor.shape) for name, tensor in tensors]
    return choice.__mro__[1:] if choice.options else choice, choice.options


@functools.cache
def _register_loader() -> None:
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    from gkalib.models.replace import replace_attention

    @register_quantization_config(huggingface.NAME)
    class _Configuration(QuantizationConfigMixin):
        def __init__(self, attention: list, length: int | None = None, **_: Any):
            self.quant_method: Any = huggingface.NAME
            self.attention, self.length = attention, length

    @register_quantizer(huggingface.NAME)
    class _Loader(HfQuantizer):
        is_trainable = True  # pyright: ignore[reportAssignmentType]

        def is_serializable(self) -> bool:
            return True

        def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:
            said: Any = self.quantization_config
            with torch.device("cpu"):  # the model itself has no memory yet
                choices = [read(each) for each in said.attention]
            replace_attention(model, choices, length=said.length)
            self.unsaved = {name: buffer for name, buffer in model.named_buffers() if not buffer.is_meta}
            return model

        def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
            for name, buffer in self.unsaved.items():
                model.get_buffer(name).copy_(buffer)
            self.remove_quantization_config(model)
            for module in model.modules():
                if hasattr(module, "config"):
                    module.config._is_quantized = False
            return model
