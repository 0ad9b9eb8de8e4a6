"""Text as numbers and back: by character, by GPT-2's byte pairs, and by byte pairs learned here."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from gkalib.data.fetch import few
from gkalib.data.registry import unpacked, verified
from gkalib.extras import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# Those of nanochat: pretraining uses the first, the others part the turns of a chat.
SPECIAL = (
    "<|bos|>",
    *(f"<|{who}_{what}|>" for who in ("user", "assistant", "python", "output") for what in ("start", "end")),
)
END = "<|endoftext|>"

# What byte pairs never reach across, in the manner of GPT-4's split: a contraction; letters with at most one
# other character before them; at most two digits; punctuation with the line ends after it; white space up to
# a line end; white space but for the last, which goes with the word that follows; other white space.
SPLIT = "|".join(
    (
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,2}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
    )
)


class Tokenizer(ABC):
    """A finite set of tokens, each of which stands for a string of bytes, and a way to cut text into them.

    ``decode(encode(text)) == text`` for every text that can be encoded. Special tokens stand for no bytes,
    and text never turns into one, however it is spelled.

    Args:
        name: what it is called in records.
        vocab_size: V, the number of tokens.
        bos: the token before a document; None if there is none.
    """

    name: str
    vocab_size: int
    bos: int | None

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, int64 ``[n]``."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of some tokens; special ones are spelled by their names."""

    @abstractmethod
    def byte_lengths(self) -> np.ndarray:
        """How many bytes of UTF-8 each token stands for, int64 ``[V]``; 0 for special tokens.

        Over the tokens of a text they add up to the length of the text in bytes, which is what bits per byte
        are divided by.
        """

    @abstractmethod
    def to_json(self) -> str:
        """All of it, for :func:`tokenizer_of`."""

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The tokens of each text."""
        return [self.encode(text) for text in texts]

    def encode_documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The tokens of each text behind the token that begins a document, in the type they are stored in."""
        first = [] if self.bos is None else [self.bos]
        return [np.concatenate([first, ids]).astype(self.dtype) for ids in self.encode_all(texts)]

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The smallest type that stores tokens and one more number, which is none."""
        return np.uint16 if self.vocab_size < 2**16 else np.uint32


@final
class Characters(Tokenizer):
    """One token for each character, in the order of their code points, and none that is special.

    A table of code points, since the library's ``WordLevel`` takes eighty times as long for a novel.

    Args:
        symbols: the characters; what is repeated counts once.

    Raises:
        ValueError: if there are none.
    """

    name = "characters"
    bos = None

    def __init__(self, symbols: Iterable[str]):
        self.symbols = sorted(set(symbols))
        if not self.symbols:
            raise ValueError("data: a text without characters has no vocabulary")
        self.vocab_size = len(self.symbols)
        self._points = np.array([ord(symbol) for symbol in self.symbols], dtype=np.uint32)

    def encode(self, text: str) -> np.ndarray:
        """The number of each character."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ids = np.minimum(np.searchsorted(self._points, points), self.vocab_size - 1)
        if (unknown := self._points[ids] != points).any():
            others = sorted({chr(point) for point in points[unknown]})
            examples = few([*map(repr, others)], 10, " ")
            raise ValueError(
                f"data: the text has {int(unknown.sum())} characters, {len(others)} different ones, that are "
                f"none of the {self.vocab_size} known: {examples}. Replace or remove them, or take a "
                "tokenizer of bytes, gpt2 or bpe"
            )
        return ids.astype(np.int64)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The characters of some tokens."""
        return "".join(self.symbols[int(number)] for number in ids)

    def byte_lengths(self) -> np.ndarray:
        """The length of each character in UTF-8."""
        return np.array([len(symbol.encode("utf-8", "surrogatepass")) for symbol in self.symbols])

    def to_json(self) -> str:
        """The symbols."""
        return json.dumps({"kind": "characters", "symbols": self.symbols})


@final
class BytePairs(Tokenizer):
    """Strings of bytes that were merged pair by pair, the most frequent pair first.

    Args:
        name: what it is called in records.
        backend: the tokenizer of the library ``tokenizers``.
        bos: the special token before a document, by its name.

    References:
        Sennrich, Haddow and Birch, Neural machine translation of rare words with subword units, 2016;
        Radford et al., Language models are unsupervised multitask learners, 2019, for bytes.
    """

    def __init__(self, name: str, backend: "Backend", *, bos: str):
        backend.encode_special_tokens = True  # text that spells a special token is text
        self.name, self._backend = name, backend
        self.vocab_size = backend.get_vocab_size()
        self.bos, self._bos = backend.token_to_id(bos), bos
        self._letters = require("tokenizers.decoders", "byte pairs").ByteLevel()  # one stands for a byte

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The tokens of each text, on all cores."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encoded]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of some tokens; bytes that are no UTF-8, as at a cut, become replacement characters."""
        return self._letters.decode([self._backend.id_to_token(int(number)) for number in ids])

    def byte_lengths(self) -> np.ndarray:
        """The number of bytes of each token."""
        special, lengths = self._backend.get_added_tokens_decoder(), np.zeros(self.vocab_size, np.int64)
        for token, number in self._backend.get_vocab().items():
            lengths[number] = 0 if number in special else len(token)
        return lengths

    def to_json(self) -> str:
        """The merges and everything else the backend holds."""
        stored = json.loads(self._backend.to_str())
        return json.dumps({"kind": "byte pairs", "name": self.name, "bos": self._bos, "backend": stored})


