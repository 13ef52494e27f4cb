"""The commands that pages, notebooks and the help show, as words; what of them only stands for something."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from pipelines.cli.app import COMMANDS, kdr
from pipelines.cli.commands import LazyGroup

ROOT = Path(__file__).parents[3]
PAGES = [
    *(page for page in sorted(ROOT.rglob("README.md")) if not any(part.startswith(".") for part in page.parts)),
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "own.md"),  # It has a test of its own.
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
_LINE = re.compile(r"\s*(?:[$!#>] ?)?(?:[A-Z_]+=\S+ )*(kdr [a-z].*)")
_MODULE = re.compile(r"(?:ray job submit [^\n`]*? -- )?python -m pipelines\.(sweep|train|evaluate|pipeline)\b")
_INLINE = re.compile(r"(?<!`)`(?:[A-Z_]+=\S+ )*(kdr(?: [a-z-][^`]*)?)`(?!`)")
_DIGITS = "pipelines/configs/digits.py"
_FILES = {
    **dict.fromkeys(("CONFIG", "CONFIG.py", "my/config.py", "digits.py"), _DIGITS),
    "PIPELINE.py": "pipelines/configs/digits_pipeline.py",
}


@dataclass(frozen=True)
class Documented:
    """One command of a page.

    Attributes:
      source: Where it stands.
      words: Its words, `kdr` left out; files that are only named stand for the config of the digits.
      is_form: Whether a word stands for something (`RUN`, `...`), so that it can be read but not run.
      is_mention: Whether it is a name in a sentence, its arguments left out.
    """

    source: str
    words: tuple[str, ...]
    is_form: bool
    is_mention: bool


def commands() -> list[Documented]:
    """Returns the commands of all pages and of the help, each once."""
    found = [one for page in PAGES for text in _texts(page) for one in _of(text, str(page.relative_to(ROOT)))]
    found += [one for name, text in _helps(kdr, "kdr") for one in _of(text, f"{name} --help")]
    return list({one.words: one for one in found}.values())


def _texts(page: Path) -> list[str]:
    if page.suffix != ".ipynb":
        return [page.read_text()]
    return ["".join(cell["source"]) for cell in json.loads(page.read_text())["cells"]]


def _helps(group: LazyGroup, name: str) -> Iterator[tuple[str, str]]:
    yield name, group.epilog or ""
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        if isinstance(command, LazyGroup):
            yield from _helps(command, f"{name} {word}")
        elif command is not None:
            yield f"{name} {word}", command.epilog or ""


def _of(text: str, source: str) -> Iterator[Documented]:
    text = _MODULE.sub(lambda match: f"kdr {match[1]}".replace("evaluate", "eval"), re.sub(r"\s*\\\n\s*", " ", text))
    lines = [match[1] for line in text.splitlines() if (match := _LINE.fullmatch(line))]
    inline = [" ".join(one.split()) for one in _INLINE.findall(text)]
    for line in [*lines, *inline]:
        # A line of a table of commands has what they do behind them.
        for one in re.split(r"\s{6,}", line)[0].split(" && "):
            yield from _read(one, source, is_inline=line in inline)


def _read(line: str, source: str, *, is_inline: bool) -> Iterator[Documented]:
    words = shlex.split(line, comments=True)[1:]
    if len(words) > 1 and all(word in COMMANDS for word in words):  # `kdr status best logs`
        words = ["|".join(words)]
    choices = next((at for at, word in enumerate(words) if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word)), None)
    if choices is not None:
        for choice in words[choices].split("|"):
            yield Documented(source, (*words[:choices], choice), is_form=True, is_mention=True)
        return
    kept = [_FILES.get(word, word) for word in words if word != "..."]
    # In a sentence a command may stand without what it needs.
    is_mention = is_inline and (len(kept) < len(words) or len(kept) <= 2)
    is_form = len(kept) < len(words) or any(re.fullmatch(r"(.*/)?[A-Z]{3,}[_A-Z]*", word) for word in kept)
    if kept:
        yield Documented(source, tuple(kept), is_form=is_form, is_mention=is_mention)
