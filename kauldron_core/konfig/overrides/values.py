"""The value rule: what the text of an override means for the field that it is meant for. Nothing is ever `eval`-ed.

In this order: a text field takes the text as it is; `a.b(...)` is a call; a dotted name whose first part is an alias
of the config exists or is an error; a Python literal is itself; anything else is text, where a text can be meant.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import Any

from kauldron_core.errors import closest, shown
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import Misfit
from kauldron_core.konfig.overrides.literals import OTHER_SPELLINGS, LiteralReader, NotAValue
from kauldron_core.konfig.overrides.names import Names
from kauldron_core.konfig.overrides.refusal import Refused
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.overrides.splitting import depth_of, inside
from kauldron_core.konfig.tree.building import Builder
from kauldron_core.konfig.tree.nodes import distrust
from kauldron_core.konfig.tree.walking import nodes
from kauldron_core.konfig.trusting.rules import UntrustedError
from kauldron_core.konfig.writing.config_dict import ConfigDict

_MAX_CHARS = 1_000_000
_MAX_DEPTH = 50
_PREFIX = "py::"
_TYPOGRAPHIC = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
    "\u00a0": " ",
    "\uff0c": ",",
}
"""What editors, chats and PDF files make of signs of Python."""
_ARITHMETIC = re.compile(r"[-+ \d.eE_()]*\d\s*(\*\*?|//?|\+|%)\s*[-+ \d.eE_()*/%]*\d[ )]*\Z")


def read_value(text: str, slot: Slot, names: Names) -> Any:
    """Returns the value that `text` means at `slot`.

    Raises:
      ConfigError: When it means nothing there; the message says what would.
    """
    try:
        value = _read(text, slot, names)
    except UntrustedError as error:
        raise UntrustedError(f"{slot.at}: {error}") from None
    except Refused as error:
        if error.flag != error.at:  # What is advised is no value.
            raise
        raise error.tried(lambda right: _read(right, slot, names)) from None
    return value if names.trusted else _distrusted(value)


def _distrusted(value: Any) -> Any:
    """Returns what the text of a file means: dicts in it are nodes that came from that file, whatever they name."""
    converted = Builder(ConfigDict, trusted=False).convert(value)
    for node in nodes(converted):
        distrust(node)
    return converted


def _read(text: str, slot: Slot, names: Names) -> Any:
    if slot.takes_raw_text and not text.startswith(_PREFIX):
        return _read_raw(text, slot, names)
    text = text.strip()
    return fitted(_read_python(text, slot, names), slot, text)


def fitted(value: Any, slot: Slot, text: str) -> Any:
    """Returns `value`, which `text` was read as, as the field takes it.

    Raises:
      ConfigError: When the field does not take it.
    """
    try:
        return slot.fit(value)
    except Misfit as misfit:
        raise _misfit(value, slot, text, str(misfit)) from None


def unquoted(text: str) -> str:
    """Returns what one full string literal holds; any other text as it is."""
    stripped = text.strip()
    if stripped[-1:] not in ("'", '"') or len(stripped) > _MAX_CHARS:
        return text
    try:
        kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(stripped).readline)]
        value = ast.literal_eval(stripped) if kinds[:1] == [tokenize.STRING] else None
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) and kinds.count(tokenize.STRING) == 1 else text


def _read_raw(text: str, slot: Slot, names: Names) -> Any:
    """Returns the text for a text field; None and containers only where its annotation names them as well."""
    if text.strip() == "None" and slot.takes_none:
        return None
    is_container = any(inside(text, bracket) is not None for bracket in "[({")
    if is_container and slot.annotation is not hints.UNKNOWN and not hints.is_text(slot.annotation):
        try:
            return slot.fit(_read_python(text.strip(), slot, names))
        except (Misfit, Refused):
            pass
    return fitted(unquoted(text), slot, text)


def _read_python(text: str, slot: Slot, names: Names) -> Any:
    is_python = text.startswith(_PREFIX)
    text = text.removeprefix(_PREFIX)
    if text in hints.choices(slot.annotation):
        return text
    if not text:
        raise Refused(slot.at, f"the value is missing (expected {slot.expects})", right="VALUE")
    if text not in ("True", "False", "None") and (right := OTHER_SPELLINGS.get(text.lower())):
        what = f"{shown(text)} is written {right} here"
        raise Refused(slot.at, what, right=right, or_text=slot.may_hold_text, text=text)
    node = _parsed(text, slot)
    why = ""
    if node is not None:
        try:
            return LiteralReader(slot, names, text).read(node)
        except NotAValue as error:
            why = str(error)
    if is_python or not slot.may_hold_text or _looks_broken(text):
        raise _no_value(text, slot, names, why)
    return text


def _parsed(text: str, slot: Slot) -> ast.expr | None:
    """Returns the syntax tree of `text`, or None when it is not Python."""
    if len(text) > _MAX_CHARS:
        raise Refused(slot.at, f"a value of {len(text)} characters is too long (at most {_MAX_CHARS})")
    if depth_of(text) > _MAX_DEPTH:
        raise Refused(slot.at, f"brackets nest deeper than {_MAX_DEPTH}")
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if comment := _comment(text):
        kept = text[: text.rindex(comment)].strip()
        raise Refused(slot.at, f"the comment {shown(comment)} is no part of a value", right=kept, text=text)
    return node


def _comment(text: str) -> str:
    if "#" not in text:
        return ""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return ""
    return next((token.string for token in tokens if token.type == tokenize.COMMENT), "")


def _looks_broken(text: str) -> bool:
    """Returns whether a text is more probably a mistyped value than a text."""
    if text[0] in "[({'\"=":
        return True
    if text[0] in _TYPOGRAPHIC and (text[1:2].isdigit() or text[-1] in _TYPOGRAPHIC):
        return True
    return bool(_ARITHMETIC.match(text)) or (text.isdigit() and len(text) > 1000)


def _no_value(text: str, slot: Slot, names: Names, why: str) -> Refused:
    """Returns the refusal of a text that is not a value of the field, with what was probably meant."""
    or_text = slot.may_hold_text
    plain = "".join(_TYPOGRAPHIC.get(char, char) for char in text)
    if plain != text:
        return Refused(slot.at, f"{shown(text)} has typographic signs", right=plain, or_text=or_text, text=text)
    if text.startswith("="):
        right = text.lstrip("= ")
        return Refused(slot.at, "one equals sign is enough", right=right, or_text=or_text, text=text)
    if text.lstrip("-").isdigit() and len(text) > 1000:
        return Refused(slot.at, f"a number of {len(text)} digits is too long", text=text)
    because = f" ({why})" if why else ""
    if or_text:
        return Refused(slot.at, f"{shown(text)} is not a value{because}", or_text=True, text=text)
    right = _without_noise(text) or next(iter(names.full_names_of(text)), None)
    return Refused(slot.at, f"expected {slot.expects}, got the text {shown(text)}{because}", right=right, text=text)


def _without_noise(text: str) -> str | None:
    """Returns the number in a text such as `5;`, `007` or `0.1f`, when the rest is a slip of the finger."""
    match = re.fullmatch(r"([-+]?)0*((\d+\.?\d*|\.\d+)(e[-+]?\d+)?)\s*[;fFlLuU]?\s*", text, re.IGNORECASE)
    return match[1] + match[2] if match else None


def _misfit(value: Any, slot: Slot, text: str, expected: str) -> Refused:
    what = f"expected {expected}, got {hints.kind_of(value)}"
    if isinstance(value, str) and (choices := hints.choices(slot.annotation)):
        match = closest(value, map(str, choices))
        return Refused(slot.at, f"unknown value {shown(value)}", right=match, text=text, available=map(str, choices))
    if _is_axis(value, text) and slot.at.startswith("--cfg."):
        items = inside(text, "[" if isinstance(value, list) else "(")
        flag = f"--sweep.{slot.at.removeprefix('--cfg.')}"
        return Refused(slot.at, f"{what}; several values are an axis", right=f"[{items}]", text=text, flag=flag)
    if isinstance(value, tuple) and "," in text and not text.startswith("("):
        right = text.replace(",", "") if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})*,?", text) else None
        # Half of the world writes 0,1 for 0.1.
        point = text.replace(",", ".")
        if right is None and re.fullmatch(r"[-+]?\d+,\d+", text) and _takes(float(point), slot):
            right = point
        if right is None and slot.at.startswith("--cfg."):
            flag = f"--sweep.{slot.at.removeprefix('--cfg.')}"
            return Refused(slot.at, f"{what}; several values are an axis", right=f"[{text}]", text=text, flag=flag)
        return Refused(slot.at, f"{what}: a comma makes a tuple", right=right, text=text)
    return Refused(slot.at, what, right=_near(value, slot), text=text)


def _takes(value: Any, slot: Slot) -> bool:
    try:
        slot.fit(value)
    except Misfit:
        return False
    return True


def _is_axis(value: Any, text: str) -> bool:
    """Returns whether a list or tuple was given where one of its values was expected."""
    return isinstance(value, list) or (isinstance(value, tuple) and text.startswith("("))


def _near(value: Any, slot: Slot) -> str | None:
    """Returns the value of the expected type that was most probably meant."""
    candidates: list[Any] = []
    if type(value) in (int, float) and value in (0, 1):
        candidates.append(bool(value))
    if type(value) is bool:
        candidates.append(int(value))
    if type(value) is float and value.is_integer() and abs(value) < 1e15:
        candidates.append(int(value))
    if type(value) in (bool, int, float, str):
        candidates.append([value])
    for candidate in candidates:
        try:
            return repr(slot.fit(candidate))
        except Misfit:
            continue
    return None
