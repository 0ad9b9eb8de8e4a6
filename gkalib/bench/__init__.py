"""Benchmarks: what the library does, timed beside what it could be replaced by."""

from gkalib.extras import moved

__getattr__ = moved(__name__, {"charts": "chapters.figures.benchmarks, and steps chapters.figures.decoding"})
