"""Nyström, Linformer and Skyformer: exact where they claim it, the papers' formulas, and what they refuse."""

from itertools import pairwise

import pytest
import torch

from gkalib import kernels, masks, normalizers
from gkalib.smoothing import Linformer, Nystrom, Skyformer, smooth
from gkalib.smoothing.methods.landmarks import pseudo_inverse, segment_means
from tests.tolerance import equal

EXP, GAUSSIAN, PLAIN = kernels.ExpDot(), kernels.Gaussian(1.5), normalizers.Unnormalized()


def qkv(n=12, m=None, d=5):
    return [torch.randn(2, 3, size, d, dtype=torch.float64) for size in (n, m or n, m or n)]


def error(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("singular", [False, True])
def test_the_pseudo_inverse_by_singular_values(singular):
    matrix = torch.randn(3, 6, 6, dtype=torch.float64)
    if singular:
        matrix[..., -1] = matrix[..., 0]
    inverse = pseudo_inverse(matrix)
    equal(matrix @ inverse @ matrix, matrix)
    equal((matrix @ inverse).mT, matrix @ inverse)


def test_the_iteration_maps_every_singular_value_by_its_polynomial():
    left, right = (torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0] for _ in range(2))
    singular = torch.tensor([1.0, 0.5, 0.2, 0.1, 0.03, 0.001], dtype=torch.float64)
    matrix = left * singular @ right.mT
    bound = torch.tensor(1.3, dtype=torch.float64)
    t = singular.square() / bound
    for steps in range(1, 12):
        t = t * (13 - t * (15 - t * (7 - t))) / 4
        # A direction with s = 0.001 is formed from sums of numbers a thousand times as large.
        assert error(pseudo_inverse(matrix, steps, bound=bound), right * (t / singular) @ left.mT) < 1e-11


def test_six_steps_leave_small_singular_values_out_and_more_steps_find_them():
    left = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0]
    singular = torch.tensor([1.0, 0.5, 0.1, 0.005], dtype=torch.float64)
    matrix = left * singular @ left.mT
    exact = torch.linalg.inv(matrix)
    inverted = [(left.mT @ pseudo_inverse(matrix, steps) @ left).diagonal() * singular for steps in (6, 20)]
    assert inverted[0][0] > 0.99 and inverted[0][3] < 0.05
    assert (inverted[1] > 0.99).all()
    equal(pseudo_inverse(matrix, 40), exact)


