"""The command line is sorted, and every way to get it wrong at midnight is answered with the right command."""

from __future__ import annotations

import shlex
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core.errors import ConfigError
from pipelines.cli.words.command import Command, read_command

FLAGS = ["--dry-run", "--strict", "-h", "--help"]
OPTIONS = ["--root", "--resume", "--address"]


def read(line: str) -> Command:
    return read_command(shlex.split(line), flags=FLAGS, options=OPTIONS)


def refused(line: str | list[str]) -> str:
    argv = shlex.split(line) if isinstance(line, str) else line
    with pytest.raises(ConfigError) as caught:
        read_command(argv, flags=FLAGS, options=OPTIONS)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(message: str) -> str:
    return message.partition("Write: ")[2]


def test_words_are_sorted_by_prefix() -> None:
    command = read(
        "digits.py:size=large --cfg.a.b=1 --sweep.c='[1, 2]' --run.name=demo --args.depth=3 --trials=t.txt "
        "--sweep=lr,seed --sweep --dry-run --root=out"
    )
    assert command == Command(
        config="digits.py:size=large",
        cfg=(("a.b", "1"),),
        sweep=(("c", "[1, 2]"),),
        run=(("name", "demo"),),
        args={"depth": "3"},
        trials="t.txt",
        sweeps=("lr", "seed", ""),
        rest=("--dry-run", "--root=out"),
    )


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("digits.py --cfg.x 5", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py --cfg.x = 5", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py --cfg.x =5", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py --cfg.x= 5", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py --cfg.x -5", "kdr sweep digits.py --cfg.x=-5"),
        ("digits.py '--cfg.x = 5'", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py -cfg.x=1", "kdr sweep digits.py --cfg.x=1"),
        ("digits.py ---cfg.x=1", "kdr sweep digits.py --cfg.x=1"),
        ("digits.py cfg.x=1", "kdr sweep digits.py --cfg.x=1"),
        ("digits.py sweep.x='[1]'", "kdr sweep digits.py '--sweep.x=[1]'"),
        ("digits.py \u2014cfg.x=1", "kdr sweep digits.py --cfg.x=1"),
        ("digits.py \u2013\u2013cfg.x=1", "kdr sweep digits.py --cfg.x=1"),
        ("digits.py --cfg.=1", "kdr sweep digits.py --cfg.PATH=1"),
        ("digits.py --cfg.x", "kdr sweep digits.py --cfg.x=VALUE"),
        ("--cfg.debug digits.py", "kdr sweep --cfg.debug=VALUE digits.py"),
        ("--sweep digits.py", "kdr sweep digits.py --sweep"),
        ("--sweep lr digits.py", "kdr sweep --sweep=lr digits.py"),
        ("--sweep=digits.py", "kdr sweep digits.py --sweep"),
        ("digits.py --sweep lr", "kdr sweep digits.py --sweep=lr"),
        ("digits.py --sweep=sweep_lr", "kdr sweep digits.py --sweep=lr"),
        ("digits.py --sweep=lr,", "kdr sweep digits.py --sweep=lr"),
        ("digits.py --sweep=", "kdr sweep digits.py --sweep"),
        ("digits.py --sweep=lr='[1]'", "kdr sweep digits.py '--sweep.lr=[1]'"),
        ("digits.py --sweep='[1]'", "kdr sweep digits.py '--sweep.PATH=[1]'"),
        ("digits.py --sweep.lr", "kdr sweep digits.py '--sweep.lr=[VALUE, VALUE]'"),
        ("digits.py --sweep.lr=", "kdr sweep digits.py '--sweep.lr=[VALUE, VALUE]'"),
        ("digits.py --sweep.lr=[1e-3, 1e-2]", "kdr sweep digits.py '--sweep.lr=[1e-3, 1e-2]'"),
        ("digits.py --sweep.lr=[1, -2, 3] --dry-run", "kdr sweep digits.py '--sweep.lr=[1, -2, 3]' --dry-run"),
        ("digits.py --cfg.shape=(1, 2)", "kdr sweep digits.py '--cfg.shape=(1, 2)'"),
        ("digits.py --cfg.name=my run", "kdr sweep digits.py '--cfg.name=my run'"),
        ("digits.py --sweep.A,B=[(1, 2), (3, 4)]", "kdr sweep digits.py '--sweep.A,B=[(1, 2), (3, 4)]'"),
        ("digits.py --cfg=other.py", "kdr sweep digits.py"),
        ("--cfg digits.py", "kdr sweep digits.py"),
        ("digits.py --cfg=x=5", "kdr sweep digits.py --cfg.x=5"),
        ("digits.py --run=5", "kdr sweep digits.py --run.NAME=5"),
        ("digits.py --args.a.b=5", "kdr sweep digits.py --args.NAME=5"),
        ("digits.py --dry_run", "kdr sweep digits.py --dry-run"),
        ("digits.py --dry-run=True", "kdr sweep digits.py --dry-run"),
        ("digits.py dry-run", "kdr sweep digits.py --dry-run"),
        ("digits.py --root runs", "kdr sweep digits.py --root=runs"),
        ("digits.py --rot=runs", "kdr sweep digits.py --root=runs"),
        ("digits.py --trials t.txt", "kdr sweep digits.py --trials=t.txt"),
        ("digits.py --flagfile f.txt", "kdr sweep digits.py --flagfile=f.txt"),
        ("digits.py --learning_rate=1", ""),  # Nobody knows what is in a config that can't be read.
        ("digits.py --", "kdr sweep digits.py"),
        ("digits.py ''", "kdr sweep digits.py"),
        ("digits.py --sweeps.x='[1]'", "kdr sweep digits.py '--sweep.x=[1]'"),
        ("digits.py --config.x=1", "kdr sweep digits.py --cfg.x=1"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_command(line: str, right: str) -> None:
    assert written(refused(shlex.split(line))) == right


def test_an_override_without_root_or_dashes_is_answered_with_the_right_form() -> None:
    """I02: an override without root or dashes is answered with the right form."""
    for line in ("digits.py --a.b=1", "digits.py a.b=1"):
        assert written(refused(line)) == "kdr sweep digits.py --cfg.a.b=1"


def test_all_faults_are_corrected_at_once() -> None:
    message = refused(["--cfg.x", "5", "--sweep", "lr", "digits.py", "-cfg.z=[1,", "2]", "--dry_run"])
    assert written(message) == "kdr sweep --cfg.x=5 --sweep=lr digits.py '--cfg.z=[1, 2]' --dry-run"


def test_every_correction_is_accepted() -> None:
    for line in (["digits.py", "--cfg.x", "5"], ["--sweep", "digits.py"], ["digits.py", "--sweep.x=[1,", "2]"]):
        program, *argv = shlex.split(written(refused(line)))
        assert program == "kdr"
        read_command(argv[1:], flags=FLAGS, options=OPTIONS)


def test_typographic_quotes_around_an_axis_are_named() -> None:
    for line in (["digits.py", "--sweep.lr=\u2018[1,", "2]\u2019"], ["digits.py", "--sweep.lr=\u201c[1,2]\u201d"]):
        assert written(refused(line)).startswith("kdr sweep digits.py '--sweep.lr=[1,")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("--cfg.x==1", "=1"),
        ("--cfg.x=a=b", "a=b"),
        ("--cfg.x=it's", "it's"),
        ("--cfg.x=a#b%c@d:e f", "a#b%c@d:e f"),
        ("--cfg.x=", ""),
        ("--cfg.x=-5", "-5"),
        ("--cfg.x=--y", "--y"),
    ],
)
def test_a_value_is_kept_whole(text: str, value: str) -> None:
    assert read_command(["digits.py", text]).cfg == (("x", value),)


