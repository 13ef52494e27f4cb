"""The names a model needs in its annotations: `from kauldron_core.typing import Float, typechecked`."""

from kauldron_core.ktyping import *  # noqa: F403
from kauldron_core.ktyping import __all__ as __all__
