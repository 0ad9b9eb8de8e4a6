"""What no layer is built with: each variant names the option and what it may be."""

import math
import re

import pytest

from gkalib.layers import attention
from gkalib.normalizers import Fourier, RowOperator
from tests.variants import DIM, HEADS, LENGTH

REFUSED = {
    "gated": [({"clock": "broken"}, "no clock 'broken'. Known: learned, fixed")],
    "gka": [
        ({"sigma": 0.0}, "sigma must be positive and finite, not 0.0"),
        ({"sigma": [1.0, 1.0]}, "Gaussian has parameters for 2 heads, the layer has 4"),
        ({"sigma": [1.0, 1.0, -1.0, 1.0]}, "sigma must be positive and finite, not -1.0"),
        ({"eps": -1e-6}, "eps must be zero or positive, not -1e-06"),
        ({"window": 0}, "window must be at least 1, not 0"),
        ({"values": "rotated"}, "no values 'rotated'. Known: placed, plain"),
        ({"head_dim": 16}, "the heads of x itself need 4 heads × 16 = 64 channels, not 32 of 32"),
        ({"channels": (16, 48)}, "the heads of x itself need 4 heads × 8 = 32 channels, not 32 of 32"),
    ],
    "gpa": [
        ({"num_terms": 0}, "num_terms must be at least 1, not 0"),
        ({"length": 0.0}, "length and tau must be positive and finite, not 0.0 and (4.0, 192.0)"),
        ({"tau": (0.0, 5.0)}, "length and tau must be positive and finite, not 150.0 and (0.0, 5.0)"),
        ({"tau": (4.0, math.inf)}, "length and tau must be positive and finite"),
        ({"tau": (4.0,)}, "tau must be the least and the greatest, two numbers, not"),
        ({"sigma": math.nan}, "alpha and sigma must be finite, not 1.0 and nan"),
        ({"alpha": math.inf}, "alpha and sigma must be finite, not inf and 1.0"),
    ],
    "karat": [
        ({"length": None}, "needs length"),
        ({"rank": 300}, "rank 300 is above the 16 tokens"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"grid": 0}, "Fourier: grid must be at least 1, not 0"),
        ({"basis": "hermite"}, "no basis named 'hermite'. Known: fourier, b_spline"),
        ({"basis": "morlet", "grid": 2}, "the basis 'morlet' has no grid"),
        ({"basis": Fourier(2), "grid": 2}, "grid=2 goes into the basis"),
        ({"mode": "global"}, "no mode 'global'. Known: blockwise, universal"),
        ({"mode": "universal"}, "mode 'universal' is one operator for all layers"),
        ({"operator": RowOperator(3, LENGTH, rank=3)}, "an operator of 3 heads and 0 softmax"),
        ({"softmax_heads": 4}, "softmax_heads must be from 0 to 3, not 4"),
        ({"projection": "l1"}, "projection must be None"),
        ({"order": "sideways"}, "no order 'sideways'"),
        ({"base": "relu"}, "no base activation 'relu'"),
        ({"init": "small"}, "init must be"),
    ],
    "krause": [
        ({"window": 0}, "window must be at least 1, not 0"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"sigma": 0.0}, "sigma must be positive and finite, not 0.0"),
        ({"sigma": math.nan}, "sigma must be positive and finite, not nan"),
        ({"sigma_per": "token"}, "no sigma_per 'token'. Known: head, layer"),
        ({"grid": (0, 4)}, "grid: rows must be at least 1, not 0"),
        ({"grid": (4, 4), "radius": -1.0}, "radius must be zero or positive, not -1.0"),
    ],
    "linear": [({"eps": eps}, "eps must be zero or positive, not ") for eps in (-1e-6, math.nan, math.inf)],
    "linformer": [
        ({"rank": 17}, "rank 17 is above the 16 tokens"),
        ({"rank": 0}, "rank 0 is below 1"),
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"share": "layers"}, "no share 'layers'. Known: none, heads, values"),
    ],
    "local_linear": [({"ridge": 0.0}, "ridge must be positive and finite, not 0")],
    "mesa": [({"ridge": 0.0}, "ridge must be positive and finite, not 0")],
    "mixed": [
        ({"heads": {}}, "heads must give each variant at least one, not {}"),
        ({"heads": {"gka": 0}}, "heads must give each variant at least one"),
        ({"heads": {"gka": 2, "softmax": 1}}, "shares of 3 do not divide num_heads 4"),
        ({"heads": {"mixed": 1}}, "mixed is no single variant"),
    ],
    "non_local": [
        ({"form": "cosine"}, "no form 'cosine'. Known: embedded, gaussian, dot, concatenation"),
        ({"num_heads": 0}, "num_heads must be at least 1, not 0"),
        ({"form": "gaussian", "position": "rope"}, "the gaussian form compares tokens as they are"),
        ({"form": "gaussian", "qk_norm": True}, "the gaussian form compares tokens as they are"),
    ],
    "nystrom": [
        ({"landmarks": 17}, "landmarks 17 is above the 16 tokens"),
        ({"landmarks": 0}, "landmarks 0 is below 1"),
        ({"iterations": 0}, "iterations must be at least 1, not 0"),
        ({"conv": 4}, "conv must be an odd size, not 4"),
    ],
    "performer": [
        ({"num_features": 0}, "num_features must be at least 1, not 0"),
        ({"scale": 0.0}, "scale must be positive and finite, not 0.0"),
        ({"floor": -1.0}, "floor must be zero or positive, not -1.0"),
        ({"stabilizer": "mean"}, "no stabilizer 'mean'. Known: none, row, max"),
    ],
    "qk_norm": [
        ({"norm": "l1"}, "no norm 'l1'. Known: l2, rms"),
        ({"length": None}, "g starts at log2(L² − L), which needs length=L of at least 2, not None"),
        ({"length": 1}, "g starts at log2(L² − L), which needs length=L of at least 2, not 1"),
    ],
    "rbf": [
        ({"gamma": 0.0}, "gamma must be positive and finite, not 0.0"),
        ({"gamma": math.inf}, "gamma must be positive and finite, not inf"),
        ({"form": "sigmoid"}, "no form 'sigmoid'. Known: softmax, unnormalized"),
        ({"position": "alibi"}, "no position 'alibi'. Known: rope, susie"),
        ({"registers": -1}, "registers must be at least 0, not -1"),
    ],
    "rpe": [
        ({"length": None}, "needs length=, the number of tokens of its table of lags, not None"),
        ({"length": 0}, "needs length=, the number of tokens of its table of lags, not 0"),
        ({"features": "relu"}, "no features 'relu'. Known: positive-random, elu"),
        ({"num_features": 0}, "num_features must be at least 1, not 0"),
        ({"scale": 0.0}, "scale must be positive and finite, not 0.0"),
    ],
    "skyformer": [
        ({"landmarks": 34}, "landmarks 34 is above twice the 16 tokens"),
        ({"landmarks": 5}, "landmarks must be even, half queries and half keys, not 5"),
        ({"landmarks": 0}, "landmarks must be even, half queries and half keys, not 0"),
        ({"sigma": 0.0}, "sigma must be positive and finite, not 0.0"),
    ],
    "vlt": [({"head_dim": 16}, "the heads of x itself need 4 heads × 16 = 64 channels, not 32 of 32")],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize(("name", "options", "message"), CASES)
def test_an_option_that_does_not_fit_is_named(name, options, message, as_a_user):
    layer = attention(name)
    sized = {"length": LENGTH} if layer.sized else {}
    with pytest.raises(ValueError, match=f"^{name}: {re.escape(message)}"):
        layer(**{"dim": DIM, "num_heads": HEADS, **sized, **options})