def test_quoted_keys_may_hold_dots_and_equals_signs() -> None:
    command = read_command(["digits.py", "--cfg.evals['a.b=c'].x=5", "--cfg['top level']=6"])
    assert command.cfg == (("evals['a.b=c'].x", "5"), ("['top level']", "6"))


def test_a_key_given_twice_is_refused_in_any_spelling() -> None:
    message = refused(["digits.py", "--cfg.a.b=1", "--dry-run", "--cfg.a['b']=2"])
    assert "given twice" in message
    assert written(message) == """kdr sweep digits.py --dry-run '--cfg.a['"'"'b'"'"']=2'"""


def test_a_key_that_is_swept_too_is_refused() -> None:
    for argv in (["d.py", "--cfg.x=1", "--sweep.x=[1, 2]"], ["d.py", "--sweep.x,y=[(1, 2)]", "--cfg.x=1"]):
        message = refused(argv)
        assert "swept too" in message
        assert "--cfg.x" not in written(message)


def test_a_leading_cfg_of_an_axis_is_accepted_with_a_note() -> None:
    command = read_command(["digits.py", "--sweep.cfg.a,cfg.b=[(1, 2)]"])
    assert command.sweep == (("a,b", "[(1, 2)]"),)
    assert command.notes == ("--sweep.cfg.a,cfg.b: the prefix cfg. is not needed; --sweep.a,b is the same.",)


