"""A trained model by one name, whether a run made it here or it came with the book."""

import json
from pathlib import Path

from torch import nn

from gkalib import results
from gkalib.data.fetch import sha256_of
from gkalib.training.checkpoint import MODEL, fill, load_checkpoint
from gkalib.training.config import config_of


def load(name_or_folder: str | Path) -> nn.Module:
    """A trained model in evaluation mode: of a run's folder, of a checkpoint, or by its name in data/models.

    There a model is a folder with ``model.safetensors`` and ``run.json``, which has its ``settings`` and the
    ``sha256`` of its weights.

    Raises:
        ValueError: if there is no such model, or it is damaged.
    """
    from safetensors.torch import load_file  # an extra: this package is imported without it

    folder = Path(name_or_folder)
    if folder.is_dir():
        try:
            return load_checkpoint(folder).model.eval()
        except ValueError as error:
            raise ValueError(f"load: {str(error).removeprefix('train: ')}") from error
    home = results.folder().parent / "models"
    path = home / folder
    if not (path / MODEL).is_file():
        names = ", ".join(sorted(weights.parent.name for weights in home.glob(f"*/{MODEL}"))) or "none yet"
        raise ValueError(f"load: no folder and no trained model {str(name_or_folder)!r}. Known: {names}")
    stored = json.loads((path / "run.json").read_text(encoding="utf-8"))
    if sha256_of(path / MODEL) != stored["sha256"]:
        raise ValueError(f"load: {path / MODEL} has changed since it was written")
    model = config_of(stored["settings"]).build()
    fill(model, load_file(path / MODEL))
    return model.eval()
