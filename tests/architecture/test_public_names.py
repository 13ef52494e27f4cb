"""Every public name exists and says what it is."""

import importlib
import inspect
import pkgutil

import pytest

PACKAGES = ("kauldron_core", "evaluators", "ray_cluster", "pipelines")


def _rooms() -> list[str]:
    names = []
    for package in PACKAGES:
        root = importlib.import_module(package)
        names.append(package)
        names += [f"{package}.{info.name}" for info in pkgutil.iter_modules(root.__path__) if info.ispkg]
    return names


@pytest.mark.parametrize("room", _rooms())
def test_public_names_exist_and_are_documented(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__doc__, f"{room} has no docstring"
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            own_doc = value.__doc__ or ""
            generated = own_doc.startswith(f"{name}(")  # what `dataclass` writes when there is none
            assert own_doc and not generated, f"{room}.{name} has no docstring"
