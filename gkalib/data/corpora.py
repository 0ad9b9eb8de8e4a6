"""Text that no package carries: the novels of Charles Dickens, short stories for children, web pages."""

from pathlib import Path

from gkalib.data.fetch import Folder
from gkalib.data.hub import Hub
from gkalib.data.registry import dataset, hub, text, verified

# Eight novels in the order of their publication, 12,920,542 characters: what a model is trained on.
TRAINING = ("PP", "OT", "NN", "OCS", "BR", "MC", "DS", "DC")

_DICKENS = {
    "BH": "0a8a4d8208e6c501bff896632a16e3f0c130b31d8bc726185d4eeb3acc484514",
    "BR": "c40276eed2fac304534427e2f07cb806db6840e58136c95de57d941bf0fde382",
    "DC": "533939d2c775949bdf07bb2a9bf4087ca935d14cc6baa20a100371aee2e2ac97",
    "DS": "9d18d69f7f0ce6050b209784bf199ef9fc2a8e6564034cff8558a0ee6bfc8918",
    "ED": "f105e87d9901e812d5c45d0751f10a595c2c9b7a52704d4e36d9ae2ab3161ada",
    "GE": "a87bb88947336253881fb512d63f4388b13829a688a38497f0b65da86eb12d43",
    "HT": "c0bce05235386f9a0e513461bd35ad87a57a846bbb631774233d24aa3cadddba",
    "LD": "b0eeb44fd583f9ada7107d165b6af8fc5d9767558ece75c792d1f163c046c300",
    "MC": "a6322514fa18c78c7717ee47deef759f5376e6f3d129498d471132f5d5b7eecc",
    "NN": "a9ae05a5a4ee9fa5f87ef1b68f0c2ecb7767d96b51b05902320954005588de35",
    "OCS": "83d7b9af6c3a60d937dfcdb697b358900e52b5035cc4ff1c414f898f4cc9b969",
    "OMF": "dfbdccac5e5a38ba49336df05d8da56a00e1c23dd20ae173c0bed8a64e733dcf",
    "OT": "cf63fa62b90d6804244422ad93761eb36d396eaf975a35eacabd029f06e1cfca",
    "PP": "7d1986b8aa3713e7073106b94ccc7cedbdf5dd4d46dba1eb1cd7f573ca60b210",
    "TTC": "a3279add231d429dba37a3b2381b595094f0cf37127fac253df520d5f7a10dc5",
}


@dataset(
    description="Eight novels of Charles Dickens to train on; seven more by their codes",
    source="Dickens 1836 to 1870, Project Gutenberg's texts as the CLiC corpora of Birmingham hold them",
    license="public domain",
    sha256="36a6d782b64c5cc329f77ccce7c73a5441d793a9d7b9e4abc7ce09e1ac84219f",
    folder=Folder(
        name="dickens",
        files={f"{code}.txt": sha256 for code, sha256 in _DICKENS.items()},
        source="the folder DNov of the GitHub repository mahlberg-lab/corpora at commit 64b4590",
    ),
    needs=tuple(f"{code}.txt" for code in TRAINING),
)
def dickens(*books: str) -> str:
    """Novels of Charles Dickens in ASCII, one after the other, a paragraph a line.

    Args:
        books: codes of what to read, in this order; by default PP OT NN OCS BR MC DS DC, 12.9 million
            characters. To hold out: GE, TTC. Also BH ED HT LD OMF.

    Raises:
        ValueError: if a code is none of these, or a book is not here or is another text.

    References:
        Mahlberg, Stockwell, Wiegand and Lentin, CLiC 2.1: Corpus Linguistics in Context, 2020.
    """
    novels = "".join(text("dickens", f"{code}.txt") for code in books or TRAINING)
    return novels if books else verified("dickens", novels)


@dataset(
    description="The first 2 MiB of TinyStories: 2,316 short stories for children, written by a model",
    source="Eldan and Li, TinyStories, 2023",
    license="CDLA-Sharing-1.0; not redistributed here",
    sha256="5352b299dcb1a32898b2d779b145b5a05f3e1265953fd21c264c9f9f9c9ae33d",
    folder=Folder(
        name="tinystories-2mib",
        files={"tinystories_sample.txt": "5352b299dcb1a32898b2d779b145b5a05f3e1265953fd21c264c9f9f9c9ae33d"},
        source="data/tinystories_sample.txt of the GitHub repository gusjengis/toy-RNN at commit e4c7ff8",
    ),
    needs=("tinystories_sample.txt",),
)
def tinystories() -> str:
    """Short stories in a small vocabulary, each ended by ``<|endoftext|>``; the last one is cut off.

    Raises:
        ValueError: if it is not here, or is another text.

    References:
        Eldan and Li, TinyStories: how small can language models be and still speak coherent English?, 2023.
    """
    return verified("tinystories", text("tinystories", "tinystories_sample.txt"))


@dataset(
    description="TinyStories in full: 2,119,719 short stories for children to train on, written by a model",
    source="Eldan and Li, TinyStories, 2023",
    license="CDLA-Sharing-1.0; not redistributed here",
    sha256="",
    hub=Hub(
        repo="roneneldan/TinyStories",
        revision="f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
        folder="tinystories-full",
        files={"train": "train-*.parquet"},
        size="1 GB",
    ),
)
def tinystories_full() -> list[Path]:
    """The files of the stories to train on, whose column ``text`` has one a row.

    Raises:
        ValueError: if none is here.

    References:
        Eldan and Li, TinyStories: how small can language models be and still speak coherent English?, 2023.
    """
    return hub("tinystories_full", "train")


@dataset(
    description="FineWeb-Edu, 100 billion tokens of educational web pages, shuffled: 150 of 1,823 files",
    source="Penedo et al., FineWeb, 2024; shuffled and cut into files by Karpathy for nanochat",
    license="ODC-By-1.0; not redistributed here",
    sha256="",
    hub=Hub(
        repo="karpathy/fineweb-edu-100b-shuffle",
        revision="main",
        folder="fineweb-edu",
        files={"pages": "shard_*.parquet"},
        size="14 GB",
        # nanochat has about 250 million characters in a file: enough for the longer run of chapter 22, of
        # whose tokens packing drops a third. The last file is held out, as there.
        wanted=(*(f"shard_{number:05d}.parquet" for number in range(149)), "shard_01822.parquet"),
    ),
)
def fineweb_edu() -> list[Path]:
    """The files of pages, whose column ``text`` has one a row; the last file is held out.

    Raises:
        ValueError: if none is here.

    References:
        Penedo et al., The FineWeb datasets: decanting the web for the finest text data at scale, 2024.
    """
    return hub("fineweb_edu", "pages")
