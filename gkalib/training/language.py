"""The training loop of decoders of text, in reading order, from a run to a record."""

from collections.abc import Iterator
from statistics import fmean, median

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.data.rows import IGNORED, Documents, Rows
from gkalib.data.tokenizers import Tokenizer
from gkalib.data.tokens import TextData, text_data
from gkalib.evaluation import bit_sums, bits_of, evaluating
from gkalib.models import GPT
from gkalib.training import log
from gkalib.training.config import LanguageConfig, LaunchConfig
from gkalib.training.distributed import Processes, start
from gkalib.training.loop import Trainer
from gkalib.training.sampler import Kind, Sampler

# Windows begin anywhere, so that there are more of them than a run reads. Documents are read once each before
# one is read again. Packed rows were filled from a stream and are read as it came.
ORDERS: dict[str, Kind] = {"windows": "random", "documents": "shuffled", "packed": "sequential"}
SAMPLED = 200  # tokens of a sample
LATE = 0.1  # of the steps, over which the training loss of the record is the mean


def train(run: LanguageConfig, launch: LaunchConfig) -> results.Record:
    """Train a decoder of text and measure it on the part of the text that was held out.

    The record has ``val_loss``, nats per token, and ``bits_per_byte``, both of held-out rows, ``train_loss``
    over the last tenth of the steps, how many ``parameters`` there are, how many ``tokens`` went through the
    model, and how many of them had a label, ``targets``. Papers state the first, rows times context, as
    nanochat does; rows of documents are padded, and have fewer labels than that. Records from before
    ``targets`` was measured have ``tokens`` alone.

    Args:
        run: every setting that decides the result.
        launch: where and how.

    Raises:
        ValueError: if the text is missing, the model's vocabulary is not the tokenizer's, or the trainer
            cannot begin or go on.

    References:
        Vaswani et al., Attention is all you need, 2017; Radford et al., Language models are unsupervised
        multitask learners, 2019. Chapter 20 reads it line by line.
    """
    data = data_of(run, start(launch.device))
    order = Sampler(len(data.train), run.batch, run.parts, run.seed, ORDERS[run.rows])
    with Trainer(run, launch, data.tokenizer) as trainer:
        model, found = trainer.build(), None
        for step in trainer.steps():
            trainer.begin(step)
            trainer.update(step, learn(trainer, model, data.train, order, step))
            if trainer.due(step) or step + 1 == run.steps:
                found = measure(run, trainer.processes, model, data)
                trainer.measured(step, **found)
                trainer.sample(step, sample(trainer, data.tokenizer))
        found = found or measure(run, trainer.processes, model, data)  # of a run that was finished before
        loss, rate = course(trainer)
        sizes = {
            "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
            "tokens": run.steps * run.batch * run.model.context,
            "targets": targets(run, data.train, order),
        }
        return trainer.record({**found, "train_loss": loss, **sizes}, rate=rate)


def data_of(run: LanguageConfig, processes: Processes) -> TextData:
    """The rows of text that a run reads; the main process prepares what is then kept for all.

    Raises:
        ValueError: if they are missing, or the model has another vocabulary than the tokenizer.
    """
    made: list[TextData] = []

    def prepare() -> None:
        made.append(
            text_data(
                run.data,
                tokenizer=run.tokenizer,
                vocab_size=run.model.vocab_size,
                rows=run.rows,
                context=run.model.context,
                wrap=run.wrap,
                limit=run.limit,
                registers=run.model.registers,
            )
        )

    processes.first(prepare)
    if not made:
        prepare()
    return made[0]


