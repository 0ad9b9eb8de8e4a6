"""What chapter 19 proves of floors."""

import pytest

from gkalib.bench.cases import shapes
from gkalib.bench.roofline import STATED, Rates, floor, work

VIT = shapes("gka", "full", "cuda")[0]


@pytest.mark.parametrize("tokens", [16, 150, 197, 400, 500, 700, 4000])
def test_the_gain_of_one_tensor(tokens):
    case = {**VIT, "queries": tokens, "keys": tokens}
    for rates in (STATED["H100"], STATED["H200"], Rates(products=1e12, memory=1e12, exponentials=1e9)):
        three, one = (floor(work(case, "forward", kind), rates) for kind in ("softmax", "gka"))
        a, m = max(one.products, one.exponentials), one.memory / 2
        gain = three.seconds / one.seconds
        assert gain == pytest.approx(max(a, 4 * m) / max(a, 2 * m))
        assert (gain == pytest.approx(2)) == (a <= 2 * m * (1 + 1e-9))
        assert (gain == pytest.approx(1)) == (a >= 4 * m * (1 - 1e-9))
        assert 1 <= gain <= 2


def test_the_number_of_tokens_alone_decides_what_one_tensor_is_worth():
    for heads, width in ((3, 64), (12, 64), (2, 128)):
        case = {**VIT, "heads": heads, "width": width}
        for kind, crossings in (("gka", 2), ("softmax", 4)):
            assert work(case, "forward", kind).intensity == pytest.approx(2 * 197 / crossings)
