"""What a config read from disk may use without being told so: whole modules, and names of the large libraries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["all", "classes"]

MODULES: Final[dict[str, Kind]] = {
    "evaluators.decode": "classes",
    "evaluators.probes": "classes",
    "evaluators.seqio_metrics": "classes",
    "flax.linen": "classes",
    "flax.nnx": "classes",
    "kauldron_core.ckpts": "classes",
    "kauldron_core.data": "classes",
    "kauldron_core.evals": "classes",
    "kauldron_core.forward": "classes",
    "kauldron_core.kd": "classes",
    "kauldron_core.losses": "classes",
    "kauldron_core.metrics": "classes",
    "kauldron_core.modules": "all",
    "kauldron_core.optim": "all",
    "kauldron_core.packs": "classes",
    "kauldron_core.random": "classes",
    "kauldron_core.sharding": "all",
    "kauldron_core.summaries": "classes",
    "kauldron_core.train": "classes",
    "optax": "all",
    "pipelines.configs": "all",
}
"""Modules, with all below them: everything they own, or only their classes (and methods of those).

Rooms that read or write files by functions, or reach into objects (konfig, kontext, rundir), are not among them.
"""

OWN_PACKAGES: Final = ("evaluators", "kauldron_core", "pipelines", "ray_cluster")
"""Our own packages: only what is listed, even when the working directory is their source tree."""

_DTYPES = (
    "bool_ int4 int8 int16 int32 int64 uint4 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 "
    "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz"
)
_ACTIVATIONS = (
    "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid log_softmax mish "
    "one_hot relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus "
    "standardize swish tanh"
)
_INITIALIZERS = (
    "constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform "
    "lecun_normal lecun_uniform normal ones orthogonal truncated_normal uniform variance_scaling xavier_normal "
    "xavier_uniform zeros"
)
_MATH = "abs cos exp expm1 log log1p maximum minimum mean max min sign sin sqrt square sum tanh pi inf nan newaxis"
_TYPES = "bool bytes complex dict float frozenset int list object set slice str tuple type"

_NAMES: Final[dict[str, str]] = {
    "builtins": _TYPES,
    "evaluators": "Beam DecodeEvaluator Greedy KnnProbe LinearProbe RidgeProbe Sample SeqioEvaluator",
    "etils.epath": "Path",
    "flax.linen": f"{_ACTIVATIONS} avg_pool max_pool pool dot_product_attention combine_masks make_attention_mask "
    "make_causal_mask with_partitioning remat checkpoint scan vmap jit",
    "flax.linen.initializers": f"{_INITIALIZERS} ones_init zeros_init",
    "flax.nnx": f"{_ACTIVATIONS} avg_pool max_pool min_pool dot_product_attention combine_masks make_attention_mask "
    "make_causal_mask with_partitioning remat",
    "flax.nnx.initializers": f"{_INITIALIZERS} ones_init zeros_init",
    "functools": "partial",
    "jax": "Array P",
    "jax.checkpoint_policies": "checkpoint_dots checkpoint_dots_with_no_batch_dims dots_saveable "
    "dots_with_no_batch_dims_saveable everything_saveable nothing_saveable",
    "jax.lax": "Precision stop_gradient",
    "jax.lax.Precision": "DEFAULT HIGH HIGHEST",
    "jax.nn": f"{_ACTIVATIONS} logsumexp dot_product_attention",
    "jax.nn.initializers": _INITIALIZERS,
    "jax.numpy": f"{_DTYPES} {_MATH} array dtype ndarray",
    "jax.random": "PRNGKey key",
    "jax.sharding": "AxisType Mesh NamedSharding P PartitionSpec SingleDeviceSharding",
    "jax.sharding.AxisType": "Auto Explicit Manual",
    "kauldron_core.kontext": "Key REQUIRED",
    "ml_dtypes": _DTYPES,
    "numpy": f"{_DTYPES} {_MATH} array dtype ndarray",
    "operator": "or_",
    "orbax.checkpoint": "AsyncOptions CheckpointManagerOptions",
    "pathlib": "Path PosixPath PurePath PurePosixPath",
    "types": "EllipsisType NoneType",
}


def _spelled_out() -> Iterator[str]:
    for module, names in _NAMES.items():
        yield from (f"{module}.{name}" for name in names.split())


NAMES: Final = frozenset(_spelled_out())
"""Full names that are allowed one by one."""

UNCALLED: Final = frozenset(
    {"builtins.bytes", "builtins.object", "builtins.type", "jax.Array", "jax.numpy.ndarray", "numpy.ndarray"}
)
"""Names among them that stand for themselves only: calling them makes classes, or takes any amount of memory."""

NAMED_MODULES: Final = tuple(_NAMES)
"""Where those names live: an object found elsewhere is allowed if one of these modules lists it."""

OF_THE_MACHINE = frozenset(
    {
        "builtins",
        "code",
        "codeop",
        "ctypes",
        "importlib",
        "io",
        "marshal",
        "multiprocessing",
        "os",
        "pathlib",
        "pickle",
        "posix",
        "pty",
        "runpy",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "urllib",
    }
)
"""Modules of Python that run programs, write files or reach others: how to trust one of them is not suggested."""
