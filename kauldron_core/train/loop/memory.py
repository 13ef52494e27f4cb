"""What to say when a device has no memory left."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

import jax

from kauldron_core.errors import is_out_of_memory

_MIB = 2**20


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Adds to an error about memory which arrays take most of it."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            error.add_note(biggest_arrays())
        raise


def biggest_arrays(*, num_shown: int = 5) -> str:
    """Returns one line about the biggest arrays on this process's devices, those of equal shape together."""
    sizes: collections.Counter[tuple[str, tuple[int, ...]]] = collections.Counter()
    for array in jax.live_arrays():
        if not array.is_deleted():
            sizes[str(array.dtype), array.shape] += array.nbytes
    total = sum(sizes.values())
    shown = "; ".join(f"{_text(*kind)}: {size / _MIB:.1f} MiB" for kind, size in sizes.most_common(num_shown))
    return (
        f"{total / _MIB:.1f} MiB of arrays are alive, most in {shown or 'none'}. Less is needed with a smaller "
        "batch_size, with microbatches=2 (or more), remat='nothing_saveable', or parameters split over devices."
    )


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
