"""What is printed acts on no terminal, and shows no value that is to be kept secret."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import masking
from kauldron_core.escaping import OutputFilter, escaped, shown

DANGEROUS = {
    "clipboard": "\x1b]52;c;aWQ=\x07",
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;title\x1b\\",
    "C1": "\x9b2J",
    "bidi": "a\u202eb\u2066c",
    "invisible": "a\u200bb\ufeff",
    "surrogate": "a\udc80",
    "return": "shown\rhidden",
    "backspace": "a\b\bb",
    "delete": "a\x7f",
}
_BAD = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def acts(text: str) -> bool:
    return any(unicodedata.category(letter) in _BAD and letter not in "\n\t" for letter in text)


@pytest.mark.parametrize("text", DANGEROUS.values(), ids=DANGEROUS)
def test_what_acts_on_a_terminal_is_shown_as_python_writes_it(text: str) -> None:
    """F51: control sequences, marks of direction and letters that cannot be seen."""
    assert acts(text)
    assert not acts(escaped(text))
    assert "\\" in escaped(text)


@given(st.text())
def test_no_text_acts_on_a_terminal(text: str) -> None:
    assert not acts(escaped(text))
    passed = OutputFilter().take(text, is_last=True)
    assert not acts(passed.replace("\x1b[", ""))


def test_what_can_be_seen_stays() -> None:
    for text in ("", "val/loss 0.5 ± 0.1 …", "日本語 é 🙂", "two\nlines\tand a tab", "C:\\path"):
        assert escaped(text) == text
    assert escaped("one\nline", keep="") == "one\\nline"


@pytest.mark.parametrize(
    ("printed", "passed"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;38;5;200mone of 256\x1b[m", "\x1b[1;38;5;200mone of 256\x1b[m"),
        ("\x1b[48;2;1;2;3mparts\x1b[0m", "\x1b[48;2;1;2;3mparts\x1b[0m"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
        ("\x1b[2Jclear", "\\x1b[2Jclear"),
        ("\x1b]52;c;aWQ=\x07", "\\x1b]52;c;aWQ=\\x07"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
    ],
)
def test_a_program_keeps_its_plain_colours(printed: str, passed: str) -> None:
    """F51: what a trial printed is passed on; colours that hide nothing stay, everything else is escaped."""
    assert OutputFilter().take(printed, is_last=True) == passed
    in_pieces = OutputFilter()
    pieces = [in_pieces.take(bytes([byte])) for byte in printed.encode()]
    assert "".join([*pieces, in_pieces.take(b"", is_last=True)]) == passed


def test_values_that_are_to_be_kept_secret_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """F49: in any line, also as a part of a word; short ones are parts of other words and stay."""
    monkeypatch.setattr(masking, "_values", {})
    masking.keep_secret("hunter2-secret", "1", "hunter2")
    assert shown("pg://me:hunter2-secret@host hunter2 1") == "pg://me:***@host *** 1"


@pytest.mark.parametrize(
    ("word", "recorded"),
    [
        ("--run.env={'DB': 'hunter2', 'N': 1}", '--run.env={"DB": "***", "N": "***"}'),
        ("--run.env.DB=hunter2", "--run.env.DB=***"),
        ("--run.env={'DB': 'hunter2'", "--run.env=***"),
        ("--cfg.stages.sweep.run_spec.env={'DB': 'hunter2'}", '--cfg.stages.sweep.run_spec.env={"DB": "***"}'),
        ("--cfg.stages.sweep.run_spec={'env': {'DB': 'hunter2'}}", "--cfg.stages.sweep.run_spec=***"),
        ("--cfg.env=hunter2", "--cfg.env=hunter2"),
        ("--run.name=env", "--run.name=env"),
    ],
)
def test_a_recorded_command_holds_names_and_no_values(word: str, recorded: str) -> None:
    """F49: the values of variables do not get into what is written down."""
    assert masking.mask_words([word]) == [recorded]


@pytest.mark.parametrize(
    "words",
    [
        ["--run.env={'DB': 'hunter2-secret'"],
        ["--run.env", "DB=hunter2-secret"],
        ["--run.env.DB=hunter2-secret"],
        ["--run.env={DB: hunter2-secret}"],
        ["--cfg.stages.a.run_spec={'env': {'DB': 'hunter2-secret'}}"],
    ],
)
def test_words_that_cannot_be_read_are_masked_in_errors_too(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """F49: an error about a command shows its words."""
    monkeypatch.setattr(masking, "_values", {})
    masking.keep_words_secret(words)
    assert "hunter2" not in shown(f"{words}: no. Write: kdr sweep {' '.join(words)}")
