"""What each kind of file of a run has to hold. What is not named here may be anything: a later version's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kauldron_core.rundir import names
from kauldron_core.rundir.reading import Check, Misfit

MAX_WHOLE = 1 << 62
LARGEST = 10**300
LAST_MOMENT = 250_000_000_000
"""In the year 9892: `datetime` ends with the year 9999."""


def anything(value: Any, at: str) -> None:
    """Takes every value."""


def text(value: Any, at: str) -> None:
    """Takes a text."""
    _require(isinstance(value, str), value, at, "a text")


def number(value: Any, at: str) -> None:
    """Takes a number, infinities and NaN too."""
    _require(is_number(value), value, at, "a number")


def is_number(value: Any) -> bool:
    """Returns whether a value is a number, and a float can hold it."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def whole(value: Any, at: str) -> None:
    """Takes a whole number that a table and a database can hold."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    _require(is_whole and -MAX_WHOLE < value < MAX_WHOLE, value, at, "a whole number")


def moment(value: Any, at: str) -> None:
    """Takes seconds since 1970 that a calendar can show."""
    _require(is_number(value) and 0 <= value < LAST_MOMENT, value, at, "a time in seconds since 1970")


def flag(value: Any, at: str) -> None:
    """Takes true and false."""
    _require(isinstance(value, bool), value, at, "true or false")


def name(value: Any, at: str) -> None:
    """Takes a text that can be the name of one folder."""
    text(value, at)
    fault = names.fault(value)
    if fault is not None:
        raise Misfit(f"{at} is no name: it {fault}")


def one_of(choices: Collection[str]) -> Check:
    """Check for one of some texts."""

    def check(value: Any, at: str) -> None:
        _require(isinstance(value, str) and value in choices, value, at, f"one of {', '.join(choices)}")

    return check


def maybe(inner: Check) -> Check:
    """Check that passes null, too."""

    def check(value: Any, at: str) -> None:
        if value is not None:
            inner(value, at)

    return check


def many(inner: Check) -> Check:
    """Check for a list."""

    def check(value: Any, at: str) -> None:
        _require(isinstance(value, list), value, at, "a list")
        for index, item in enumerate(value):
            inner(item, f"{at}[{index}]")

    return check


def pair(first: Check, second: Check) -> Check:
    """Check for a list of two."""

    def check(value: Any, at: str) -> None:
        _require(isinstance(value, list) and len(value) == 2, value, at, "a pair")
        first(value[0], f"{at}[0]")
        second(value[1], f"{at}[1]")

    return check


def by_name(inner: Check) -> Check:
    """Check for an object whose values are all of one kind."""

    def check(value: Any, at: str) -> None:
        _require(isinstance(value, dict), value, at, "an object")
        for key, item in value.items():
            inner(item, _join(at, key))

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Check for an object with these entries; others are not looked at."""
    known = {**required, **(optional or {})}

    def check(value: Any, at: str) -> None:
        _require(isinstance(value, dict), value, at, "an object")
        missing = next((key for key in required if key not in value), None)
        if missing is not None:
            raise Misfit(f"it lacks {_join(at, missing)}")
        for key, item in value.items():
            if key in known:
                known[key](item, _join(at, key))

    return check


_ROW = record(
    {"name": name},
    {"index": whole, "fingerprint": text, "overrides": many(pair(text, anything))},
)

SWEEP = record(
    {},
    {
        "format": whole,
        "id": text,
        "config": maybe(text),
        "command": maybe(text),
        "metric": maybe(text),
        "mode": maybe(one_of(("max", "min"))),
        "ranking": maybe(record(dict.fromkeys(("metric", "mode", "reason"), text))),
        "directions": maybe(by_name(text)),
        "base": maybe(by_name(text)),
        "swept": maybe(many(text)),
        "space": maybe(many(text)),
        "axes": maybe(many(pair(text, text))),
        "run": by_name(anything),
        "trials": maybe(many(_ROW)),
    },
)
"""`RUN/sweep.json`."""

PACK = record(
    {"trials": many(name)},
    {
        "pack": record({"members": many(whole), "arguments": many(text)}),
        "rule": maybe(by_name(anything)),
        "is_tried": flag,
        "is_timed": flag,
    },
)
"""`RUN/packs/ID/pack.json`."""

HALVES = record({"step": maybe(whole), "halves": many(many(whole))})
"""`RUN/packs/ID/halves.json`."""

CONTROL = record({}, {"stop": flag, "reason": maybe(text), "trials": by_name(text)})
"""`RUN/control.json`."""

PENDING = record({"due": many(whole), "seen": whole, "max_pending": whole}, {"is_blocking": flag})
"""`evals/NAME/.due.json`."""

RESULT = record(
    {},
    {
        "status": one_of(("done", "failed", "skipped")),
        "values": maybe(by_name(number)),
        "error": maybe(text),
        "fingerprint": maybe(text),
        "num_examples": maybe(whole),
        "seconds": maybe(number),
        "examples_per_s": maybe(number),
        "examples": maybe(name),
        "saved_ms": maybe(whole),
        "finished_ms": maybe(whole),
        "better": maybe(by_name(text)),
    },
)
"""`evals/NAME/STEP.json`."""

LEASE = record(
    {**dict.fromkeys(("host", "machine", "process_start", "note"), text), "pid": whole, "ttl_s": number},
)
"""A claim: `.lock`, `.leases`, `.watch`."""

POINTER = record({"pack": text, "row": whole, "size": whole})
"""`checkpoints/ckpt_N/pack.json`: where the arrays of a trial of a pack are."""

METADATA = record(
    {},
    {
        "step": whole,
        "saved_at": maybe(moment),
        "owner": maybe(text),
        "metrics": maybe(by_name(number)),
        "state": by_name(text),
    },
)
"""`checkpoints/ckpt_N/metadata/metadata`."""

CHECKSUMS = by_name(whole)
"""`checkpoints/ckpt_N/checksums.json`."""

CONFIG = by_name(anything)
"""`config.json` and `base.json`: an object; what is in it is the config's matter."""

STAGE = record(
    {"identity": text, "run": name, "seconds": number},
    {
        "metric": text,
        "direction": text,
        "report": text,
        "chosen": many(record({"trial": name, "value": number})),
        "results": many(record({"trial": name, "evaluator": text, "step": whole, "values": by_name(number)})),
        "best": record({"point": text, "mean": number}),
    },
)
"""`stages/STAGE.json` of a pipeline."""


EVENT = record(
    {"kind": text, "step": whole, "time_ms": whole},
    {
        **dict.fromkeys(("split", "name", "status"), maybe(text)),
        "values": maybe(by_name(anything)),
        "donor": text,
        "changes": by_name(pair(anything, anything)),
        "seconds": number,
        "num_examples": whole,
        "left_aside": many(text),
    },
)
"""A line of `events/ATTEMPT-WRITER.jsonl`."""


def status(statuses: Collection[str]) -> Check:
    """Check for `status.json` of a trial."""
    texts = dict.fromkeys(("error", "last_error", "reason"), maybe(text))
    return record(
        {"status": one_of(statuses)},
        {**texts, "time_ms": whole, "step": maybe(whole), "attempt": maybe(whole), "pack": maybe(name)},
    )


def _require(condition: bool, value: Any, at: str, expected: str) -> None:
    if not condition:
        raise Misfit(f"{at or 'all of it'} is {_kind(value)}, not {expected}")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    shown = repr(value)
    return kinds.get(type(value)) or (shown if len(shown) <= 40 else f"{shown[:37]}...")


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
