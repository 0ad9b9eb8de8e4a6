"""The curve, the samples and what a terminal shows are those of a run that was never interrupted."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gkalib.training import log
from gkalib.training.log import BOARD, CURVE, SAMPLES, Log, read_curve, thinned


def opened(folder: Path, start: int = 0, *, main: bool = True, quiet: bool = True) -> Log:
    """The log of a run of forty steps."""
    return Log(folder, "tiny softmax", steps=40, start=start, main=main, quiet=quiet)


def test_a_column_may_come_later(tmp_path: Path):
    run_log = opened(tmp_path)
    run_log.row(1, loss=2.5)
    run_log.row(2, loss=0.1 + 0.2)
    run_log.row(2, val_loss=3)
    run_log.row(3, loss=1.5)
    text = "step,loss,val_loss\n1,2.5,\n2,0.30000000000000004,\n2,,3\n3,1.5,\n"
    assert (tmp_path / CURVE).read_text() == text


def test_what_came_after_the_checkpoint_is_taken_out(tmp_path: Path):
    """Also a row that was being written when the process was killed."""
    (tmp_path / CURVE).write_text("step,loss,val_loss\n1,2.5,\n2,2.25,\n2,,3\n3,1.5,\n4,1.")
    opened(tmp_path, 2).row(3, loss=1.25)
    assert (tmp_path / CURVE).read_text() == "step,loss,val_loss\n1,2.5,\n2,2.25,\n2,,3\n3,1.25,\n"
    assert list(tmp_path.iterdir()) == [tmp_path / CURVE]


@pytest.mark.parametrize("torn", ["4", "4,", "4,1.5", "4,1.5,\x00"])
def test_a_torn_row_is_none(torn: str, tmp_path: Path):
    (tmp_path / CURVE).write_text("step,loss,val_loss\n3,1.5,\n" + torn)
    assert read_curve(tmp_path / CURVE) == [{"step": "3", "loss": "1.5", "val_loss": ""}]
    assert read_curve(tmp_path / "none.csv") == []


def test_a_record_keeps_every_measurement(tmp_path: Path):
    run_log = opened(tmp_path)
    for step in range(1, 1001):
        run_log.row(step, loss=1 / step)
        if step % 333 == 0:
            run_log.row(step, val_loss=step)
    rows = thinned(run_log.rows)
    assert len(rows) == 200 + 2 + 1  # step 666 is one of the 200 anyway
    assert [row["val_loss"] for row in rows if row["val_loss"]] == ["333", "666", "999"]
    assert [row["loss"] for row in rows if row["step"] == "666"] == [str(1 / 666)]
    assert (rows[0]["step"], rows[-1]["step"]) == ("1", "1000")


def test_samples_after_the_checkpoint_are_taken_out(tmp_path: Path):
    run_log = opened(tmp_path)
    texts = {10: "a first\n\nsample === step by step", 20: "a second", 30: "a third"}
    for step, text in texts.items():
        run_log.measured(step, {}, text)
    run_log.close()
    whole = (tmp_path / SAMPLES).read_text()
    assert whole.startswith("=== step 10\na first\n\nsample === step by step\n\n=== step 20\na second\n\n")
    two = opened(tmp_path, 20)
    assert (tmp_path / SAMPLES).read_text() == whole[: whole.index("=== step 30")]
    two.measured(30, {}, texts[30])
    two.measured(30, {}, "again")  # of a finished run that was taken up again
    two.close()
    assert (tmp_path / SAMPLES).read_text() == whole


def test_tensorboard_shows_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Events after the checkpoint are purged where a run goes on."""
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_log = opened(tmp_path)
    for step in (1, 2, 3, 4):
        run_log.row(step, loss=float(step))
    run_log.measured(2, {}, "two")
    run_log.close()
    two = opened(tmp_path, 2)
    for step in (3, 4):
        two.row(step, loss=float(10 * step))
    two.close()
    events = EventAccumulator(str(tmp_path / BOARD)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (1, 1),
        (2, 2),
        (3, 30),
        (4, 40),
    ]
    assert [event.step for event in events.Tensors("sample/text_summary")] == [2]


def test_without_tensorboard(tmp_path: Path):
    run_log = opened(tmp_path)
    run_log.row(1, loss=1.0)
    run_log.measured(1, {}, "text")
    run_log.close()
    assert not (tmp_path / BOARD).exists()
    assert read_curve(tmp_path / CURVE) == [{"step": "1", "loss": "1.0"}]


def test_only_the_main_process_writes(tmp_path: Path, capsys: pytest.CaptureFixture):
    run_log = opened(tmp_path, main=False, quiet=False)
    run_log.row(1, loss=1.0)
    run_log.measured(1, {}, "text")
    run_log.advance(40, loss="1")
    run_log.say("words")
    run_log.sync()
    run_log.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(log, "Console", lambda **_: console)
    run_log = opened(tmp_path, 10, quiet=False)
    run_log.advance(20, loss="2.31")
    run_log.advance(21)
    run_log.say("a line")
    run_log.close()
    shown = screen.getvalue()
    for words in ("tiny softmax", "21/40", "loss 2.31", "a line"):
        assert words in shown


def test_a_file_has_a_line_now_and_then(tmp_path: Path, capsys: pytest.CaptureFixture):
    run_log = opened(tmp_path, 10, quiet=False)
    for step in range(11, 41):
        run_log.advance(step, loss="2.31")
    run_log.close()
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert len(lines) == 8  # of the ten of a whole run
    assert lines[0].startswith("step 12 of 40  loss 2.31  ")
    assert lines[-1] == "step 40 of 40  loss 2.31  0:00:00 left"


def test_quiet(tmp_path: Path, capsys: pytest.CaptureFixture):
    run_log = opened(tmp_path)
    run_log.advance(40, loss="2.31")
    run_log.close()
    assert capsys.readouterr() == ("", "")