def gpt2() -> Tokenizer:
    """GPT-2's byte pairs, from its two files, with ``<|endoftext|>`` before a document.

    References:
        Radford et al., Language models are unsupervised multitask learners, 2019.
    """
    library = require("tokenizers", "gpt2")
    files = unpacked("gpt2", "*/data/encoder.json", "*/data/vocab.bpe")
    content = verified("gpt2", {path.rsplit("/")[-1]: files[path] for path in files})
    merges = [tuple(line.split()) for line in content["vocab.bpe"].decode().splitlines()[1:] if line]
    backend = library.Tokenizer(library.models.BPE(vocab=json.loads(content["encoder.json"]), merges=merges))
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens([END])
    return BytePairs("gpt2", backend, bos=END)


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn byte pairs from texts: GPT-4's manner of splitting, with numbers cut after two digits.

    Args:
        texts: what is counted; the same texts give the same tokens.
        vocab_size: V, the 256 bytes and nine special tokens included.

    References:
        nanochat's tokenizer, whose nine special tokens these are.
    """
    library, least = require("tokenizers", "bpe"), 256 + len(SPECIAL)
    if vocab_size < least:
        raise ValueError(f"data: a vocabulary of bytes has at least {least} tokens, not {vocab_size}")
    splitters = library.pre_tokenizers
    backend = library.Tokenizer(library.models.BPE())
    backend.pre_tokenizer = splitters.Sequence(
        [
            splitters.Split(library.Regex(SPLIT), behavior="isolated"),
            splitters.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(splitters.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if (size := backend.get_vocab_size()) != vocab_size:
        raise ValueError(
            f"data: the text yields {size} tokens, fewer than the {vocab_size} asked for: ask for fewer, or "
            "give more text"
        )
    return BytePairs(f"bpe-{vocab_size}", backend, bos=SPECIAL[0])


def tokenizer_of(stored: str) -> Tokenizer:
    """The tokenizer that :meth:`Tokenizer.to_json` gave."""
    try:
        content = json.loads(stored)
        if content["kind"] == "characters":
            return Characters(content["symbols"])
        library = require("tokenizers", "bpe")
        backend = library.Tokenizer.from_str(json.dumps(content["backend"]))
        return BytePairs(content["name"], backend, bos=content["bos"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"data: this is not a stored tokenizer ({error!r})") from None
