"""docs/design.md names rooms and files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text()
ROOMS = ("kauldron_core", "evaluators", "ray_cluster", "pipelines", "docs", "tests", "benchmarks")


def _named() -> list[str]:
    whole = re.findall(rf"\b((?:{'|'.join(ROOMS)})(?:/[\w.]+)*/?)", PAGE)
    parts = re.findall(r"`((?:\w+/)+[\w.]*)`", PAGE)
    return sorted({name.rstrip(".") for name in [*whole, *parts] if not name.startswith("RUN/")})


@pytest.mark.parametrize("name", _named())
def test_what_the_page_names_is_there(name: str) -> None:
    module = name.replace(".", "/", 1) if re.fullmatch(r"(ray_cluster|kauldron_core)\.\w+", name) else name
    places = [base / module for base in (ROOT, ROOT / "kauldron_core", *(ROOT / "kauldron_core").iterdir())]
    assert any(place.exists() or place.with_suffix(".py").exists() for place in places)


def test_every_room_of_the_core_is_on_the_page() -> None:
    rooms = {path.name for path in (ROOT / "kauldron_core").iterdir() if (path / "__init__.py").is_file()}
    assert {room for room in rooms if f"`{room}/`" not in PAGE} == set()
