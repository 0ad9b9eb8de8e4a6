"""Verdicts against numbers worked by hand, against statsmodels and scipy, and by simulation."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.multitest import multipletests

from gkalib.results.verdicts import (
    Claim,
    Estimate,
    Judgment,
    _chance_of_spread,
    _holm,
    alike,
    by_seed,
    pooled,
    together,
    verdicts,
    with_items,
)

LESS = {"bank": 1.0, "rope": -1.0}


def outcomes(values: np.ndarray) -> dict[str, dict[int, float]]:
    """A table ``[arms, seeds]`` by name and seed."""
    return {f"a{arm}": dict(enumerate(row.tolist())) for arm, row in enumerate(values)}


Claims = dict[str, tuple[dict[str, float], Claim]]


def against_first(arms: int, *signs: int, delta: float) -> Claims:
    return {
        f"c{arm}": ({f"a{arm}": 1, "a0": -1}, Claim(sign=sign, delta=delta))
        for arm, sign in zip(range(1, arms), itertools.cycle(signs), strict=False)
    }


def judged(claims: Claims, runs: dict, estimate: Callable = pooled) -> dict[str, Judgment]:
    estimates = estimate(runs, {name: weights for name, (weights, _) in claims.items()})
    return verdicts({name: claim for name, (_, claim) in claims.items()}, estimates)


def table(seed: int, arms: int = 4, seeds: int = 5) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(arms, seeds)) + 3 * generator.normal(size=seeds) + np.arange(arms)[:, None]


def test_two_arms_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1/√3, and t(0.975; 2) = 4.3027."""
    runs = {"rope": {0: 5.0, 1: 7.0, 2: 6.0}, "bank": {0: 6.0, 1: 9.0, 2: 9.0}}
    found = judged({"above": (LESS, Claim(sign=1, delta=0.5))}, runs)["above"]
    assert astuple(found.estimate) == pytest.approx((2, 3**-0.5, 2))
    assert by_seed(runs, {"above": LESS}) == {"above": [1, 2, 3]}
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-5)
    assert found.verdict == "undecided"


def test_three_arms_by_hand():
    """Residuals ±1 in a pattern of three by three whose sums vanish: 6 over 4 degrees of freedom."""
    residual = np.array([[1, -1, 0], [-1, 0, 1], [0, 1, -1]])
    values = residual + np.array([[0], [10], [20]]) + np.array([[0, 100, 200]])
    found = pooled(outcomes(values), {"one": {"a1": 1, "a0": -1}, "both": {"a0": 1, "a1": -2, "a2": 1}})
    assert astuple(found["one"]) == pytest.approx((10, (1.5 * 2 / 3) ** 0.5, 4))
    assert astuple(found["both"]) == pytest.approx((0, 3**0.5, 4), abs=1e-12)


