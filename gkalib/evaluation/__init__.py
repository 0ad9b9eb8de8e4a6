"""Measures trained models: images classified, bits per byte of text, tasks that a model of text can do."""

from gkalib.data.tasks import Choice, Completion, Item, Schema
from gkalib.evaluation.metrics import accuracy, bits_per_byte, evaluating, text_loss
from gkalib.evaluation.scorer import (
    Answer,
    Comparison,
    Core,
    Score,
    TaskResult,
    answers,
    centered,
    compare,
    core,
    evaluate,
    result_of,
    score,
)
from gkalib.evaluation.tasks import TASKS, Row, Task, rows
from gkalib.extras import moved

__getattr__ = moved(
    __name__,
    {
        "accuracy_sums": "accuracy(total=)",
        "accuracy_of": "accuracy(total=)",
        "bit_sums": "text_loss(total=)",
        "bits_of": "text_loss(total=)",
        "SIX": "list(TASKS)[:6]",
    },
)

__all__ = [
    "TASKS",
    "Answer",
    "Choice",
    "Comparison",
    "Completion",
    "Core",
    "Item",
    "Row",
    "Schema",
    "Score",
    "Task",
    "TaskResult",
    "accuracy",
    "answers",
    "bits_per_byte",
    "centered",
    "compare",
    "core",
    "evaluate",
    "evaluating",
    "result_of",
    "rows",
    "score",
    "text_loss",
]