def learn(trainer: Trainer, model: nn.Module, rows: Rows, order: Sampler, step: int) -> Float[Tensor, ""]:
    """Leave the gradient of a step in the parameters; returns what this process's parts have of its loss.

    The loss is the mean over all targets of the step, wherever they are computed: each part's sum is divided
    by the targets of all parts of all processes. So parts add up, of one process or of many, whatever share
    of a part is padding.
    """
    device = trainer.processes.device
    batches = [(number, *rows.batch(order.part(step, number).rows)) for number in trainer.share]
    targets = trainer.processes.total(
        torch.stack([(labels != IGNORED).sum() for _, _, labels in batches]).sum()
    )
    total = torch.zeros((), device=device)
    for number, inputs, labels in batches:
        trainer.seed(step, number)
        with trainer.precision():
            logits = model(inputs.to(device))
            loss = nats(logits, labels.to(device)) / targets.clamp(min=1)
        trainer.backward(loss)
        total += loss.detach()
    return total


def targets(run: LanguageConfig, rows: Rows, order: Sampler) -> int:
    """How many labels a run is trained on: one at every place of its rows, but for padding."""
    if isinstance(rows, Documents):
        return int(rows.targets() @ order.times(run.steps))
    return run.steps * run.batch * rows.context


def nats(logits: Float[Tensor, "b n v"], labels: Int[Tensor, "b n"]) -> Float[Tensor, ""]:
    """The sum of −ln p(label) over the labels that are not −1, in float32."""
    return cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def measure(run: LanguageConfig, processes: Processes, model: nn.Module, data: TextData) -> dict[str, float]:
    """The loss per token and the bits per byte of ``run.eval_rows`` held-out rows, over all processes."""
    with run.precision(processes.device):
        sums = bit_sums(model, held_out(run, processes, data.held_out), data.tokenizer.byte_lengths())
    found = bits_of(processes.total(sums))
    return {"val_loss": found["loss"], "bits_per_byte": found["bpb"]}


def sample(trainer: Trainer, tokenizer: Tokenizer) -> str:
    """What the model writes after the prompt, from the same draws each time.

    Every process computes it, since each may hold only a part of the weights.
    """
    run, decoder = trainer.run, trainer.model
    assert isinstance(run, LanguageConfig) and isinstance(decoder, GPT)
    begin = [] if tokenizer.bos is None or run.rows == "documents" else [tokenizer.bos]
    ids = (begin + tokenizer.encode(run.prompt).tolist())[: run.model.context - 1]
    begun = torch.tensor([ids or [0]], device=trainer.processes.device)
    count = min(SAMPLED, run.model.context - begun.shape[1])
    try:
        with evaluating(decoder), trainer.precision():
            written = decoder.generate(begun, count, seed=run.seed)
    except ValueError as error:  # a variant that cannot decode token by token can still be trained
        return f"no sample: {error}"
    return tokenizer.decode(written[0, len(begin) :].tolist())


def course(trainer: Trainer) -> tuple[float, float]:
    """The mean training loss over the last tenth of the steps, and the median of the tokens per second."""
    found = torch.zeros(2, dtype=torch.float64)
    if trainer.processes.main:  # which keeps the curve
        rows = [row for row in log.read_curve(trainer.folder / log.CURVE) if row["loss"]]
        late = [float(row["loss"]) for row in rows if int(row["step"]) > (1 - LATE) * trainer.run.steps]
        found[0] = fmean(late)
        found[1] = median(float(row["items_per_second"]) for row in rows)
    loss, rate = trainer.processes.total(found).tolist()
    return loss, rate


def held_out(run: LanguageConfig, processes: Processes, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's batches of held-out rows, evenly spaced over all.

    Every process has equally many, all of one size: where weights are split over processes, each must take
    part in each pass. What fills up the last batches are the first rows again, without labels.
    """
    count = min(run.eval_rows or len(rows), len(rows))
    stride = run.device_batch * processes.size
    for begin in range(processes.rank * run.device_batch, -(-count // stride) * stride, stride):
        places = np.arange(begin, begin + run.device_batch)
        inputs, labels = rows.batch(places % count * len(rows) // count)
        yield inputs, labels.masked_fill(torch.from_numpy(places >= count)[:, None], IGNORED)