def test_pooled_is_least_squares_of_arm_and_seed():
    values = table(0)
    assert len(alike(outcomes(values))) == 4
    found = pooled(outcomes(values), {"c": {"a2": 1, "a0": -1}})["c"]
    cells = [(f"a{a}", f"s{s}", values[a, s]) for a in range(4) for s in range(5)]
    arm, seed, y = zip(*cells, strict=True)
    fit = ols("y ~ C(arm) + C(seed)", pd.DataFrame({"y": y, "arm": arm, "seed": seed})).fit()
    assert found.value == pytest.approx(fit.params["C(arm)[T.a2]"])
    assert (found.error, found.degrees) == (pytest.approx(fit.bse["C(arm)[T.a2]"]), fit.df_resid)
    one = judged({"c": ({"a2": 1, "a0": -1}, Claim(sign=1, delta=1))}, outcomes(values))["c"]
    assert (one.low, one.high) == pytest.approx(fit.conf_int().loc["C(arm)[T.a2]"].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_what_is_reproduced_is_what_holm_rejects(seed):
    values = table(seed, arms=6) * 0.7
    found = judged(against_first(6, 1, delta=1), outcomes(values))
    chances = [stats.t.sf(one.estimate.value / one.estimate.error, 20) for one in found.values()]
    rejected, adjusted, *_ = multipletests(chances, alpha=0.025, method="holm")
    assert {one.estimate.degrees for one in found.values()} == {20}
    assert [one.verdict == "reproduced" for one in found.values()] == rejected.tolist()
    assert [one.low > 0 for one in found.values()] == rejected.tolist()
    assert 0 < sum(rejected) <= 5 and max(adjusted) > 1e-3


def test_holm_stops_at_the_first_that_fails():
    """0.012 is above 0.025 / 3, so the others fail too, though 0.02 is below 0.025."""
    levels = _holm({"a": 0.012, "b": 0.013, "c": 0.02}, 0.025)
    assert levels == pytest.approx(dict.fromkeys("abc", 0.025 / 3))


def test_an_arm_of_another_spread_is_left_out_and_stands_on_its_own_differences():
    values = table(1)
    values[3] = [40, -40, 35, -30, 5]
    runs = outcomes(values)
    assert alike(runs) == ("a0", "a1", "a2")
    found = pooled(runs, {"in": {"a1": 1, "a0": -1}, "out": {"a3": 1, "a0": -1}})
    assert found["in"] == pooled(dict(list(runs.items())[:3]), {"in": {"a1": 1, "a0": -1}})["in"]
    paired = stats.ttest_rel(values[3], values[0])
    assert found["out"].degrees == 4 == paired.df
    assert found["out"].value / found["out"].error == pytest.approx(paired.statistic)


@pytest.mark.parametrize("arms", [3, 5])
def test_a_chance_of_spread_is_fishers(arms):
    """What arm and seed leave of the whole table splits into a part of one arm and an independent rest."""
    values = table(1, arms)
    left = (values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()) ** 2
    own = left[0].sum() * arms / (arms - 1)
    above = stats.f.sf(own * (arms - 2) / (left.sum() - own), 4, 4 * (arms - 2))
    chance = _chance_of_spread("0", {str(arm): row for arm, row in enumerate(values.tolist())})
    assert chance == pytest.approx(2 * min(above, 1 - above))


@pytest.mark.parametrize(
    ("signs", "delta", "effects"),
    [
        ((1,), 2.0, (0, 0, 0)),  # no effect at all
        ((1, -1), 0.3, (0, 0, 0)),  # nor that, and it can hardly be told from δ
        ((1,), 2.0, (2, 2, 2)),  # every effect is just δ: "not reproduced" would be false
        ((0,), 3.0, (3, -3, 3)),  # just not as good
    ],
)
def test_a_false_verdict_is_rare_in_a_table(signs, delta, effects):
    """At most 5 % of tables have one: of 500, with three standard errors, 7.9 %."""
    claims, wrong, covered = against_first(4, *signs, delta=delta), 0, 0
    generator = np.random.default_rng(0)
    for _ in range(500):
        values = generator.normal(size=(4, 5)) + 3 * generator.normal(size=5)
        values[1:] += np.array(effects)[:, None]
        found = judged(claims, outcomes(values))
        faults = []
        for effect, (name, one) in zip(effects, found.items(), strict=True):
            way = claims[name][1].sign
            true = abs(effect) < delta if way == 0 else way * effect > 0
            false = abs(effect) > delta if way == 0 else way * effect < delta
            failed = one.verdict == "not reproduced"
            faults.append(one.verdict != "undecided" and not (false if failed else true))
        wrong += any(faults)
        covered += all(
            one.low <= effect <= one.high for effect, one in zip(effects, found.values(), strict=True)
        )
    assert wrong / 500 < 0.079
    assert covered / 500 > 0.921


@pytest.mark.parametrize(
    ("differences", "sign", "verdict"),
    [
        ((1.0, 1.1, 0.9), 1, "reproduced"),
        ((-1.0, -1.1, -0.9), -1, "reproduced"),
        ((1.0, 1.1, 0.9), -1, "not reproduced"),
        ((0.01, -0.01, 0.0), 1, "not reproduced"),
        ((0.01, 0.02, 0.015), 1, "reproduced"),  # above 0, small as it is
        ((0.5, -0.5, 0.3), 1, "undecided"),
        ((0.01, -0.01, 0.0), 0, "as good as"),
        ((1.0, 1.1, 0.9), 0, "not reproduced"),
        ((-1.0, -1.1, -0.9), 0, "not reproduced"),
        ((0.5, -0.5, 0.3), 0, "undecided"),
        ((0.2, 0.2, 0.2), 1, "reproduced"),  # the same to the bit in every seed
        ((0.0, 0.0, 0.0), 1, "not reproduced"),
    ],
)
def test_each_verdict(differences, sign, verdict):
    runs = {"rope": dict.fromkeys(range(3), 0.0), "bank": dict(enumerate(differences))}
    assert judged({"c": (LESS, Claim(sign=sign, delta=0.1))}, runs)["c"].verdict == verdict


def test_an_interval_may_be_claimed_and_an_arm_stand_alone():
    runs = {"50": {0: 50.0, 1: 51.0, 2: 49.0}, "70": {0: 70.0, 1: 71.0, 2: 69.5}}
    for between, verdict in (
        ((15, 25), "reproduced"),
        ((30, 40), "not reproduced"),
        ((15, 20.2), "undecided"),
    ):
        claims = {"c": ({"70": 1.0, "50": -1.0}, Claim(between=between))}
        assert judged(claims, runs)["c"].verdict == verdict
    alone = judged({"c": ({"70": 1.0}, Claim(sign=1))}, runs)["c"]
    assert alone.verdict == "reproduced" and alone.estimate.degrees == 2
    assert alone.estimate.error == pytest.approx(stats.sem([70, 71, 69.5]))


@pytest.mark.parametrize("signs", [(1,), (0,), (-1,), (1, 0, -1)])
def test_the_verdict_is_read_off_the_interval(signs):
    for seed in range(40):
        claims = against_first(5, *signs, delta=1.5)
        for name, one in judged(claims, outcomes(table(seed, arms=5) * 0.8)).items():
            way, delta = claims[name][1].sign, claims[name][1].delta
            low, high = sorted((one.low, one.high), key=lambda value: way * value if way else value)
            if way == 0:
                yes, no = -delta < low < high < delta, low > delta or high < -delta
            else:
                yes, no = way * low > 0, way * high < delta
            held = "reproduced" if way else "as good as"
            assert one.verdict == (held if yes else "not reproduced" if no else "undecided")


def test_arms_seeds_and_claims_may_stand_in_any_order():
    runs, claims = outcomes(table(3)), against_first(4, 1, 0, -1, delta=1)
    shuffled = random.Random(0)
    wanted = judged(claims, runs)
    for _ in range(5):
        arms = shuffled.sample(sorted(runs), 4)
        other = {arm: {s: runs[arm][s] for s in shuffled.sample(range(5), 5)} for arm in arms}
        found = judged({name: claims[name] for name in shuffled.sample(sorted(claims), 3)}, other)
        for name, one in wanted.items():
            assert found[name].verdict == one.verdict
            assert (found[name].low, found[name].high) == pytest.approx((one.low, one.high))


def test_a_subclaim_that_holds_makes_part_of_a_claim():
    assert together(["reproduced", "reproduced"]) == together(["reproduced", "as good as"]) == "reproduced"
    assert together(["reproduced", "not reproduced"]) == together(["as good as", "undecided"]) == "partly"
    assert together(["not reproduced", "not reproduced"]) == "not reproduced"
    assert together(["as good as"]) == "as good as"
    assert together(["not reproduced", "undecided"]) == "undecided"
    assert together(["partly", "not reproduced"]) == "partly"
    for wrong in ([], ["agrees"]):
        with pytest.raises(ValueError, match="subclaims need verdicts"):
            together(wrong)


def scored(
    generator: np.random.Generator, *, items: int, of_item: float
) -> dict[str, dict[int, list[float]]]:
    """Two arms, five seeds: what seed and item, the same for all seeds, each add to the difference."""
    of_items = of_item * generator.normal(size=items)
    less = 0.3 * generator.normal(size=5)[:, None] + of_items + generator.normal(size=(5, items))
    both = {"rope": np.zeros((5, items)), "bank": less}
    return {arm: dict(enumerate(values.tolist())) for arm, values in both.items()}


def judged_with_items(claims: Claims, runs: dict) -> dict[str, Judgment]:
    def estimate(runs: dict, contrasts: dict) -> dict[str, Estimate]:
        means = {arm: {s: np.mean(items) for s, items in own.items()} for arm, own in runs.items()}
        return with_items(pooled(means, contrasts), runs, contrasts)

    return judged(claims, runs, estimate)


ANY = {"c": (LESS, Claim(sign=1, delta=1))}


def test_items_that_say_nothing_leave_the_estimate_as_it_is():
    differences = [0.3, -0.1, 0.5, 0.2, 0.4]
    runs = {
        "rope": dict.fromkeys(range(5), [0.0] * 50),
        "bank": {s: [d] * 50 for s, d in enumerate(differences)},
    }
    found = judged_with_items(ANY, runs)["c"].estimate
    assert astuple(found) == pytest.approx((0.26, stats.sem(differences), 4))


def test_what_an_item_adds_by_hand():
    """Two seeds, two items: their means over seeds, 1 and 3, have the variance 2, and what is left is 1."""
    runs = {"rope": {0: [0, 0], 1: [0, 0]}, "bank": {0: [1.5, 2.5], 1: [0.5, 3.5]}}
    found = judged_with_items(ANY, runs)["c"].estimate
    assert astuple(found) == pytest.approx((2, math.sqrt((2 - 1 / 2) / 2), 1))


def test_what_all_seeds_have_in_common_does_not_average_out():
    """The mean estimated variance is the true one, 0.3²/5 + 1/40 + 1/200, within three standard errors."""
    generator = np.random.default_rng(0)
    variances = []
    for _ in range(400):
        runs = scored(generator, items=40, of_item=1.0)
        variances.append(judged_with_items(ANY, runs)["c"].estimate.error ** 2)
    true = 0.3**2 / 5 + 1 / 40 + 1 / 200
    assert abs(np.mean(variances) - true) < 3 * stats.sem(variances)


@pytest.mark.parametrize("of_item", [0.0, 0.3, 1.0])
def test_the_interval_over_seeds_and_items_covers(of_item: float):
    """Of 400 tables 95 % or more, less three standard errors of a share, 3.3 points."""
    generator, covered = np.random.default_rng(1), 0
    for _ in range(400):
        found = judged_with_items(ANY, scored(generator, items=40, of_item=of_item))["c"]
        covered += found.low <= 0 <= found.high
    assert covered / 400 > 0.917


RUNS = {"rope": {0: 1.0, 1: 2.0}, "bank": {0: 1.0, 1: 2.5}}
CLAIM = {"c": (LESS, Claim(sign=1, delta=1.0))}
ONE = Estimate(value=1.0, error=1.0, degrees=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: judged(CLAIM, {**RUNS, "bank": {0: 1.0}}),
            "arm 'bank' has no seed 1, which another arm has",
        ),
        (lambda: judged(CLAIM, {"rope": {0: 1.0}, "bank": {0: 1.0}}), "2 arms and 1 seeds tell no spread"),
        (lambda: judged(CLAIM, {"rope": RUNS["rope"]}), "1 arms and 2 seeds tell no spread"),
        (
            lambda: judged(CLAIM, {"rope": RUNS["rope"], "flat": RUNS["bank"]}),
            "names an arm 'bank'. Known: rope",
        ),
        (lambda: judged(CLAIM, {**RUNS, "bank": {0: 1.0, 1: math.nan}}), "of arm 'bank' is not finite"),
        (lambda: pooled(RUNS, {"c": {"rope": 0}}), "the contrast 'c' has no weight that is not 0"),
        (lambda: verdicts({}, {"c": ONE}), "there is no estimate for any claim"),
        (lambda: verdicts({"d": Claim(sign=1)}, {"c": ONE}), "there is no estimate for d"),
        (lambda: Claim(sign=2, delta=1), "sign must be -1, 0 or 1, not 2"),
        (lambda: Claim(delta=0), "delta must be finite and above 0, not 0"),
        (lambda: Claim(sign=1, delta=math.inf), "delta must be finite and above 0, not inf"),
        (lambda: Claim(sign=1, between=(0.0, 1.0)), "between takes the place of a sign"),
        (lambda: Claim(between=(1.0, 1.0)), "between takes the place of a sign, and ascends"),
        (
            lambda: with_items(
                {}, {"rope": {0: [1.0], 1: [1.0]}, "bank": {0: [1.0], 1: [1.0, 0.0]}}, {"c": LESS}
            ),
            "every run needs the same held-out items, not [1, 2] of them",
        ),
        (lambda: with_items({}, {"rope": {0: [1, 0]}, "bank": {0: [0, 0]}}, {"c": LESS}), "tell no spread"),
    ],
)
def test_what_cannot_be_judged_is_refused(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith("verdicts: ") and message in str(error.value)
