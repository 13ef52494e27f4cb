"""A walk of valid and invalid command lines: one line and a documented status, and advice that is taken."""

from __future__ import annotations

import os
import random
import shlex
from pathlib import Path

import pytest

from pipelines.cli import main

CONFIG = str(Path(__file__).parent / "walked.py")
Captured = pytest.CaptureFixture[str]

ROOTS = ("cfg", "sweep", "run", "args", "conf", "xp", "swep", "")
PATHS = ("seed", "rate", "name", "layers", "layers[0]", "debug", "note", "model.hidden", "optimizer.learning_rate")
NAMES_ALONE = ("seed", "seeds", "learning_rate", "hidden", "lr", "name", "layers", "max_concurrent", "kernel_init")
WRONG_PATHS = (
    "sed",
    "model.hiden",
    "optimizer",
    "model",
    "layers[9]",
    "a..b",
    "",
    "size",
    "x['y",
    "resources",
    "seeds",
)
VALUES = (
    *("1", "0.1", "1e-3", "true", "True", "null", "None", "abc", "'abc'", "1,2", "0,1", "1;", "01", "1_000", ""),
    *("[1,2]", "[1, 2", "[1,", "[]", "(1,2)", "[[1,2],[3]]", "[range(3), range(5)]", "range(3)", "range(0,100)"),
    *(
        "uniform(1e-4, 1e-1)",
        "linspace(0, 1, 3)",
        "logspace(1e-3, 1, 2)",
        "loguniform(1)",
        "choice([1, 2])",
        "choice()",
    ),
    *("optax.sgd(0.1)", "optax.sgdd(0.1)", "sgd(0.1)", "optax.adam", "nan", "-inf", "1+1", "2**3", "{'a': 1}", "{'a':"),
    *("\u201cx\u201d", "\u22121", "a b", "--x", "auto", "${HOME}", "[VALUE]", "5 # five", "batch.image"),
)
FLAGS = ("--dry-run", "--help", "--debug", "--no-tracking", "--json", "--yes", "--strict", "--follow", "--lr", "--dry")
OPTIONS = ("--seeds", "--trial", "--pack", "--step", "--metric", "--mode", "--top", "--format", "--to", "--trust")
NAMES = ("demo", "nothing", "runs/x", "gs://bucket/x", "~nobody-there/x", "0", "best", "latest", "a b", "é", "")
UNWRITABLE = "--run.root=/proc/no-runs-here"
COMMANDS = (
    *(("config", "show", CONFIG), ("config", "show", CONFIG), ("config", "show", CONFIG, "--trial=0")),
    *(("config", "schema", CONFIG), ("config", "diff", CONFIG)),
    *(("sweep", CONFIG, UNWRITABLE), ("train", CONFIG, UNWRITABLE), ("eval",), ("submit", "--dry-run"), ("preflight",)),
    *(("status",), ("best",), ("logs",), ("stop",), ("ls",), ("rm",), ("record",), ("pipeline", "status"), ("swep",)),
    *(("ckpt", "ls"), ("ckpt", "show"), ("ckpt", "verify"), ("ckpt", "export"), ("ckpt", "rm"), ("ckpt",), ()),
)


def line(draw: random.Random) -> list[str]:
    """Returns the words of one command line, right or wrong."""
    words = list(draw.choice(COMMANDS))
    for _ in range(draw.randrange(4)):
        words.insert(len(words) if draw.random() < 0.9 else draw.randrange(len(words) + 1), word(draw, words))
    return words


def word(draw: random.Random, before: list[str]) -> str:
    if CONFIG not in before and draw.random() < 0.5:
        return draw.choice(NAMES)
    kind = draw.random()
    if kind < 0.6:
        path = draw.choice(PATHS if draw.random() < 0.75 else WRONG_PATHS)
        root = draw.choice(ROOTS[:2] if draw.random() < 0.8 else ROOTS)
        dashes = draw.choice(("--", "--", "--", "--", "--", "", "-", "\u2014"))
        return f"{dashes}{root}.{path}{draw.choice(('=', '=', '=', '=', ' = ', ''))}{draw.choice(VALUES)}"
    if kind < 0.65:
        return f"--{draw.choice(NAMES_ALONE)}={draw.choice(VALUES)}"
    if kind < 0.75:
        return draw.choice(FLAGS)
    if kind < 0.9:
        return f"{draw.choice(OPTIONS)}{draw.choice(('=', ''))}{draw.choice((*VALUES, *NAMES))}"
    return draw.choice((*VALUES, *NAMES))


def told(words: list[str], capsys: Captured) -> tuple[int, str]:
    """Returns the status of a command line and what it said on standard error; notes are left out."""
    capsys.readouterr()
    status = main(words)
    lines = capsys.readouterr().err.splitlines()
    return status, "\n".join(line for line in lines if not line.startswith(("note: ", "changed: ")))


