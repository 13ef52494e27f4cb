"""What differs between two configs, for people: as a list, and as comments beside the lines of one of them."""

from __future__ import annotations

import contextlib
import copy
import re
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.targets import display
from kauldron_core.konfig.showing.printing import pretty
from kauldron_core.konfig.tree.comparing import MISSING, Change, diff
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import Node, is_node
from kauldron_core.konfig.tree.references import Reference, describe
from kauldron_core.konfig.tree.walking import replaced

# Characters that no config holds stand in the text where a changed leaf is, until its line is known.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MAX_VALUE = 60
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


def pretty_diff(cfg: Node, base: Node) -> str:
    """Returns `cfg` as Python code; lines with values that `base` does not have end in `# was ...`."""
    changed = value_changes(base, cfg)
    shown = copy.deepcopy(cfg)
    for number, change in enumerate(changed):
        if change.new is not MISSING:
            _mark(shown, paths.parse(change.path), f"{_OPEN}{number}{_CLOSE}")
    lines = [_with_comment(line, changed) for line in pretty(shown).splitlines()]
    removed = [change for change in changed if change.new is MISSING]
    return "\n".join([*lines, *(f"# removed: {change.path} (was {_shown(change.old)})" for change in removed)])


def value_changes(a: Node, b: Node) -> list[Change]:
    """Returns what differs between two configs. A value that became a dict, list or call, or was one, is one change."""
    found = diff(a, b)
    gone = {change.path for change in found if change.new is MISSING}
    come = {change.path for change in found if change.old is MISSING}
    roots = {root for path in gone | come if (root := _root(path, come if path in gone else gone)) is not None}
    merged: dict[str, Change] = {}
    for change in found:
        root = next((path for path in _ancestors(change.path) if path in roots), change.path)
        if root == change.path and root not in roots:
            merged[root] = change
        elif root not in merged:
            merged[root] = Change(root, _read(a, root), _read(b, root))
    return list(merged.values())


def change_texts(change: Change) -> tuple[str, str, str]:
    """Returns path, old and new value of a change as text; another target is shown as a change of the call."""
    parts = paths.parse(change.path)
    if parts and parts[-1] in (QUALNAME, CONST):
        names = [display(str(value)) if value is not MISSING else "(no call)" for value in (change.old, change.new)]
        return paths.format(parts[:-1]) or "the config", names[0], names[1]
    return change.path, _shown(change.old), _shown(change.new)


def _shown(value: Any) -> str:
    """Returns a value on one short line."""
    if value is MISSING:
        return "(not there)"
    line = inline(value)
    return line if len(line) <= _MAX_VALUE else f"{line[: _MAX_VALUE - 3]}..."


def inline(value: Any) -> str:
    """Returns a value as Python code on one line, however long."""
    # Texts are printed with their line breaks escaped, so every break is one between entries.
    text = re.sub(r"(?<=[(\[{])\n\s*", "", pretty(value))
    return re.sub(r"\n\s*", " ", re.sub(r",\n\s*(?=[)\]}])", "", text))


def _root(path: str, others: set[str]) -> str | None:
    """Returns the ancestor of `path`, or itself, that is a leaf among `others`, or has leaves of `others` below it."""
    if any(other != path and path in _ancestors(other) for other in others):
        return path
    return next((ancestor for ancestor in _ancestors(path) if ancestor in others), None)


def _ancestors(path: str) -> list[str]:
    """Returns the paths of what holds the leaf at `path`, the outermost first, and the path itself."""
    parts = paths.parse(path)
    return [paths.format(parts[:count]) for count in range(1, len(parts) + 1)]


def _read(cfg: Any, path: str) -> Any:
    for part in paths.parse(path):
        try:
            cfg = cfg[part]
        except (LookupError, TypeError, ConfigError):
            return MISSING
    return cfg


class _Marked:
    """A value that prints with a mark behind it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _mark(cfg: Node, parts: tuple[Any, ...], mark: str) -> None:
    """Puts a mark behind the leaf at a path, in place."""
    is_name = parts[-1:] in ((QUALNAME,), (CONST,))
    # Below a reference there is nothing to mark: what it follows is marked where it is.
    with contextlib.suppress(LookupError):
        replaced(cfg, parts, lambda leaf: f"{leaf}{mark}" if is_name else _marked_leaf(leaf, mark))


def _marked_leaf(value: Any, mark: str) -> Any:
    if is_node(value) and QUALNAME in value:
        return replaced(value, (QUALNAME,), lambda name: f"{name}{mark}")
    text = describe(value) if isinstance(value, Reference) else inline(value)
    return _Marked(text + mark)


def _with_comment(line: str, changed: list[Change]) -> str:
    numbers = [int(number) for number in _MARK.findall(line)]
    if not numbers:
        return line
    several = len(numbers) > 1
    notes = [_note(changed[number], with_path=several) for number in numbers]
    return f"{_MARK.sub('', line)}  # {'; '.join(notes)}"


def _note(change: Change, *, with_path: bool) -> str:
    name = paths.format(paths.parse(change.path)[-1:])
    is_name = name in (QUALNAME, CONST) and isinstance(change.old, str)
    old = display(change.old) if is_name else _shown(change.old)
    text = "new" if change.old is MISSING else f"was {old}"
    return f"{name} {text}" if with_path and not is_name else text
