"""Tokenizers and models so small that their likelihoods can be written down."""

from types import SimpleNamespace

import numpy as np
import torch

from gkalib.data.tokenizers import Tokenizer


class Words(Tokenizer):
    """A token for each word with the white space before it, numbered as they are met; 0 begins a text."""

    name, vocab_size, bos = "words", 64, 0

    def __init__(self):
        self.known: dict[str, int] = {}

    def encode(self, text):
        pieces, word = [], ""
        for place, symbol in enumerate(text):
            if symbol == " " and place and word.strip():
                pieces, word = [*pieces, word], ""
            word += symbol
        pieces += [word] if word else []
        return np.array(
            [1 + self.known.setdefault(piece, len(self.known)) for piece in pieces], dtype=np.int64
        )

    def decode(self, ids):
        names = {number + 1: word for word, number in self.known.items()}
        return "".join(names.get(int(token), "") for token in ids)

    def byte_lengths(self):
        return np.ones(self.vocab_size, dtype=np.int64)

    def to_json(self):
        return "{}"


def preferring(favorites, *, context=32, tokenizer=None):
    """A model that gives each of the listed words twice the probability of any other, whatever stands before.

    ``favorites`` may also map a word to the words that follow it; None stands for every other word.
    """
    words = tokenizer or Words()

    def model(ids):
        model.read.append(ids.clone())
        logits = torch.zeros(*ids.shape, words.vocab_size)
        for line, row in enumerate(ids.tolist()):
            for place, number in enumerate(row):
                before = words.decode([number])
                for word in favorites.get(before, favorites.get(None, [])):
                    logits[line, place, int(words.encode(word)[0])] = np.log(2)
        return logits

    model.config = SimpleNamespace(context=context, vocab_size=words.vocab_size)
    model.read = []
    return model, words
