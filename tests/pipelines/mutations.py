"""What somebody could do to a run before sending it: to each file, to each value in one, and to each name."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

Places = list[tuple[Any, Any]]
"""Each value of a JSON file, as what holds it and its key there."""

CANARY = "kdr_canary"
_SKIPPED = ("state", "logs")  # Arrays are TensorStore's to read, logs are printed as they are.


def mutate(root: Path, outside: Path, rng: random.Random) -> str:
    """Changes one thing below `root` and returns what, in words.

    Args:
      root: The folder of runs.
      outside: A folder that must stay as it is.
      rng: Where chance comes from.
    """
    kind = rng.choices((_change_value, _change_text, _change_name), (6, 3, 2))[0]
    return kind(root, outside, rng)


def files(root: Path) -> list[Path]:
    """Returns the files below a folder that a mutation may concern."""
    found = [path for path in root.rglob("*") if path.is_file() and not set(path.parent.parts) & set(_SKIPPED)]
    return sorted(found)


def hostile_values(outside: Path) -> list[Any]:
    """Returns values that no file of a run should hold where they are put."""
    touch = f"touch {outside / 'ran'}"
    call = {"__qualname__": f"{CANARY}:call"}
    nested: Any = 1
    for _ in range(40):
        nested = [nested]
    return [
        *(None, True, -1, 0, 1.5, 2**70, 10**400, float("inf"), float("nan"), "", " ", [], {}, [None], {"a": 1}),
        *("..", "../../outside/precious", str(outside / "precious"), "a/b", ".", "a\0b", "x" * 100_000, "9" * 5_000),
        *("\x1b[2J\x1b]52;c;AAAA\x07", "a\nb", "\ud800", "\u202e", "no such thing", "-rf", "$(touch /ran)", "(" * 300),
        *(
            f"py::{CANARY}.call()",
            f"{CANARY}.call()",
            f"os.system({touch!r})",
            f"[{CANARY}.call()]",
            f"[py::{CANARY}.call()]",
        ),
        *(call, [call], {"a": call}, {"__qualname__": "os:system", "0": touch}, {"__const__": f"{CANARY}:call"}),
        *({"__ref__": "seed"}, {"__ref__": "a.b[0]"}, {"__op__": "call", "args": [{"__const__": f"{CANARY}:call"}]}),
        *({"__op__": "mul", "args": ["a", 10**9]}, {"__tuple__": [call]}, {"__placeholder__": f"{CANARY}:Kind"}),
        *({"__enum__": f"{CANARY}:Kind.A"}, {"__path__": "/etc/passwd"}, {"__bytes__": "!"}, nested),
    ]


def _change_value(root: Path, outside: Path, rng: random.Random) -> str:
    path, values = None, None
    while values is None:
        path = rng.choice(files(root))
        values = _read(path)
    at = rng.randrange(len(values))
    places = _places(values[at])
    holder, key = rng.choice(places) if places else (values, at)
    match rng.choices(("replace", "remove", "add"), (8, 1, 1))[0]:
        case "replace":
            what = rng.choice(hostile_values(outside))
            holder[key] = what
        case "remove":
            what = "nothing"
            del holder[key]
        case _:
            what = rng.choice(hostile_values(outside))
            name = rng.choice(("__qualname__", "__const__", "__ref__", "..", "\x1b[2J", "name", "status"))
            holder[key] = {name: what}
    text = "\n".join(json.dumps(value) for value in values) + "\n" * (path.suffix == ".jsonl")
    path.write_text(text)
    return f"{path.relative_to(root)}: at {key!r} {str(what)[:80]!r}"


def _change_text(root: Path, outside: Path, rng: random.Random) -> str:
    path = rng.choice(files(root))
    data = path.read_bytes()
    how = rng.choice(("empty", "cut", "deep", "object", "noise", "bytes", "missing", "folder", "pipe", "link", "long"))
    path.unlink()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: rng.randrange(max(len(data), 1))])
        case "deep":
            path.write_text(rng.choice(("[", '{"a":')) * 100_000)
        case "object":
            path.write_text(rng.choice(("{}", "[]", "3", '"text"', "null", "[[]]", "NaN")))
        case "noise":
            path.write_bytes(rng.randbytes(200))
        case "bytes":
            flipped = bytearray(data or b"x")
            for _ in range(5):
                flipped[rng.randrange(len(flipped))] = rng.randrange(256)
            path.write_bytes(flipped)
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(outside / "precious")
        case "long":
            path.write_bytes(data + b" " * 1_000_000)
    return f"{path.relative_to(root)}: {how}"


def _change_name(root: Path, outside: Path, rng: random.Random) -> str:
    names = (
        "\x1b[2J",
        "a\nb",
        " ",
        "-rf",
        "...",
        "x" * 250,
        "\u202e",
        "..x",
        "9" * 30,
        "ckpt_" + "9" * 40,
        "٣",
        b"\xff\xfe",
    )
    folders = [path for path in root.rglob("*") if path.is_dir() and not set(path.parts) & set(_SKIPPED)]
    path = rng.choice([*folders, *files(root)])
    name = rng.choice(names)
    target = Path(os.fsdecode(os.path.join(os.fsencode(path.parent), os.fsencode(name))))
    how = rng.choice(("renamed", "copied", "link out", "link in"))
    with contextlib.suppress(FileExistsError):
        if how == "renamed":
            path.rename(target)
        elif how == "copied":
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
        else:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.symlink_to(outside if how == "link out" else rng.choice(folders))
    return f"{path.relative_to(root)}: {how} {name!r}"


def _read(path: Path) -> list[Any] | None:
    """Returns the JSON values of a file, of events one a line; None where it holds something else."""
    try:
        text = path.read_text()
        return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    except (ValueError, OSError, RecursionError):  # The last one of what an earlier mutation has nested deep.
        return None


def _places(value: Any) -> Places:
    found: Places = []
    pending = [value]
    while pending:
        one = pending.pop()
        pairs = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, inner in pairs:
            found.append((one, key))
            pending.append(inner)
    return found
