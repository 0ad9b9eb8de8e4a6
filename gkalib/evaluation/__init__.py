"""Measures trained models: images classified, bits per byte of text, tasks that a model of text can do."""

from gkalib.data.tasks import Choice, Completion, Item, Schema
from gkalib.evaluation.metrics import (
    accuracy,
    accuracy_of,
    accuracy_sums,
    bit_sums,
    bits_of,
    bits_per_byte,
    evaluating,
)
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
from gkalib.evaluation.tasks import SIX, TASKS, Row, Task, rows

__all__ = [
    "SIX",
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
    "accuracy_of",
    "accuracy_sums",
    "answers",
    "bit_sums",
    "bits_of",
    "bits_per_byte",
    "centered",
    "compare",
    "core",
    "evaluate",
    "evaluating",
    "result_of",
    "rows",
    "score",
]
