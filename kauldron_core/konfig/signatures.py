"""Which arguments a target takes, known whenever its module is imported."""

from __future__ import annotations

from typing import Any


def check_argument(node: Any, key: Any) -> None:
    """Refuses an argument that the target of a call does not take."""


def check_call(node: Any, *, at: str) -> None:
    """Refuses a call with arguments that its target does not take."""


def check_complete(node: Any, target: Any, *, at: str) -> None:
    """Refuses a call that lacks an argument or has one too many."""