def advice(message: str) -> list[str]:
    """Returns the texts to copy that a message holds; forms to be filled in are none."""
    write = message.partition(" Write: ")[2].removesuffix(" (to keep the text)")
    found = [one for one in write.split(" or, for the text, ") if one]
    return [one for one in found if not any(form in one for form in ("VALUE", "PATH", "NAME", "CONFIG.py"))]


def followed(words: list[str], message: str, one: str) -> list[str]:
    """Returns the command line as advised."""
    right = shlex.split(one)
    if right[0] == "kdr":
        return right[1:]
    at = message.removeprefix("error: ").partition(": ")[0]
    return [word for old in words for word in (right if old == at or old.startswith(f"{at}=") else [old])]


def check(words: list[str], capsys: Captured) -> None:
    """Tries a command line, and then what it is advised to be."""
    status, message = told(words, capsys)
    shown = shlex.join(words)
    assert status in (0, 1, 2), shown
    assert "Traceback" not in message or "--debug" in words, f"{shown}\n{message}"
    if "--debug" in words or status != 2 or not message.startswith("error: "):
        return
    assert "\n" not in message, f"{shown}\n{message}"
    at = message.removeprefix("error: ").partition(": ")[0]
    for one in advice(message):
        right = followed(words, message, one)
        _, again = told(right, capsys)
        # A whole command is tried on the config; what it advises may still lack a word that nobody can know.
        wrong = ("error: --cfg.", "error: --sweep.") if one.startswith("kdr ") and CONFIG in right else ()
        assert not again.startswith((f"error: {at}: ", *wrong)), f"{shown}\n{message}\n{shlex.join(right)}\n{again}"


def walk(seed: int, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(folder)
    for number in range(count):
        check(line(random.Random(f"{seed}-{number}")), capsys)
    assert list(folder.iterdir()) == []


def test_a_short_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """F31: no traceback, a documented status, and every suggestion is taken by what made it."""
    walk(0, 150, tmp_path, monkeypatch, capsys)


@pytest.mark.soak
def test_a_long_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """F31: ten thousand command lines."""
    walk(int(os.environ.get("SEED", "1")), int(os.environ.get("LINES", "10000")), tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--cfg.seed=1,2"], "'--sweep.seed=[1,2]'"),
        (["--cfg.rate=0,1"], "--cfg.rate=0.1"),
        (["--cfg.layers=range(0,100)"], ""),
        (
            ["--cfg.optimizer.learning_rate=uniform(1e-4, 1e-1)"],
            "'--sweep.optimizer.learning_rate=uniform(1e-4, 1e-1)'",
        ),
        (["--lr", "0.1"], ""),
        (["--trial=0", "--sweep.seed=[1,"], "'--sweep.seed=[1]'"),
        (["--trial=0", "--sweep.layers=[range(3), range(5)]"], ""),
        (["--learning_rate=3"], f"kdr config show {CONFIG} --cfg.optimizer.learning_rate=3"),
        (["--hidden", "3", "--cfg.seed", "4"], ""),
        (["--hidden=abc"], ""),
        (["--seeds=3"], f"kdr config show {CONFIG} --run.seeds=3"),
        (["--max_concurrent=3"], f"kdr config show {CONFIG} --run.max_concurrent=3"),
        (["model.hiden=3"], f"kdr config show {CONFIG} --cfg.model.hidden=3"),
        (["--cfg.seed", "1,2"], f"kdr config show {CONFIG} '--sweep.seed=[1,2]'"),
    ],
    ids=str,
)
def test_advice_is_tried_before_it_is_given(words: list[str], right: str, capsys: Captured) -> None:
    """F31: suggested `1.2`, `np.random.uniform(...)`, `--help`, 50 brackets, a form or a path that is refused."""
    status, message = told(["config", "show", CONFIG, *words], capsys)
    assert status == 2
    assert message.partition(" Write: ")[2] == right
    check(["config", "show", CONFIG, *words], capsys)


def test_a_bad_line_of_a_flag_file_is_named_with_its_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """F31: a bad line 3 of a flag file was told as line 1; and the file was left out of the advised command."""
    monkeypatch.chdir(tmp_path)
    Path("flags.txt").write_text("--cfg.seed=1\n--cfg.rate=0.5\n--cfg.seed=2\n")
    _, message = told(["config", "show", CONFIG, "--flagfile=flags.txt"], capsys)
    assert message.startswith("error: flags.txt:3: --cfg.seed=2: seed is given twice")
    Path("flags.txt").write_text("--cfg.seed=1\n")
    _, message = told(["config", "show", CONFIG, "--flagfile=flags.txt", "--cfg.rate", "0.5"], capsys)
    assert message.endswith(f"Write: kdr config show {CONFIG} --flagfile=flags.txt --cfg.rate=0.5")