@pytest.mark.parametrize("rank", [1, 3, 5, 12])
def test_segments_cover_every_token_once(rank):
    tokens = torch.randn(2, 3, 12, 4, dtype=torch.float64)
    ends = [-(-12 * i // rank) for i in range(rank + 1)]
    means = [tokens[:, :, a:b].mean(2) for a, b in pairwise(ends)]
    assert max(b - a for a, b in pairwise(ends)) <= -(-12 // rank)
    equal(segment_means(tokens, rank, None), torch.stack(means, dim=2))
    short = segment_means(tokens, min(rank, 7), torch.tensor([12, 7]))
    equal(short[1], segment_means(tokens[1:, :, :7], min(rank, 7), None)[0])


@pytest.mark.parametrize("kernel", [EXP, GAUSSIAN, kernels.Laplace(1.0)])
@pytest.mark.parametrize("normalizer", [normalizers.RowSum(), normalizers.RowSum(eps=0.1)])
def test_nystrom_with_all_landmarks_and_the_exact_inverse_is_the_definition(kernel, normalizer):
    query, key, value = qkv()
    found = smooth(query, key, value, kernel, normalizer=normalizer, method=Nystrom(12, iterations=None))
    exact = smooth(query, key, value, kernel, normalizer=normalizer)
    assert error(found, exact) < 1e-9  # the inverse's condition number, not rounding alone, sets the error


def test_nystrom_is_three_small_smoothers():
    query, key, value = qkv(12, 8)
    few_q = query.unflatten(2, (4, 3)).mean(3)
    few_k = key.unflatten(2, (4, 2)).mean(3)
    first, middle, last = (
        (a @ b.mT / 5**0.5).softmax(-1) for a, b in ((query, few_k), (few_q, few_k), (few_q, key))
    )
    for steps in (6, None):
        expected = first @ pseudo_inverse(middle, steps) @ last @ value
        equal(smooth(query, key, value, EXP, method=Nystrom(4, iterations=steps)), expected)


def test_nystrom_reproduces_constants_with_the_exact_inverse_only():
    query, key, _ = qkv()
    ones = torch.ones(2, 3, 12, 1, dtype=torch.float64)
    equal(smooth(query, key, ones, EXP, method=Nystrom(4, iterations=None)), ones)
    stopped = smooth(query, key, ones, EXP, method=Nystrom(4, iterations=1))
    assert (stopped - 1).abs().max() > 0.1


@pytest.mark.parametrize("shape", ["one", "per head"])
def test_linformer_with_identities_is_the_definition(shape):
    query, key, value = qkv(9, 12)
    eye = torch.eye(12, dtype=torch.float64)
    eye = eye if shape == "one" else eye.expand(3, 12, 12)
    for kernel in (EXP, GAUSSIAN):
        equal(smooth(query, key, value, kernel, method=Linformer(eye)), smooth(query, key, value, kernel))


def test_linformer_is_the_papers_formula():
    query, key, value = qkv()
    e, f = torch.randn(2, 3, 4, 12, dtype=torch.float64)
    expected = (query @ (e @ key).mT / 5**0.5).softmax(-1) @ (f @ value)
    equal(smooth(query, key, value, EXP, method=Linformer(e, f)), expected)
    expected = (query @ (e @ key).mT / 5**0.5).softmax(-1) @ (e @ value)
    equal(smooth(query, key, value, EXP, method=Linformer(e)), expected)


def test_linformer_learns_its_maps_where_they_are_parameters():
    query, key, value = qkv()
    method = Linformer(
        torch.nn.Parameter(torch.randn(4, 12, dtype=torch.float64)), torch.randn(4, 12).double()
    )
    smooth(query, key, value, EXP, method=method).square().sum().backward()
    assert [name for name, _ in method.named_parameters()] == ["key_map"]
    assert method.key_map.grad.abs().max() > 0


def test_the_scaling_identity_of_kernelized_attention():
    query, key, value = qkv()
    root_d = 5**0.5
    d_query, d_key = ((one.square().sum(-1) / root_d).exp() for one in (query, key))
    scaled = d_query[..., None] ** -0.5 * (query @ key.mT / root_d).exp() * d_key[..., None, :] ** -0.5
    exact = smooth(query, key, value, kernels.Gaussian(5**0.25), normalizer=PLAIN)
    equal(exact, scaled @ value)


@pytest.mark.parametrize("iterations", [6, None])
def test_skyformer_is_the_authors_formula_on_the_tokens_drawn(iterations):
    query, key, value = qkv(12, 10)
    method = Skyformer(6, ridge=0.1, iterations=iterations, seed=3)
    fractions = method._fractions
    queries = [int(f * 12) for f in fractions[:3]]
    keys = [int(f * 10) for f in fractions[3:]]
    marks = torch.cat([query[:, :, queries], key[:, :, keys]], dim=2)

    def gram(a, b):
        return (-(a[..., :, None, :] - b[..., None, :, :]).square().sum(-1) / (2 * 1.5**2)).exp()

    middle = gram(marks, marks) + 0.1 * torch.eye(6, dtype=torch.float64)
    if iterations is None:
        inverse = middle.inverse()
    else:
        root = torch.diag_embed(middle.sum(-1).rsqrt())
        scaled = root @ middle @ root
        steps = scaled.mT / scaled.sum(-2).amax(-1)[..., None, None]
        eye = torch.eye(6, dtype=torch.float64)
        for _ in range(iterations):
            p = scaled @ steps
            steps = 0.25 * steps @ (13 * eye - p @ (15 * eye - p @ (7 * eye - p)))
        inverse = root @ steps @ root
    expected = gram(query, marks) @ inverse @ gram(marks, key) @ value
    equal(smooth(query, key, value, GAUSSIAN, normalizer=PLAIN, method=method), expected)


def test_skyformers_draws_come_from_its_seed():
    query, key, value = qkv(40)
    slots = {"kernel": GAUSSIAN, "normalizer": PLAIN}

    def run(seed):
        return smooth(query, key, value, method=Skyformer(8, seed=seed), **slots)

    equal(run(1), run(1))
    assert error(run(2), run(1)) > 1e-3
    assert error(run(None), run(None)) > 1e-3


def test_the_lifted_matrix_is_approximated_from_below():
    """The Nyström residual of a positive semi-definite matrix is positive semi-definite."""
    tokens = torch.randn(1, 1, 20, 4, dtype=torch.float64)
    eye = torch.eye(20, dtype=torch.float64)[None, None]
    exact = smooth(tokens, tokens, eye, GAUSSIAN, normalizer=PLAIN)
    for ridge in (0.0, 0.1):
        method = Skyformer(10, ridge=ridge, iterations=None)
        found = smooth(tokens, tokens, eye, GAUSSIAN, normalizer=PLAIN, method=method)
        eigenvalues = torch.linalg.eigvalsh((exact - found)[0, 0])
        assert eigenvalues.min() > -1e-9 and eigenvalues.max() > 0.1


METHODS = {
    "nystrom": (Nystrom(4), EXP, normalizers.RowSum()),
    "nystrom, 5 segments": (Nystrom(5, iterations=None), GAUSSIAN, normalizers.RowSum()),
    "linformer": (Linformer(torch.randn(5, 12, dtype=torch.float64)), EXP, normalizers.RowSum()),
    "skyformer": (Skyformer(8), GAUSSIAN, PLAIN),
    "skyformer, spaced": (Skyformer(8, sampling="spaced", iterations=None), GAUSSIAN, PLAIN),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_padded_batch_is_its_sequences_one_by_one(name):
    method, kernel, normalizer = METHODS[name]
    query, key, value = qkv()
    slots = {"kernel": kernel, "normalizer": normalizer, "method": method}
    both = smooth(query, key, value, mask=masks.KeyPadding(torch.tensor([12, 7])), **slots)
    equal(both[0], smooth(query[:1], key[:1], value[:1], **slots)[0])
    alone = smooth(query[1:, :, :7], key[1:, :, :7], value[1:, :, :7], **slots)
    equal(both[1, :, :7], alone[0])


@pytest.mark.parametrize("name", METHODS)
def test_padding_is_as_good_as_absent_for_keys_of_other_tokens(name):
    method, kernel, normalizer = METHODS[name]
    query, key, value = qkv(9, 12)
    slots = {"kernel": kernel, "normalizer": normalizer, "method": method}
    padded = smooth(query, key, value, mask=masks.KeyPadding(torch.tensor([8, 8])), **slots)
    equal(padded, smooth(query, key[:, :, :8], value[:, :, :8], **slots))


@pytest.mark.parametrize("name", METHODS)
def test_gradients(name):
    method, kernel, normalizer = METHODS[name]
    inputs = [one[:1, :1].requires_grad_() for one in qkv(12, d=3)]

    def run(query, key, value):
        return smooth(query, key, value, kernel, normalizer=normalizer, method=method)

    torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("name", METHODS)
def test_half_precision_is_computed_in_float32(name):
    method, kernel, normalizer = METHODS[name]
    inputs = [one.bfloat16() for one in qkv()]
    found = smooth(*inputs, kernel, normalizer=normalizer, method=method)
    exact = smooth(*(one.double() for one in inputs), kernel, normalizer=normalizer, method=method)
    assert found.dtype == torch.bfloat16
    assert error(found.double(), exact) < 0.02  # a few spacings of bfloat16, 2⁻⁸


LENGTHS = masks.KeyPadding(torch.tensor([12, 3]))


@pytest.mark.parametrize(
    ("method", "slots", "message"),
    [
        (Nystrom(4), {"mask": masks.Causal()}, r"Causal\(\) forbids pairs of query and key, and a landmark"),
        (Nystrom(4), {"mask": masks.Window(3)}, r"Window\(3\) forbids pairs"),
        (Nystrom(13), {}, "nystrom cannot compute this: 13 landmarks are more than the 12 tokens"),
        (Nystrom(4), {"mask": LENGTHS}, "4 landmarks are more than the 3 tokens of the shortest sequence"),
        (Nystrom(4), {"normalizer": normalizers.TopK(2)}, r"TopK\(2\) needs the weights one by one"),
        (Linformer(torch.ones(3, 12)), {"mask": masks.Causal()}, "every new key is made of all tokens"),
        (Linformer(torch.ones(3, 9)), {}, "its maps are made for 9 tokens, key has 12"),
        (Linformer(torch.ones(2, 3, 12)), {}, "its maps are made for 2 heads, query has 3"),
        (Skyformer(8), {"kernel": EXP}, "made for Gaussian, not ExpDot"),
        (Skyformer(8), {"kernel": GAUSSIAN}, r"may be zero or negative, so no RowSum\(\)"),
        (
            Skyformer(8),
            {"kernel": GAUSSIAN, "normalizer": PLAIN, "mask": masks.Causal()},
            r"Causal\(\) forbids pairs",
        ),
        (
            Skyformer(26),
            {"kernel": GAUSSIAN, "normalizer": PLAIN},
            "half of the 26 landmarks are more than the 12 tokens",
        ),
        (
            Skyformer(8),
            {"kernel": GAUSSIAN, "normalizer": PLAIN, "mask": LENGTHS},
            "half of the 8 landmarks are more than the 3 tokens of the shortest",
        ),
    ],
)
def test_what_a_method_cannot_compute_it_refuses_with_the_reason(method, slots, message):
    with pytest.raises(ValueError, match=message):
        smooth(*qkv(), **{"kernel": EXP, "method": method, **slots})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nystrom(0), "Nystrom: rank must be at least 1, not 0"),
        (lambda: Nystrom(4, iterations=0), "Nystrom: iterations must be at least 1, not 0"),
        (lambda: Linformer(torch.ones(3)), r"Linformer: key_map must be \[r m\] or \[h r m\], not \[3\]"),
        (lambda: Linformer(torch.ones(3, 8), torch.ones(4, 8)), "differ in r or m"),
        (lambda: Skyformer(7), "Skyformer: rank must be even, half queries and half keys, not 7"),
        (lambda: Skyformer(0), "Skyformer: rank must be even"),
        (lambda: Skyformer(8, ridge=-1.0), "Skyformer: ridge must be zero or positive, not -1.0"),
        (lambda: Skyformer(8, sampling="first"), "no sampling 'first'. Known: uniform, spaced"),
        (lambda: Skyformer(8, iterations=0), "Skyformer: iterations must be at least 1"),
    ],
)
def test_bad_options_are_refused_when_a_method_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()
