"""The variants that all laws run over: one line each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from gkalib.layers import attention
from gkalib.masks import Causal

DIM, HEADS, LENGTH = 32, 4, 16


@dataclass(frozen=True)
class Variant:
    """A variant in small; one that is causal only has its mask.

    Args:
        parameters: of one layer by the paper's formula, from D, H and N; the output projection has a bias,
            those of the input have none.
        limit: the test that shows it equal to its nearest neighbor in a limit.
        options: with which it is built for width 32, 4 heads and 16 tokens.
        permutes: whether permuting the tokens permutes the output.
        smooth: whether the output is a smooth function of the tokens, so that differences check gradients.
    """

    parameters: Callable[[int, int, int], int]
    limit: str
    options: dict[str, Any] = field(default_factory=dict)
    permutes: bool = True
    smooth: bool = True
    flexible: bool = True

    def make(self, name: str, **layer: Any) -> nn.Module:
        """A layer of it."""
        variant = attention(name, **self.options)
        sized = {"length": LENGTH} if getattr(variant, "sized", False) else {}
        made = variant(DIM, HEADS, **{**sized, **layer})
        if only_causal(name):
            made.mask = Causal()
        return made


def only_causal(name: str) -> bool:
    """Whether a variant is defined under a causal mask alone."""
    return getattr(attention(name), "only_causal", False)


def projected(d: int, h: int, n: int) -> int:
    """Query, key, value and output."""
    return 4 * d * d + d


VARIANTS = {
    "softmax": Variant(projected, "test_softmax.py::test_it_is_timms_layer"),
    "qk_norm": Variant(
        lambda d, h, n: projected(d, h, n) + 1,
        "test_qk_norm.py::test_it_is_rbf_attention_on_the_sphere_with_gamma_half_the_factor",
    ),
    "rbf": Variant(projected, "test_rbf.py::test_half_the_articles_gamma_is_softmax_attention_without_votes"),
    "l2": Variant(lambda d, h, n: 3 * d * d + d, "test_l2.py::test_it_is_the_papers_formula"),
    "gka": Variant(
        lambda d, h, n: d * d + d + h,
        "test_gka.py::test_on_a_sphere_it_is_softmax_attention_of_the_tokens_themselves",
    ),
    "vlt": Variant(
        lambda d, h, n: 3 * d * d + d,
        "test_vlt.py::test_it_is_softmax_attention_with_an_identity_for_values",
    ),
    "gpa": Variant(
        lambda d, h, n: projected(d, h, n) + 4 * 5 * h,
        "test_gpa.py::test_a_bank_of_zeros_is_softmax_attention_and_stays_zero",
        {"num_terms": 5, "length": 20.0, "tau": (2.0, 9.0), "sigma": 0.5},
        permutes=False,
    ),
    "karat": Variant(
        lambda d, h, n: projected(d, h, n) + h * (2 * 3 + 3) * 4 * n,
        "test_karat.py::test_hybrid_heads_are_softmax_attention",
        {"rank": 4, "base": "silu"},  # the paper's base is zero, and its scale then learns nothing
        permutes=False,
        flexible=False,
    ),
    "krause": Variant(
        lambda d, h, n: projected(d, h, n) + h,
        "test_krause.py::test_all_keys_without_a_window_are_rbf_attention",
        {"top_k": 5},
        smooth=False,
    ),
    "non_local": Variant(
        lambda d, h, n: 2 * d * d + d,
        "test_non_local.py::test_the_embedded_form_is_softmax_attention_at_half_the_width_and_scale_one",
        {"identity": False},
    ),
    "linear": Variant(projected, "test_linear.py::test_the_formula"),
    "performer": Variant(projected, "test_performer.py::test_more_features_come_closer_to_softmax"),
    "rpe": Variant(
        lambda d, h, n: projected(d, h, n) + h * (2 * n - 1),
        "test_rpe.py::test_without_a_table_it_is_the_linear_transformer",
        permutes=False,
    ),
    "linformer": Variant(
        lambda d, h, n: projected(d, h, n) + 2 * 4 * n,
        "test_low_rank.py::test_linformer_with_identities_is_softmax_attention",
        {"rank": 4},
        permutes=False,
        flexible=False,
    ),
    "nystrom": Variant(
        projected,
        "test_low_rank.py::test_nystrom_with_every_landmark_and_the_exact_inverse_is_softmax_attention",
        {"landmarks": 4},
        permutes=False,
        flexible=False,
    ),
    "skyformer": Variant(
        projected,
        "test_low_rank.py::test_skyformer_with_every_token_a_landmark_is_exact",
        {"landmarks": 8},
        permutes=False,
        flexible=False,
    ),
    "local_linear": Variant(
        lambda d, h, n: projected(d, h, n) + h,
        "test_local_linear.py::test_a_large_ridge_is_softmax_attention",
    ),
    "parallax": Variant(
        lambda d, h, n: projected(d, h, n) + d * d,
        "test_local_linear.py::test_parallax_starts_as_softmax_attention",
    ),
    "forgetting": Variant(
        lambda d, h, n: projected(d, h, n) + (d + 1) * h,
        "test_memories.py::test_a_gate_that_forgets_nothing_is_softmax_attention",
        permutes=False,
    ),
    "gated": Variant(
        lambda d, h, n: projected(d, h, n) + (d + 1) * h,
        "test_memories.py::test_a_fixed_clock_is_retention",
        permutes=False,
        flexible=False,
    ),
    "delta": Variant(
        lambda d, h, n: projected(d, h, n) + (d + 1) * h,
        "test_memories.py::test_where_nothing_fades_the_gated_delta_rule_is_the_delta_rule",
        permutes=False,
        flexible=False,
    ),
    "gated_delta": Variant(
        lambda d, h, n: projected(d, h, n) + 2 * (d + 1) * h,
        "test_memories.py::test_where_nothing_fades_the_gated_delta_rule_is_the_delta_rule",
        permutes=False,
        flexible=False,
    ),
    "mesa": Variant(
        lambda d, h, n: projected(d, h, n) + (d + 1) * h + h,
        "test_memories.py::test_a_large_ridge_makes_mesa_a_gated_memory",
        permutes=False,
        flexible=False,
    ),
    "mixed": Variant(
        lambda d, h, n: d * d + d + 3 + 3 * d * d // 4,
        "test_mixed.py::test_heads_of_one_variant_are_that_variant",
        {"heads": {"gka": 3, "softmax": 1}},
    ),
}
