"""The command line: its flags are frozen here, and each command prints what it promises."""

import re
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields, replace
from importlib import import_module
from pathlib import Path

import pytest

import gkalib
from gkalib import cli, results
from gkalib.cli import main
from gkalib.data import DATASETS
from gkalib.models import GPTConfig, ViTConfig
from gkalib.training import Augment, LanguageConfig, VisionConfig
from gkalib.training.config import LaunchConfig
from gkalib.training.recipes import apply_settings, recipes
from tests.records import record
from tests.training.runs import picture_run, text_run

ROOT = Path(__file__).resolve().parents[1]

OPTIONS = """\
bench: name shape=() arm=() device=cpu scale=full keep=False
data: action name=()
evaluate: run step=None average=False device=None tasks=() whole=False limit=None shots=None \
training=False keep=False
generate: run step=None average=False device=None prompt= count=200 temperature=0.8 seed=0
look: run step=None average=False device=None picture=None text=None held_out=None paper=None \
out=None keep=False
ready: what=() minutes=5.0 width=(64, 128) dtype=('bfloat16',) rehearse= show=False forget=False
results: action experiment= metric=() scale=None
save: run name device=None
submit: run
train: name= arms=() smoke=False reduced=False seed=(0,) seeds=1 gpus=None card=H100 plan=False \
settings=False out=None device=None workers=None compile=False save_every=600.0 log_every=10 snapshots=0 \
fresh=False keep=False quiet=False in_memory=False
variants: dim=192 heads=3 tokens=(196, 784)"""


def options(command: type) -> list[str]:
    """The fields of a command, with their defaults; those of a group in its place."""
    names = []
    for option in fields(command):
        if option.name in ("trained", "launch"):
            names += options({"trained": cli.Trained, "launch": LaunchConfig}[option.name])
        else:
            names.append(option.name if option.default is MISSING else f"{option.name}={option.default}")
    return names


def test_the_options_are_these():
    actual = [f"{name}: {' '.join(options(getattr(cli, name.title())))}" for name in sorted(cli.COMMANDS)]
    assert "\n".join(actual) == OPTIONS


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_says_what_a_command_does(command: str, capsys: pytest.CaptureFixture):
    first = (getattr(cli, command.title()).__doc__ or "").splitlines()[0]
    assert cli.COMMANDS[command][1] == first
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0 and first[:40] in capsys.readouterr().out


@pytest.mark.parametrize(("word", "said"), [("--help", "variants"), ("--version", gkalib.__version__)])
def test_the_module_answers_before_it_imports_what_takes_seconds(word: str, said: str):
    command = [sys.executable, "-X", "importtime", "-m", "gkalib", word]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines()}
    assert said in done.stdout and "gkalib.cli" in imported
    assert not imported & {"torch", "numpy", "tyro", "rich"}


def test_the_script_is_the_module():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = settings["project"]["scripts"]["gkalib"].partition(":")
    assert getattr(import_module(module), name) is main


