"""Reads `name` and `name(argument=value)`, as run specs name searchers and schedulers."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from kauldron_core.errors import ConfigError

_SHOWN = 200


def read_call(text: str, *, at: str, known: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Returns the name and the arguments.

    Args:
      text: What was written.
      at: Where, for messages.
      known: Short names that there are, for messages.

    Raises:
      ConfigError: If it is something else.
    """
    form = f"write NAME or NAME(ARGUMENT=VALUE). Known: {', '.join(known)}"
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else None
        if call is not None and call.args:
            raise ConfigError(f"{at}={text}: arguments are given by name; {form}.")
        arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords} if call is not None else {}
        return ast.unparse(call.func if call is not None else tree), arguments
    except ConfigError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{at}={text[:_SHOWN]}: {str(error) or type(error).__name__}; {form}.") from error
