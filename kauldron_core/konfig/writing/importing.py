"""`with konfig.imports():` makes the imports inside it give proxies, for the code of that block alone."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.writing.proxies import Proxy


class imports:  # A context manager that reads like a function.
    """Makes `import` statements inside the block give proxies, whose calls describe instead of run.

    Args:
      lazy: Whether modules are left alone until the config is resolved (they may be missing here, or be `__main__`).
        Otherwise they are imported at once, so that names and arguments can be checked as they are written.
    """

    def __init__(self, *, lazy: bool = False) -> None:
        self._lazy = lazy

    def __enter__(self) -> None:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        _hook.add(frame.f_globals, self._lazy)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _hook.remove()


@contextlib.contextmanager
def set_lazy_imported_modules(lazy_import: Sequence[str] = ("*",), *, except_: Sequence[str] = ()) -> Generator[None]:
    """Makes the blocks of `konfig.imports()` that run inside treat some modules as lazy.

    Args:
      lazy_import: Names of modules; each covers what lies below it, `'*'` covers all.
      except_: Modules that are imported nevertheless.
    """
    _rules.stack = [*_rules.stack, (tuple(lazy_import), tuple(except_))]
    try:
        yield
    finally:
        _rules.stack = _rules.stack[:-1]


class _Rules(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def is_lazy(self, module: str) -> bool | None:
        """Returns what the innermost rules say, None when there are none."""
        if not self.stack:
            return None
        lazy, eager = self.stack[-1]
        return _covers(lazy, module) and not _covers(eager, module)


def _covers(names: Sequence[str], module: str) -> bool:
    return any(name == "*" or module == name or module.startswith(name + ".") for name in names)


class _Hook:
    """Stands in for `__import__` while any block is open; only imports of the block's own module and thread notice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, list[tuple[dict[str, Any], bool]]] = {}
        self._original: Any = None

    def add(self, caller_globals: dict[str, Any], lazy: bool) -> None:
        with self._lock:
            if not self._blocks:
                self._original = builtins.__import__
                builtins.__import__ = self
            self._blocks.setdefault(threading.get_ident(), []).append((caller_globals, lazy))

    def remove(self) -> None:
        with self._lock:
            thread = threading.get_ident()
            self._blocks[thread].pop()
            if not self._blocks[thread]:
                del self._blocks[thread]
            if not self._blocks and builtins.__import__ is self:
                builtins.__import__ = self._original

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        blocks = self._blocks.get(threading.get_ident(), ())
        if not blocks or globals is not blocks[-1][0] or name == "__future__":
            return self._original(name, globals, locals, fromlist, level)
        return _import(name, tuple(fromlist or ()), level, blocks[-1][1])


def _import(name: str, fromlist: tuple[str, ...], level: int, lazy: bool) -> Proxy:
    if level:
        raise ConfigError(
            f"`from {'.' * level}{name} import ...`: a config names modules in full, without leading dots"
        )
    if "*" in fromlist:
        raise ConfigError(f"`from {name} import *`: a config names what it imports")
    rule = _rules.is_lazy(name)
    lazy = lazy if rule is None else rule
    if not lazy:
        _import_module(name, fromlist)
    if fromlist:
        submodules = frozenset(f"{name}.{part}" for part in fromlist if not lazy and f"{name}.{part}" in sys.modules)
        return Proxy(name, is_lazy=lazy, submodules=submodules)
    parts = name.split(".")
    below = frozenset(".".join(parts[: index + 1]) for index in range(1, len(parts)))
    return Proxy(parts[0], is_lazy=lazy, submodules=below)


def _import_submodule(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # It is there, and what it imports itself is not.
            raise


def _import_module(name: str, fromlist: tuple[str, ...]) -> None:
    try:
        module = importlib.import_module(name)
        for part in fromlist:
            if not hasattr(module, part) and hasattr(module, "__path__"):
                _import_submodule(f"{name}.{part}")
    except ImportError as error:
        error.add_note(
            "Modules that are not installed here can be imported inside `with konfig.imports(lazy=True):`, "
            "which leaves them alone until the config is resolved."
        )
        raise


_rules = _Rules()
_hook = _Hook()
