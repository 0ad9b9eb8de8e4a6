"""Which rows a step reads: all of them once an epoch, the same ones whoever asks, with keys of their own."""

import numpy as np
import pytest

from gkalib.training.sampler import Sampler, key


def rows(order: Sampler, steps: range) -> list[int]:
    """The rows of whole steps, put together from their parts in the order of the stream."""
    actual = []
    for step in steps:
        parts = [order.part(step, number).rows for number in range(order.parts)]
        actual += np.stack(parts, axis=1).ravel().tolist()
    return actual


def test_every_row_is_read_once_an_epoch_in_another_order_each_time():
    order = Sampler(24, batch=4, parts=2, seed=3)
    first, second = rows(order, range(6)), rows(order, range(6, 12))
    assert sorted(first) == sorted(second) == list(range(24))
    assert first != second != sorted(second)


def test_an_epoch_that_no_step_ends_with_goes_on_within_the_step():
    order = Sampler(10, batch=4, parts=1, seed=0)
    stream = rows(order, range(15))
    assert [sorted(stream[10 * epoch : 10 * epoch + 10]) for epoch in range(6)] == [list(range(10))] * 6


@pytest.mark.parametrize("kind", ["shuffled", "sequential"])
def test_how_often_a_row_is_read_is_counted_without_reading(kind):
    for steps in (0, 1, 2, 3, 15):
        order = Sampler(10, batch=4, parts=2, seed=0, kind=kind)
        counted = np.bincount(rows(order, range(steps)), minlength=10) if steps else np.zeros(10)
        assert order.times(steps).tolist() == counted.tolist()


def test_the_parts_partition_a_step_however_many_there_are():
    whole = rows(Sampler(50, batch=12, parts=1, seed=1), range(9))
    for parts in (2, 3, 4, 6, 12):
        order = Sampler(50, batch=12, parts=parts, seed=1)
        assert rows(order, range(9)) == whole
        assert {len(order.part(2, number).rows) for number in range(parts)} == {12 // parts}


def test_the_keys_of_a_sample_do_not_depend_on_the_parts_and_are_never_used_twice():
    undivided, divided = (Sampler(7, batch=6, parts=parts, seed=1) for parts in (1, 2))
    for step in range(4):
        halves = [divided.part(step, number).keys for number in range(2)]
        assert [each for pair in zip(*halves, strict=True) for each in pair] == undivided.part(step, 0).keys
    keys = [each for step in range(500) for each in undivided.part(step, 0).keys]
    assert len(set(keys)) == 3000
    assert all(0 <= each < 2**63 for each in keys)


@pytest.mark.parametrize("kind", ["shuffled", "random", "sequential"])
def test_a_part_is_a_function_of_the_step_and_nothing_else(kind):
    order = Sampler(30, batch=4, parts=2, seed=5, kind=kind)
    there = {(step, number): order.part(step, number) for step in range(20) for number in range(2)}
    np.random.default_rng(0).random(10)
    again = Sampler(30, batch=4, parts=2, seed=5, kind=kind)
    for step, number in sorted(there, reverse=True):
        part = again.part(step, number)
        assert part.rows.tolist() == there[step, number].rows.tolist()
        assert part.keys == there[step, number].keys


def test_another_seed_is_another_order_and_other_keys():
    first, second = (Sampler(100, batch=50, parts=1, seed=seed).part(0, 0) for seed in (0, 1))
    assert first.rows.tolist() != second.rows.tolist()
    assert not set(first.keys) & set(second.keys)


def test_repeats_take_a_row_so_often_in_a_row_and_fewer_rows_an_epoch():
    order = Sampler(12, batch=6, parts=1, seed=0, repeats=3)
    plain = rows(Sampler(12, batch=12, parts=1, seed=0), range(1))
    assert rows(order, range(2)) == [row for row in plain[:4] for _ in range(3)]
    part = order.part(0, 0)
    assert len(set(part.keys)) == 6  # each copy is augmented in its own way
    assert set(rows(order, range(2))) != set(rows(order, range(2, 4)))


def test_sequential_reads_the_rows_as_they_stand():
    assert rows(Sampler(5, batch=4, parts=2, seed=9, kind="sequential"), range(3)) == [
        *range(5),
        *range(5),
        0,
        1,
    ]


def test_random_draws_every_row_about_equally_often():
    order = Sampler(4, batch=1000, parts=4, seed=0, kind="random")
    counts = np.bincount(rows(order, range(4)), minlength=4)
    assert counts.sum() == 4000 and (abs(counts - 1000) < 5 * (1000 * 3 / 4) ** 0.5).all()
    assert order.part(0, 0).rows.tolist() != order.part(0, 1).rows.tolist()


def test_a_key_depends_on_every_number_and_on_their_order():
    keys = {key(a, b, c) for a in range(4) for b in range(4) for c in range(4)}
    assert len(keys) == 64
    assert key(1, 2, 3) == key(1, 2, 3)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match=r"^train: the data has no rows to train on"):
        Sampler(0, batch=4, parts=1, seed=0)
