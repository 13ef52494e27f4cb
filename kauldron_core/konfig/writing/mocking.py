"""`with konfig.mock_modules():` turns the modules that a notebook has imported into proxies for a few lines."""

from __future__ import annotations

import sys
from types import FrameType, ModuleType, TracebackType
from typing import Any

from kauldron_core.konfig.writing.proxies import Proxy

_OWN = "kauldron_core.konfig"


class mock_modules:  # A context manager that reads like a function.
    """Replaces every module among the caller's variables by a proxy, except konfig, until the block ends."""

    def __init__(self) -> None:
        self._replaced: list[tuple[str, ModuleType]] = []

    def __enter__(self) -> None:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        for variables in _namespaces(frame):
            for name, value in list(variables.items()):
                if isinstance(value, ModuleType) and not _is_own(value) and not name.startswith("__"):
                    self._replaced.append((name, value))
                    variables[name] = Proxy(value.__name__)
            _write_back(frame, variables)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        for variables in _namespaces(frame):
            for name, module in self._replaced:
                if variables.get(name) == Proxy(module.__name__):  # What the block bound anew stays.
                    variables[name] = module
            _write_back(frame, variables)
        self._replaced.clear()


def _namespaces(frame: FrameType) -> list[dict[str, Any]]:
    if frame.f_locals is frame.f_globals:
        return [frame.f_globals]
    return [frame.f_globals, frame.f_locals]


def _is_own(module: ModuleType) -> bool:
    return module.__name__ == _OWN or module.__name__.startswith(_OWN + ".")


def _write_back(frame: FrameType, variables: dict[str, Any]) -> None:
    """Makes changes to the variables of a running function count."""
    if variables is not frame.f_globals and sys.version_info < (3, 13):
        # Before 3.13 the locals of a running function are a copy, which only the interpreter can write back; asking
        # for `frame.f_locals` again would undo the changes.
        import ctypes

        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
