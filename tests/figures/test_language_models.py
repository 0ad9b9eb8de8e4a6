"""A run that forgets its generator reads a text again; one that forgets its optimizer only goes astray."""

import torch

from chapters.figures.language_models import usual_run
from gkalib.models import GPTConfig

SIZES = GPTConfig(vocab_size=7, context=8, dim=8, depth=1, num_heads=1)
STREAM = torch.randint(7, (200,), generator=torch.Generator().manual_seed(0))


def test_a_checkpoint_with_all_states_changes_nothing():
    path, begins = usual_run(STREAM, SIZES, steps=4)
    again, same = usual_run(STREAM, SIZES, steps=4, stop=2)
    assert torch.equal(path, again) and begins == same and len(path) == 4


def test_what_is_forgotten_decides_what_changes():
    path, begins = usual_run(STREAM, SIZES, steps=6)
    repeated, twice = usual_run(STREAM, SIZES, steps=6, stop=3, forgets="generator")
    astray, once = usual_run(STREAM, SIZES, steps=6, stop=3, forgets="optimizer")
    assert twice == 2 * begins[:3] and once == begins
    for other in (repeated, astray):
        assert torch.equal(path[:3], other[:3]) and not torch.equal(path[3], other[3])
