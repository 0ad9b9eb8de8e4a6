"""What a run costs, and the lines that launch it: hours by the stated rate, parts that can be shared."""

import re

import pytest

from gkalib.training import cost, launch_lines, recipe, recipes


def test_hours_are_operations_at_the_stated_share_of_the_peak():
    spent = cost(recipe("gka-nanochat-d20").run("baseline"))
    assert spent.hours == pytest.approx(spent.operations / (0.3 * 989e12) / 3600)
    assert spent.operations == pytest.approx(3.0042e9 * 4.5686e9, rel=1e-4)


@pytest.mark.parametrize("name", list(recipes()))
def test_processes_can_share_the_steps_of_the_lines(name):
    run = recipe(name).run()
    lines = launch_lines(run)
    for where, processes in (("one GPU", 1), ("eight GPUs", 8), ("SLURM", 16)):
        sizes = {key: int(value) for key, value in re.findall(r"--(device-batch|batch) (\d+)", lines[where])}
        batch = sizes.get("batch", run.batch)
        parts, rest = divmod(batch, sizes.get("device-batch", run.device_batch))
        assert rest == 0 and parts % processes == 0, lines[where]
        assert f"train {name} --arm {run.arm}" in lines[where]
