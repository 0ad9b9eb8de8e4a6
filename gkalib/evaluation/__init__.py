"""Measures trained models: images classified, bits per byte of text, tasks that a model of text can do."""

from gkalib.evaluation.bpb import bit_sums, bits_of, bits_per_byte
from gkalib.evaluation.classification import accuracy, accuracy_of, accuracy_sums

__all__ = ["accuracy", "accuracy_of", "accuracy_sums", "bit_sums", "bits_of", "bits_per_byte"]
