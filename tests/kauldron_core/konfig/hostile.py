"""Files that somebody could send: each asks for code that nobody trusts. `{canary}` is a file that must not appear."""

from __future__ import annotations

from typing import Any


def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"__qualname__": name, **{str(index): arg for index, arg in enumerate(args)}, **kwargs}


def const(name: str) -> dict[str, Any]:
    return {"__const__": name}


def ref(path: str) -> dict[str, Any]:
    return {"__ref__": path}


def op(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"__op__": name, "args": list(args), **({"kwargs": kwargs} if kwargs else {})}


TOUCH = "touch {canary}"
PYTHON = "open('{canary}', 'w')"

HOSTILE: dict[str, Any] = {
    # Calls of what everybody thinks of first.
    "os.system": call("os:system", TOUCH),
    "os.system without a colon": call("os.system", TOUCH),
    "posix.system": call("posix:system", TOUCH),
    "os.popen": call("os:popen", TOUCH),
    "os.remove": call("os:remove", "{canary}"),
    "subprocess.run": call("subprocess:run", TOUCH, shell=True),
    "subprocess.Popen": call("subprocess:Popen", ["touch", "{canary}"]),
    "eval": call("builtins:eval", PYTHON),
    "exec": call("builtins:exec", PYTHON),
    "compile": call("builtins:compile", PYTHON, "x", "exec"),
    "open": call("builtins:open", "{canary}", "w"),
    "__import__": call("builtins:__import__", "antigravity"),
    "getattr": call("builtins:getattr", const("optax:adam"), "__globals__"),
    "breakpoint": call("builtins:breakpoint"),
    "input": call("builtins:input"),
    "a three-argument type": call("builtins:type.__call__", "X", [], {}),
    "a class that is made": call("builtins:type", "X", [], {}),
    "bytes without end": call("builtins:bytes", 10**13),
    "an array without end": call("numpy:ndarray", [10**13]),
    "bytes without end by reference": op("call", const("builtins:bytes"), 10**13),
    "pathlib.Path.touch": call("pathlib:Path.touch", call("pathlib:Path", "{canary}")),
    "pathlib.Path.write_text": call("pathlib:Path.write_text", call("pathlib:Path", "{canary}"), "x"),
    "pickle.loads": call("pickle:loads", {"__bytes__": "gASVBQAAAA=="}),
    "shutil.rmtree": call("shutil:rmtree", "{canary}"),
    "importlib": call("importlib:import_module", "antigravity"),
    "runpy": call("runpy:run_module", "antigravity"),
    "ctypes": call("ctypes:CDLL", "libc.so.6"),
    "code": call("code:interact"),
    "urllib": call("urllib.request:urlopen", "http://127.0.0.1:9"),
    "socket": call("socket:create_connection", ["127.0.0.1", 9]),
    "a module that opens a browser": call("antigravity:anything"),
    "timeit": call("timeit:timeit", PYTHON),
    # The same as constants.
    "const os.system": const("os:system"),
    "const eval": const("builtins:eval"),
    "const open": const("builtins:open"),
    "const subprocess": const("subprocess:run"),
    "const importlib": const("importlib:import_module"),
    "a module as a constant": const("os"),
    "a submodule as a constant": const("os.path"),
    "a trusted module as a constant": const("kauldron_core.kd:train"),
    "optax as a constant": const("optax"),
    "jax.numpy as a constant": const("jax.numpy"),
    # Walks through trusted modules to what they import.
    "numpy to os": call("numpy:os.system", TOUCH),
    "konfig to importlib": call("kauldron_core.konfig:importlib.import_module", "antigravity"),
    "konfig's own modules": call("kauldron_core.konfig.calls.targets:importlib.import_module", "antigravity"),
    "kd to konfig": call("kauldron_core.kd:konfig.trust", "os"),
    "kd to the run directory": call("kauldron_core.kd:rundir.write_atomic", "{canary}", "x"),
    "kd's functions that read runs": call("kauldron_core.kd:load_run", "{canary}"),
    "an evaluator that trusts": call("evaluators:CheckpointEvaluator", trust=["os"]),
    "a method of a writer": call(
        "kauldron_core.train:EventsWriter.open", call("kauldron_core.train:EventsWriter", workdir="{canary}")
    ),
    "a method of a module": call("flax.linen:Module.apply", call("flax.linen:Dense", 1), {}),
    "an internal class of a room": call("kauldron_core.train.loop.writer:rundir.EventWriter", "{canary}"),
    "another one": call("kauldron_core.ckpts.background:BackgroundSaver", "{canary}"),
    "a function of a room of classes": call("kauldron_core.ckpts:load", "{canary}", None),
    "optax to jax": call("optax:tree_utils.jax.numpy.load", "{canary}"),
    "flax to jax": call("flax.linen:linear.jax.numpy.save", "{canary}", [1]),
    "flax to numpy": call("flax.linen.linear:np.load", "{canary}"),
    "flax to os": call("flax.linen:module.os.system", TOUCH),
    "flax to sys": const("flax.linen:module.sys.modules"),
    "a module's globals": call("optax:adam.__globals__.get", "jax"),
    "a function's code": const("optax:adam.__code__"),
    "a class's bases": const("flax.linen:Dense.__mro__"),
    "subclasses of object": call("flax.linen:Dense.__class__.__base__.__subclasses__"),
    "private names": const("optax:_src.alias.adam"),
    "private modules": const("optax._src.alias:adam"),
    # Trust itself.
    "trusting os": [call("kauldron_core.konfig:trust", "os"), call("os:system", TOUCH)],
    "loading another file": call("kauldron_core.konfig:load", "{canary}"),
    "resolving by hand": call("kauldron_core.konfig:resolve", {"a": 1}),
    "saving by hand": call("kauldron_core.konfig:save", {}, "{canary}"),
    "writing a file": call("kauldron_core.rundir:write_atomic", "{canary}", "x"),
    "writing JSON": call("kauldron_core.rundir.atomic:write_json", "{canary}", "x"),
    "walking objects": call("kauldron_core.kontext:get_by_path", const("optax:adam"), "__globals__"),
    "reference functions": call("kauldron_core.konfig:ref_fn", const("os:system"), TOUCH),
    "Ray": call("ray:init"),
    "our Ray": call("ray_cluster:run", None),
    "the command line": call("pipelines.cli:main", ["sweep"]),
    # Files and arrays through libraries that are allowed in part.
    "numpy.load": call("numpy:load", "{canary}", allow_pickle=True),
    "numpy.save": call("numpy:save", "{canary}", [1]),
    "numpy.savetxt": call("numpy:savetxt", "{canary}", [1]),
    "numpy.fromfile": call("numpy:fromfile", "{canary}"),
    "numpy.memmap": call("numpy:memmap", "{canary}", mode="w+", shape=[1]),
    "numpy.lib": call("numpy.lib.npyio:DataSource.open", "{canary}"),
    "jax.numpy.load": call("jax.numpy:load", "{canary}"),
    "jax to numpy": call("jax:numpy.save", "{canary}", [1]),
    "jax.profiler": call("jax.profiler:start_trace", "{canary}"),
    "jax.pure_callback": call("jax:pure_callback", const("os:system"), None, TOUCH),
    "jax.distributed": call("jax.distributed:initialize"),
    "flax.io": call("flax.io:rmtree", "{canary}"),
    "flax.serialization": call("flax.serialization:msgpack_restore", {"__bytes__": ""}),
    "flax checkpoints": call("flax.training.checkpoints:save_checkpoint", "{canary}", {}, 0),
    "flax.linen functions": call("flax.linen:tabulate", None, None),
    "orbax": call("orbax.checkpoint:PyTreeCheckpointer"),
    "etils.epath": call("etils.epath:Path.rmtree", call("etils.epath:Path", "{canary}")),
    # Functions handed on.
    "partial of os.system": call("functools:partial", const("os:system"), TOUCH),
    "partial of partial": call("functools:partial", call("functools:partial", const("builtins:eval")), PYTHON),
    "partial called": call("functools:partial.__call__", const("os:system"), TOUCH),
    "reduce": call("functools:reduce", const("builtins:getattr"), ["a"], const("optax:adam")),
    "attrgetter": call("operator:attrgetter", "__globals__"),
    "methodcaller": call("operator:methodcaller", "system", TOUCH),
    "a loader of a pipeline": call("kauldron_core.data:InMemoryPipeline", loader=const("os:getcwd"), batch_size=1),
    "map": call("builtins:map", const("os:system"), [TOUCH]),
    # References that compute.
    "a reference to a call": op("call", const("os:system"), TOUCH),
    "a reference that calls eval": op("call", const("builtins:eval"), PYTHON),
    "a reference into a class": [{"a": "text"}, ref("x[0].a.__class__.__mro__")],
    "a reference to a method of text": [{"a": "{0.__class__}"}, op("call", ref("x[0].a.format"), 1)],
    "a reference by get": [{"a": "text"}, op("get", ref("x[0].a"), "__class__")],
    "an operation that is none": op("system", TOUCH),
    "an operation with too few operands": op("add", 1),
    "a very long text": op("mul", "a", 10**12),
    "a very large number": op("pow", 10, 10**10),
    "a text that doubles": [
        {"a": "a" * 1000},
        *({"a": op("add", ref(f"x[{index}].a"), ref(f"x[{index}].a"))} for index in range(40)),
    ],
    "a text that is replaced by long ones": [{"a": "a" * 2000}, op("call", ref("x[0].a.replace"), "a", ref("x[0].a"))],
    "a circle of references": [{"a": ref("x[1].a")}, {"a": ref("x[0].a")}],
    "a reference to itself": ref("x"),
    "a reference that is no path": ref("x[__import__('os')]"),
    "a reference that is no text": ref(3),  # type: ignore[arg-type]
    "a reference that makes a call": op("call", const("builtins:dict"), [["__qualname__", "os:system"], ["0", TOUCH]]),
    "one that makes it in a list": op(
        "call",
        const("builtins:list"),
        [op("call", const("builtins:dict"), [["__qualname__", "os:system"], ["0", "x"]])],
    ),
    "a config made of pairs": call(
        "kauldron_core.konfig:ConfigDict", call("builtins:dict", [["__qualname__", "os:system"], ["0", TOUCH]])
    ),
    # Values of types.
    "an enum that is none": {"__enum__": "os:system"},
    "an enum key": {"__raw__=enum os:system": 1},
    "a key that is code": {"__raw__=__import__('os').system('touch {canary}')": 1},
    "a key that cannot be one": {"__raw__=[1]": 1},
    "a dtype that is code": {"__dtype__": "os.system"},
    "a scalar of nothing": {"__scalar__": ["object", 1]},
    "a placeholder of a function": {"__placeholder__": "os:system"},
    "bytes that are none": {"__bytes__": "*"},
    "a best-effort file": {"__unsaved__": "<object at 0x7f>"},
    "a slice of five": {"__slice__": [1, 2, 3, 4, 5]},
    # Nodes that are none.
    "both markers": {"__qualname__": "optax:adam", "__const__": "os:system"},
    "a constant with arguments": {"__const__": "optax:adam", "0": 1},
    "a name that is no text": {"__qualname__": ["os", "system"]},
    "an empty name": {"__qualname__": ""},
    "a name of many dots": {"__qualname__": "......:"},
    "a name with spaces": {"__qualname__": "os: system"},
    "a name of another file": {"__qualname__": "../evil:run"},
    "an id that is unknown": {"__id__": 7},
    "an id that is no number": {"__id__": [1]},
    "a node inside itself": {"__qualname__": "optax:chain", "__id__": 1, "0": {"__id__": 1}},
    "a module that is missing": call("there_is_no_such_module_at_all:run"),
    "main": call("__main__:run"),
}
