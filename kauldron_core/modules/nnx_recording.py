"""Records what the layers of an NNX module return, at the paths where Linen records it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flax import nnx

# Held while the classes of layers are patched.
_patching = threading.RLock()


def call_and_record(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, with_calls: bool
) -> tuple[Any, dict[Any, Any]]:
    """Returns the outputs of `module`, and what its layers sowed.

    Args:
      module: The module.
      args: Arguments of its call.
      kwargs: Arguments by name.
      with_calls: Whether to record the outputs of each layer: a tuple with one value for each call of it, under
        `__call__` at its path.
    """
    with contextlib.ExitStack() as patched:
        if with_calls:
            patched.enter_context(_patching)
            patched.enter_context(_calls_sown(module))
        outputs, inner = nnx.capture(module, nnx.Intermediate)(*args, **kwargs)
    return outputs, nnx.to_pure_dict(inner)


@contextlib.contextmanager
def _calls_sown(module: nnx.Module) -> Iterator[None]:
    """Makes every layer sow what its call returns.

    `nnx.capture(method_outputs=...)` is not used: it takes static methods for methods, and records any method's text.
    """
    with contextlib.ExitStack() as undone:
        classes = {type(layer) for _, layer in nnx.iter_modules(module)}
        # Looked up before any is patched: a class may have its call from another one.
        calls = {cls: cls.__call__ for cls in classes if "__call__" in dir(cls)}
        for cls, call in calls.items():
            undone.callback(_restore, cls, vars(cls).get("__call__"))
            cls.__call__ = _sowing(call)
        yield


def _sowing(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def sowing(self: nnx.Module, *args: Any, **kwargs: Any) -> Any:
        outputs = call(self, *args, **kwargs)
        self.sow(nnx.Intermediate, "__call__", outputs)
        return outputs

    return sowing


def _restore(cls: type, own: Callable[..., Any] | None) -> None:
    if own is None:
        del cls.__call__
    else:
        cls.__call__ = own
