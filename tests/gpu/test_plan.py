"""The three batches for a card: complete, in order, and within nine minutes each by their estimates."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gkalib.bench.goals import GOALS
from gkalib.gpu import plan, queue
from gkalib.gpu.jobs import BATCHES, jobs
from gkalib.gpu.plan import State

ROOT = Path(__file__).resolve().parents[2]


def test_each_batch_fits_nine_minutes_by_its_estimate_and_the_batches_hold_the_goals():

    for number in BATCHES:
        steps = plan.planned([State(job, "missing", job.seconds) for job in jobs() if job.batch == number])
        # the queue starts nothing that does not end in time by its estimate and its start
        assert 240 < max(step.end for step in steps) <= 60 * plan.MINUTES - queue.START
        alone = sorted((step.begin, step.end) for step in steps if step.job.alone and not step.warms)
        assert all(after[0] >= before[1] for before, after in itertools.pairwise(alone))
        least = sum(step.end - step.begin for step in steps if not step.job.alone) / (plan.CORES - 1)
        assert max(step.end for step in steps) >= sum(end - begin for begin, end in alone) + least
    names = [job.name for number in BATCHES for job in jobs() if job.batch == number]
    assert names == [job.name for job in jobs() if job.batch], "batches follow one another"
    assert {f"bench-{goal.record}" for goal in GOALS} <= {*names}
    place = names.index
    assert place("correctness-decode-float16") < place("tune-gka-forward") < place("bench-gka-vit-ti")
    assert place("bench-gka-vit-ti") < place("bench-gka-text") < place("bench-models-ti-training")
    # what may hang comes last, and is stopped soon
    assert names[-1] == "first-gka-specialized"
    assert all(
        job.limit and job.priority > 90 for job in jobs() if "specialized" in job.name and not job.batch
    )
    printed = plan.plan(jobs())
    assert printed.count(" of 540\n") == 3 and "first-gka-specialized  stopped at 30 s" in printed


def test_a_batch_is_chosen_and_planned(tmp_path):
    environment = {**os.environ, "GKALIB_RESULTS": str(tmp_path)}
    command = [sys.executable, "-m", "gkalib", "reproduce", "--batch", "2", "--plan"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "Batch 2, single operations" in done.stdout and "Batch 1" not in done.stdout
    assert re.search(r"^ +\d+ +\d+ s  bench-gka-vit-ti$", done.stdout, re.MULTILINE)
    with pytest.raises(ValueError, match=r"reproduce: there is no batch 4\. Known: 1, 2, 3"):
        queue.command(batch=4, planned=True)