def test_the_config_may_come_as_a_flag() -> None:
    assert read_command(["--cfg=digits.py", "--cfg.x=1"]).config == "digits.py"
    assert "two configs" in refused("--cfg=digits.py other.py")
    assert "two configs" in refused("digits.py --cfg=other.py")


def test_unknown_flags_list_what_there_is() -> None:
    message = refused("digits.py --verbose")
    assert "unknown flag --verbose" in message
    assert "--dry-run" in message and "--cfg.PATH" in message


def test_more_words_only_where_they_are_taken() -> None:
    assert read_command(["a.py", "b.py"], max_words=2).words == ("b.py",)
    assert "two configs" in refused("a.py b.py")
    assert "no place" in refused("a.py b")


def test_help_is_never_in_the_way() -> None:
    assert read_command(["--cfg.x", "5", "--help"]).rest == ("--help",)


def test_flag_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner.txt"
    inner.write_text("--cfg.inner=1\n")
    file = tmp_path / "flags.txt"
    file.write_text(f"# the usual\n\n  digits.py\n--cfg.name=my run # 3\n--sweep.lr=[1, 2]\n--flagfile={inner}\n")
    command = read_command([f"--flagfile={file}", "--cfg.inner=2", "--dry-run"])
    assert command.config == "digits.py"
    assert command.cfg == (("name", "my run # 3"), ("inner", "2"))  # the command line replaces the file's value
    assert command.sweep == (("lr", "[1, 2]"),)
    assert command.rest == ("--dry-run",)


def test_faults_of_flag_files_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("digits.py\n--cfg.x\n")
    message = refused([f"--flagfile={file}"])
    assert message.startswith(f"{file}:2: --cfg.x: ")
    assert written(message) == "--cfg.x=VALUE"
    assert "cannot be read" in refused([f"--flagfile={tmp_path / 'none.txt'}"])
    file.write_text(f"--flagfile={file}\n")
    assert "without end" in refused([f"--flagfile={file}"])


def test_messages_stay_on_one_line() -> None:
    message = refused(["digits.py", "--cfg.x\n\x1b[31m", "5\t"])
    assert "\x1b" not in message


PIECES = """-- - cfg sweep run args . = [ ] ( 1 , ' " x d.py — --dry-run --root --trials “ ” # None a.b é"""
_pieces = st.sampled_from([*PIECES.split(), "\\", " ", "\n", "\x00"])


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.lists(_pieces, max_size=6).map("".join) | st.text(max_size=8), max_size=6))
def test_any_words_are_sorted_or_answered_in_one_line(argv: list[str]) -> None:
    argv = [word for word in argv if not word.startswith("--flagfile=")]
    try:
        command = read_command(argv, flags=FLAGS, options=OPTIONS)
    except ConfigError as error:
        assert str(error).isprintable()
        return
    assert command == read_command(argv, flags=FLAGS, options=OPTIONS)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.lists(_pieces, max_size=6).map("".join), max_size=5))
def test_a_corrected_command_is_accepted(argv: list[str]) -> None:
    argv = [word for word in argv if not word.startswith("--flagfile=")]
    try:
        read_command(argv, flags=FLAGS, options=OPTIONS)
    except ConfigError as error:
        right = written(str(error))
        hypothesis.assume(right and "\\" not in right and "--flagfile" not in right)
        read_command(shlex.split(right)[2:], flags=FLAGS, options=OPTIONS)
