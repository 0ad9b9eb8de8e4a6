"""Decoders of text: rows of tokens in a step's order, their loss, what is measured, and samples."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib.data.registry import checksum, digest
from gkalib.data.rows import IGNORED, Rows, Stored, Windows
from gkalib.data.tokenizers import Characters
from gkalib.data.tokens import TextData, text_data
from gkalib.evaluation import evaluating, text_loss
from gkalib.models import GPT
from gkalib.training.config import LanguageConfig
from gkalib.training.distributed import Processes
from gkalib.training.loop import Part, Workload
from gkalib.training.sampler import Kind, Sampler

# Windows begin anywhere, so that there are more of them than a run reads. Documents are read once each before
# one is read again. Packed rows were filled from a stream and are read as it came.
ORDERS: dict[str, Kind] = {"windows": "random", "documents": "shuffled", "packed": "sequential"}
SAMPLED = 200  # tokens of a sample


def load_data(config: LanguageConfig, processes: Processes) -> tuple[LanguageConfig, TextData]:
    """The rows of text that a run reads, and its configuration for them.

    The main process prepares what is then kept for all. The characters of a text file of one's own give the
    model the size of its vocabulary, and samples begin with what it has of the prompt.

    Args:
        config: the settings.
        processes: of the run.

    Raises:
        ValueError: if the data is not here, or has another vocabulary than the model.
    """
    data = processes.in_turn(
        lambda: text_data(
            config.data,
            tokenizer=config.tokenizer,
            vocab_size=config.model.vocab_size,
            rows=config.rows,
            context=config.model.context,
            wrap=config.wrap,
            limit=config.limit,
            registers=config.model.registers,
        )
    )
    if config.own_data and isinstance(data.tokenizer, Characters):
        prompt = "".join(symbol for symbol in config.prompt if symbol in data.tokenizer.symbols)
        model = replace(config.model, vocab_size=data.tokenizer.vocab_size)
        config = replace(config, prompt=prompt, model=model)
    return config, data


@final
class TextWorkload(Workload):
    """Rows of text, ``val_loss`` in nats per token and ``bits_per_byte`` of those held out, and samples.

    Papers state ``tokens``, rows times context, as nanochat does; rows of documents are padded, and have
    fewer labels than that, ``targets``. Records from before those were counted have ``tokens`` alone.

    Args:
        config: the settings.
        data: the rows.
        processes: which parts are this one's, and where they are computed.
    """

    config: LanguageConfig
    data: TextData

    def __init__(self, config: LanguageConfig, data: TextData, processes: Processes):
        super().__init__(config, processes)
        self.data, self.tokenizer = data, data.tokenizer.to_json()
        rows = len(data.train)
        self.sampler = Sampler(rows, config.batch, config.parts, config.seed, ORDERS[config.rows])

    def checksum(self, part: Any) -> str:
        """The registry's of a known text; of one's own that of its tokens."""
        if not self.config.own_data:
            return checksum(self.config.data)
        assert isinstance(part, Windows | Stored)
        return digest([part.tokens] if isinstance(part, Windows) else part.arrays)

    def parts(self, start: int) -> Iterator[Part]:
        """Tokens and the tokens that follow, ``[n context]``, and how many of a step's are no padding."""
        device = self.processes.device
        for step in range(start, self.config.steps):
            rows = [self.sampler.part(step, number).rows for number in self.share]
            batches = [self.data.train.batch(part) for part in rows]
            local_count = torch.stack([(labels != IGNORED).sum() for _, labels in batches]).sum()
            count = self.processes.total(local_count).clamp(min=1)
            for inputs, labels in batches:
                yield inputs.to(device), labels.to(device), count

    def nats(self, outputs: Float[Tensor, "b n v"], labels: Int[Tensor, "b n"]) -> Float[Tensor, ""]:
        """The sum of −ln p(label) over the labels that are not −1, in float32."""
        logits = outputs.flatten(0, 1).float()
        return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")

    def measure(self, model: nn.Module) -> dict[str, float]:
        """The loss per token and the bits per byte of held-out rows, over all processes."""
        numbers = self._text_loss(model, self.data.held_out)
        return {"val_loss": numbers["loss"], "bits_per_byte": numbers["bpb"]}

    def measure_training(self, model: nn.Module) -> dict[str, float]:
        """The bits per byte of as many rows of training text, evenly spaced over all."""
        return {"train_bits_per_byte": self._text_loss(model, self.data.train)["bpb"]}

    def _text_loss(self, model: nn.Module, rows: Rows) -> dict[str, float]:
        count = self.config.eval_rows or len(self.data.held_out)
        chosen = held_out(replace(self.config, eval_rows=count), self.processes, rows)
        with self.config.precision(self.processes.device):
            lengths = self.data.tokenizer.byte_lengths()
            return text_loss(model, chosen, lengths, total=self.processes.total)

    def sample(self, model: nn.Module) -> str:
        """What the model writes after the prompt, from the same draws each time."""
        config, tokenizer = self.config, self.data.tokenizer
        assert isinstance(model, GPT)
        first = [] if tokenizer.bos is None or config.rows == "documents" else [tokenizer.bos]
        ids = (first + tokenizer.encode(config.prompt).tolist())[: config.model.context - 1]
        prompt = torch.tensor([ids or [0]], device=self.processes.device)
        count = min(SAMPLED, config.model.context - prompt.shape[1])
        try:
            with evaluating(model), config.precision(self.processes.device):
                generated = model.generate(prompt, count, seed=config.seed)
        except ValueError as error:  # a variant that cannot decode token by token can still be trained
            return f"no sample: {error}"
        return tokenizer.decode(generated[0, len(first) :].tolist())

    def sizes(self) -> dict[str, int]:
        """How many tokens go through the model, and how many labels it is trained on."""
        sizes, rows = super().sizes(), self.data.train
        if isinstance(rows, Stored) and self.config.rows == "documents":
            return {**sizes, "targets": int(rows.targets() @ self.sampler.times(self.config.steps))}
        return {**sizes, "targets": sizes["tokens"]}


def held_out(config: LanguageConfig, processes: Processes, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's batches of rows that are measured, evenly spaced over all.

    Every process has equally many, all of one size. What fills up the last batches are the first rows again,
    without labels.
    """
    count = min(config.eval_rows or len(rows), len(rows))
    stride = config.part * processes.size
    for begin in range(processes.rank * config.part, -(-count // stride) * stride, stride):
        places = np.arange(begin, begin + config.part)
        inputs, labels = rows.batch(places % count * len(rows) // count)
        yield inputs, labels.masked_fill(torch.from_numpy(places >= count)[:, None], IGNORED)