def test_without_a_name_train_lists_the_recipes(capsys: pytest.CaptureFixture):
    assert main(["train"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [*recipes()]
    assert all(recipe.summary in line for line, recipe in zip(listed, recipes().values(), strict=True))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("traine gpa-dickens", "train"),
        ("train gpa-dickins --plan", "gpa-dickens"),
        ("train gpa-dickens --arm bank-rop --plan", "bank-rope"),
        ("data get mcicle", "mcycle"),
        ("generate rope-dicken", "rope-dickens"),
        ("bench karta", "karat"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_status_two_with_a_near_name(
    words: str, meant: str, capsys: pytest.CaptureFixture
):
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and re.match(r"(\w+: )?no ", printed.err) and "Known: " in printed.err
    assert printed.err.endswith(f"Did you mean {meant!r}?\n") and printed.err.count("\n") == 1
    assert main(["train", "zzz"]) == 2 and "Did you mean" not in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_fault():
    command = [sys.executable, "-m", "gkalib", "results", "list"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == "" and run.wait() == 1


def test_no_command_is_an_error(capsys: pytest.CaptureFixture):
    assert main([]) == 2
    assert "variants" in capsys.readouterr().err


def test_an_unknown_command_or_option_is_answered_by_those_there_are(capsys: pytest.CaptureFixture):
    for words, known in (
        (["data", "lst"], "check"),
        (["bench", "gka", "--kep"], "--keep"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        printed = capsys.readouterr()
        assert stopped.value.code == 2 and known in printed.err and printed.out == ""


@pytest.mark.parametrize(
    ("removed", "place"),
    [("experiment", "chapters.experiments"), ("reproduce", "gkalib ready"), ("tune", "gkalib ready")],
)
def test_a_removed_command_names_the_one_in_its_place(
    removed: str, place: str, capsys: pytest.CaptureFixture
):
    assert main([removed, "variants-digits"]) == 2
    assert f"{place}" in capsys.readouterr().err


def test_data_list_names_every_set(capsys: pytest.CaptureFixture):
    assert main(["data", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DATASETS)


def test_data_check_prints_the_registered_sum(capsys: pytest.CaptureFixture):
    assert main(["data", "check", "mcycle"]) == 0
    assert DATASETS["mcycle"].sha256 in capsys.readouterr().out


def test_data_check_says_what_it_did_not_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    kept = {name: DATASETS[name] for name in ("mcycle", "minilm")}
    monkeypatch.setattr("gkalib.data.registry.DATASETS", kept)
    monkeypatch.setattr("gkalib.data.fetch.find", lambda archive: None)
    assert main(["data", "check"]) == 0
    checked, skipped = capsys.readouterr().out.splitlines()
    assert checked.startswith("mcycle: as registered") and skipped == "minilm: not here, so not checked"
    assert main(["data", "check", "minilm"]) == 2
    assert "python -m gkalib data get minilm" in capsys.readouterr().err


def test_data_where_says_where_a_set_lies_or_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """ImageNet as torchvision and timm have it: a folder of class folders for each part."""
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["data", "where", "imagenet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "imagenet: not here. Get it with: python -m gkalib data get imagenet"
    assert (
        f"into the folder imagenet-1k of {tmp_path} or " in lines[1] and "into a folder imagenet" in lines[1]
    )
    assert main(["data", "where", "dickens"]) == 0
    assert "put PP.txt, OT.txt, " in capsys.readouterr().out
    for part in ("train", "val"):
        (tmp_path / "imagenet" / part / "n01440764").mkdir(parents=True)
    assert main(["data", "where", "imagenet", "state_of_the_union", "digits"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"imagenet: here, {tmp_path / 'imagenet'}",
        "state_of_the_union: here, inside an installed library",
        "digits: here, inside an installed library",
    ]
    assert main(["data", "where", "imagenett"]) == 2
    assert "Did you mean 'imagenet'?" in capsys.readouterr().err


def test_ready_says_where_no_card_is_known(tmp_path, monkeypatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr("gkalib.smoothing.fused.cards.FOLDER", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["ready", "--show"]) == 0
    assert capsys.readouterr().out == "ready: nothing is known of any card\n"


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path, capsys: pytest.CaptureFixture):
    """On the way there is a file, which stops the superuser too."""
    (tmp_path / "file").touch()
    words = ["look", "gka-fashion-mnist", "--device", "cpu", "--out", str(tmp_path / "file" / "looks")]
    assert main(words) == 2
    assert capsys.readouterr().err == f"look: {tmp_path / 'file' / 'looks'}: Not a directory\n"


def test_results_are_listed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    for seed in (0, 1):
        metrics = {"loss": 0.5 + seed, "accuracy": 0.25}
        results.save(record(experiment="one-trial", arm="first", device="cpu", seed=seed, metrics=metrics))
    assert main(["results", "list"]) == 0
    assert capsys.readouterr().out == "one-trial  2 runs\n"
    assert main(["results", "table", "one-trial", "loss"]) == 0
    shown = capsys.readouterr().out
    assert "1.5" in shown and "smoke" in shown and "accuracy" not in shown
    assert main(["results", "table", "one-trial", "--scale", "full"]) == 2
    assert "no full-scale run of 'one-trial'" in capsys.readouterr().err


def test_a_size_that_is_no_number_is_said_so(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stopped:
        main(["variants", "--dim", "wide"])
    assert stopped.value.code == 2
    assert "Error parsing --dim: must be a whole number, not 'wide'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["variants", "--dim", "0"])
    assert "must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "generate", "look"])
def test_a_folder_without_a_model_is_named_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    none = tmp_path / "none"
    for folder, said in ((none, f"no folder '{none}'"), (tmp_path, f"there is no checkpoint in {tmp_path}")):
        assert main([command, str(folder)]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(said) and printed.out == ""
        assert printed.err.count("\n") == 1


def test_bench_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    assert main(["bench", "karta"]) == 2
    assert capsys.readouterr().err.startswith("bench: no benchmark named 'karta'. Known: gka")
    asked = []
    monkeypatch.setattr("gkalib.bench.run.run", lambda *name, **options: asked.append((*name, options)))
    assert main(["bench", "models", "--scale", "smoke", "--keep"]) == 0
    assert main(["bench", "gka", "vit-ti", "text", "--arm", "fused", "--device", "cuda"]) == 0
    flags = {"arms": (), "device": "cpu", "scale": "smoke", "keep": True}
    on_gpu = {"arms": ("fused",), "device": "cuda", "scale": "full", "keep": False}
    assert asked == [("models", (), flags), ("gka", ("vit-ti", "text"), on_gpu)]


def test_words_of_a_command_line_set_plain_and_nested_fields():
    run = text_run(smaller={"smoke": {"steps": 2}})
    words = "--lr 3e-4 --model.depth 6 --betas 0.8 0.95 --wrap 70 --rates bank 5"
    made = apply_settings(run, words.split())
    wanted = replace(run, lr=3e-4, model=replace(run.model, depth=6), betas=(0.8, 0.95), wrap=70)
    assert made == replace(wanted, rates={"bank": 5.0})
    assert made.smaller == run.smaller
    assert isinstance(made, LanguageConfig) and isinstance(made.model, GPTConfig)
    assert apply_settings(run, []) is run


def test_they_set_what_happens_to_pictures_and_switch_things_off():
    run = picture_run(augment=Augment(mixup=0.8), clip=1.0)
    made = apply_settings(run, ["--augment.mixup", "0.2", "--augment.crop", "0.5", "1", "--clip", "None"])
    assert made == replace(run, clip=None, augment=Augment(mixup=0.2, crop=(0.5, 1.0)))
    assert isinstance(made, VisionConfig) and isinstance(made.model, ViTConfig)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lrr", "1"], "--lr FLOAT"),
        (["--lr", "fast"], "could not convert string to float: 'fast'"),
        (["--model.depth", "2.5"], "invalid literal for int"),
        (["--schedule", "linear"], "invalid choice 'linear' for argument '--schedule'"),
        (["--smaller", "x"], "--smaller"),
        (["--device-batch", "3"], "batch 4 is no multiple"),
        (["--model.positions", "far"], "no positions 'far'. Known: rope"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
@pytest.mark.usefixtures("as_a_user")
def test_what_no_setting_takes_is_said_with_what_there_is(words, message, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stopped:
        apply_settings(text_run(), words)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_what_other_options_choose_is_no_setting():
    with pytest.raises(ValueError, match="train: seed is chosen by --arms, --smoke, --reduced and --seed"):
        apply_settings(text_run(), ["--seed", "3"])


def test_settings_are_listed_on_request(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as left:
        apply_settings(text_run(), ["--help"])
    listed = capsys.readouterr().out
    assert left.value.code == 0 and "--model.depth" in listed and "--weight-decay" in listed
