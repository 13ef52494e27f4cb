"""The example in the README runs as it stands."""

import pathlib
import re

from kauldron_core import data


def test_the_example_runs():
    text = (pathlib.Path(data.__file__).parent / "README.md").read_text()
    example, sources = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(example, names)
    exec(sources, names)  # Opens none of them.
    assert names["batch"]["image"].shape == (4, 8, 8, 1)


def test_every_pipeline_is_in_the_table():
    text = (pathlib.Path(data.__file__).parent / "README.md").read_text()
    for name in ("InMemoryPipeline", "FromIterator", "SeqIO", *(f"py.{name}" for name in data.py.__all__)):
        assert f"`{name}(" in text
