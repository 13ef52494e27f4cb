"""The README names what there is."""

import pathlib

from kauldron_core import data


def test_every_pipeline_is_in_the_table():
    text = (pathlib.Path(data.__file__).parent / "README.md").read_text()
    for name in ("InMemoryPipeline", "FromIterator", "SeqIO", *(f"py.{name}" for name in data.py.__all__)):
        assert f"`{name}(" in text
