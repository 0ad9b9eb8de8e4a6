"""Benchmarks: what the library does, timed beside what it could be replaced by."""
