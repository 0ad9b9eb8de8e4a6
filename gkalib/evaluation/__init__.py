"""Measures trained models: images classified, bits per byte of text, tasks that a model of text can do."""

from gkalib.evaluation.bpb import bit_sums, bits_of, bits_per_byte
from gkalib.evaluation.classification import accuracy, accuracy_of, accuracy_sums
from gkalib.evaluation.items import Choice, Completion, Item, Row, Schema, rows
from gkalib.evaluation.outcome import Core, TaskResult, centered, core
from gkalib.evaluation.paired import Comparison, compare
from gkalib.evaluation.scorer import Answer, Score, answers, evaluate, result_of, score
from gkalib.evaluation.tasks import SIX, TASKS, Task

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
    "result_of",
    "rows",
    "score",
]
