"""Draws what the cards of the zoo show: ``python book/zoo.py`` writes ``zoo.json`` and ``_static/zoo.jpg``.

Each variant reads the same words and the same photograph. Nothing is learned: projections are identities.
"""

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from gkalib.data import minilm
from gkalib.data.images import picture
from gkalib.layers import attention, variants
from gkalib.smoothing import compute_output

FILE = Path(__file__).with_suffix(".json")
PHOTOGRAPH = FILE.parent / "_static" / "zoo.jpg"
WORDS = ["the", "dog", "chased", "the", "cat", "until", "the", "cat", "chased", "the", "dog"]
GRID, PATCH = 14, 16
QUERY = 6 * GRID + 11  # the patch of the photograph whose weights are drawn, on the right eye
SHADES, LETTERS = 9, "IHGFEDCBA.abcdefghi"
OPTIONS = {
    "karat": {"rank": 8},
    "krause": {"top_k": 4},
    "linformer": {"rank": 4},
    "nystrom": {"landmarks": 6},
    "performer": {"num_features": 64, "seed": 0},
    "rpe": {"num_features": 64, "seed": 0},
    "skyformer": {"landmarks": 8},
}
MIXED = {"gka": 3, "softmax": 1}


def words() -> Tensor:
    """MiniLM's vectors of the words, minus the mean of its vocabulary, ``[11, 384]``."""
    encoder = minilm()
    table = encoder.weights["embeddings.word_embeddings.weight"]
    ids = [encoder.tokenizer.token_to_id(word) for word in WORDS]
    return _scaled(table[ids] - table.mean(0), 2.0)


def patches() -> Tensor:
    """Patches of the photograph, each by its 4 × 4 mean colors, minus their mean, ``[196, 48]``."""
    small = torch.as_tensor(picture("cat", GRID * PATCH), dtype=torch.float32)
    means = small.reshape(GRID, PATCH, GRID, PATCH, 3).unflatten(3, (4, 4)).unflatten(1, (4, 4)).mean((2, 5))
    vectors = means.transpose(1, 2).reshape(GRID * GRID, -1)
    return _scaled(vectors - vectors.mean(0), 1.5)


def _scaled(vectors: Tensor, score: float) -> Tensor:
    """Vectors whose mean score qᵀq / √d with themselves is ``score``."""
    return vectors * (score * vectors.shape[1] ** 0.5 / vectors.square().sum(1).mean()).sqrt()


@torch.no_grad()
def weights(name: str, tokens: Tensor, *, is_causal: bool) -> Tensor:
    """What each value is multiplied by in each output, ``[n n]``, of one head as it starts.

    Projections are identities and gates read nothing of their token. What would do nothing at its start does
    something here: the slope of ``parallax`` is −x/√d, the table of ``rpe`` −|i − j|/4.
    """
    if name == "mixed":
        parts = [share * weights(each, tokens, is_causal=is_causal) for each, share in MIXED.items()]
        return sum(parts[1:], parts[0]) / sum(MIXED.values())
    count, dim = tokens.shape
    cls: Any = attention(name, **OPTIONS.get(name, {}))
    torch.manual_seed(0)
    layer = cls(dim, 1, **({"length": count} if cls.sized else {}))
    for each in ("query", "key", "value"):
        if hasattr(layer, each):
            nn.init.eye_(getattr(layer, each).weight)
    for each in layer.gates:
        nn.init.zeros_(getattr(layer, each).weight)
    if name == "parallax":
        layer.slope.weight.copy_(-torch.eye(dim) / dim**0.5)
    if name == "rpe":
        layer.kernel.second.bias.copy_(-torch.arange(1 - count, count).abs() / 4)
    problem = layer.problem(tokens[None], is_causal=layer.only_causal or (is_causal and layer.causal))
    problem.grouped_value = torch.eye(count)[None, None]  # so that the output is the weights
    return layer.finish(compute_output(problem, layer.method), problem)[0, 0]


def shades(drawn: Tensor) -> Tensor:
    """Signed shades from −9 to 9, as the root of each weight's share of the largest in size."""
    return SHADES * drawn.sign() * (drawn.abs() / drawn.abs().max()).sqrt()


def drawings() -> dict[str, dict[str, Tensor]]:
    """The shades of every variant: of all words, and of the photograph's patches for one query."""
    text, image = words(), patches()
    return {
        name: {
            "text": shades(weights(name, text, is_causal=True)),
            "image": shades(weights(name, image, is_causal=False)[QUERY].view(GRID, GRID)),
        }
        for name in variants()
    }


def letters(drawn: Tensor) -> list[str]:
    """Rows of shades as text: ``.`` is zero, ``a`` to ``i`` are 1 to 9, ``A`` to ``I`` are negative."""
    return ["".join(LETTERS[shade + SHADES] for shade in row) for row in drawn.round().int().tolist()]


def main() -> None:
    """Write both files."""
    drawn = {name: {kind: letters(one) for kind, one in of.items()} for name, of in drawings().items()}
    FILE.write_text(json.dumps({"words": WORDS, "query": QUERY, "weights": drawn}, indent=1) + "\n")
    pixels = torch.as_tensor(picture("cat", GRID * PATCH)).mul(255).round().byte().numpy()
    Image.fromarray(pixels).save(PHOTOGRAPH, quality=85)


if __name__ == "__main__":
    main()
