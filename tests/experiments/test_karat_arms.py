"""KArAt's choices: every arm has a name for figures."""

from chapters.experiments.karat import ARMS, NAMES, studies


def test_every_arm_has_a_name():
    assert [study.arm for study in studies()] == list(NAMES)
    assert [NAMES[arm].startswith("…") for arm in ARMS] == [False] + [True] * (len(ARMS) - 1)
