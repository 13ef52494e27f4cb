"""The page about overrides is true: its config is built, and every row of its tables is run on it."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, paths, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.overrides.splitting import partition_outside
from kauldron_core.sweeps.trial_names import encoded
from pipelines.cli.words.command import read_command

PAGE = (Path(__file__).parents[3] / "docs" / "overrides.md").read_text(encoding="utf-8")


def rows(*header: str) -> list[tuple[str, str]]:
    """Returns the cells of every table with this header."""
    line = "| " + " | ".join(header) + " |\n"
    found: list[tuple[str, str]] = []
    for table in PAGE.split(line)[1:]:
        body = table.split("\n\n")[0].splitlines()[1:]
        cells = [re.match(r"\| `(.*?)` \| (.*) \|$", row) for row in body]
        assert all(cells), [row for row, cell in zip(body, cells, strict=True) if not cell]
        found += [(cell[1], cell[2]) for cell in cells if cell]
    return found


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    source = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    variables: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, "docs/overrides.md", "exec"), variables)
    return variables


def plain(value: Any) -> str:
    """Returns a value as text that tells types apart, proxies as what a config holds for them."""
    return encoded(konfig.ConfigDict({"it": value})["it"])


def read(cfg: Any, path: str) -> Any:
    for part in paths.parse(path):
        if isinstance(cfg, konfig.ConfigDict) and part not in cfg and cfg.get("__qualname__") == "optax:adam":
            part = "0"  # the one argument that the page's config gives by position
        cfg = cfg[part]
    return cfg


def check_error(message: str, expected: str) -> None:
    assert "\n" not in message
    assert expected.removeprefix("error: ") in message


def test_the_page_has_enough_examples() -> None:
    assert len(rows("Override", "Result")) + len(rows("Axis", "Values")) + len(rows("Typed", "Answer")) >= 80


@pytest.mark.parametrize(("text", "result"), rows("Override", "Result"))
def test_override(namespace: dict[str, Any], text: str, result: str) -> None:
    cfg = copy.deepcopy(namespace["cfg"])
    before = konfig.to_json(cfg)
    if result.startswith("error: "):
        with pytest.raises(ConfigError) as caught:
            konfig.apply_overrides(cfg, [text], read_axis=sweeps.parse_axis)
        check_error(str(caught.value), result)
        assert konfig.to_json(cfg) == before
        return
    konfig.apply_overrides(cfg, [text], read_axis=sweeps.parse_axis)
    path = partition_outside(text, "=")[0]
    assert plain(read(cfg, path)) == plain(eval(result.strip("`"), namespace))


@pytest.mark.parametrize(("text", "result"), rows("Axis", "Values"))
def test_axis(namespace: dict[str, Any], text: str, result: str) -> None:
    cfg = namespace["cfg"]
    if result.startswith("error: "):
        with pytest.raises(ConfigError) as caught:
            sweeps.from_strings(cfg, [text])
        check_error(str(caught.value), result)
        return
    (axis,) = sweeps.from_strings(cfg, [text])
    assert isinstance(axis, sweeps.Axis)
    assert [plain(value) for value in axis.values] == [plain(value) for value in eval(result.strip("`"), namespace)]
    assert len(sweeps.expand(cfg, [axis])) == len(axis.values)


@pytest.mark.parametrize(("typed", "answer"), rows("Typed", "Answer"))
def test_command(typed: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_command(typed.split(" "), flags=["--dry-run"], options=["--root"])
    assert str(caught.value).endswith(f"Write: {answer.strip('`')}")


def test_the_python_examples_run(namespace: dict[str, Any]) -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    variables = {**namespace, "cfg": copy.deepcopy(namespace["cfg"])}
    exec(compile(source, "docs/overrides.md", "exec"), variables)
    assert len(variables["trials"]) == 3 * 4 + 2
