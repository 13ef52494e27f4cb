"""`ImageFolder`: labels are the places of folders, files that are no images are left alone, broken ones are named."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from kauldron_core import data
from kauldron_core.errors import ConfigError


def save(path, value, *, size=(5, 4), mode="RGB", **settings):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, **settings)


@pytest.fixture
def folder(tmp_path):
    """Returns a folder of two classes, with a nested file and things that are no images."""
    save(tmp_path / "cat" / "b.png", (1, 2, 3))
    save(tmp_path / "cat" / "a.PNG", (4, 5, 6))
    save(tmp_path / "dog" / "more" / "c.png", (7, 8, 9))
    save(tmp_path / "dog" / "z.png", 10, mode="L")
    save(tmp_path / ".cache" / "d.png", (0, 0, 0))
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    save(tmp_path / "cover.png", (0, 0, 0))
    return tmp_path


def pipeline(path, **settings):
    return data.py.ImageFolder(path, **{"batch_size": 4, "num_epochs": 1, "num_threads": 0, **settings})


def test_labels_are_the_places_of_the_folders(folder):
    ds = pipeline(folder)
    (batch,) = ds
    assert ds.class_names() == ["cat", "dog"]
    assert batch["label"].tolist() == [0, 0, 1, 1] and batch["label"].dtype == np.int64
    assert batch["image"].shape == (4, 4, 5, 3) and batch["image"].dtype == np.uint8
    assert batch["image"][:, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3], [10, 10, 10], [7, 8, 9]]
    assert ds.element_spec["image"].shape == (4, 4, 5, 3)


def test_classes_may_be_chosen_and_numbered(folder):
    (batch,) = pipeline(folder, classes=["dog", "cat"])
    assert batch["label"].tolist() == [0, 0, 1, 1]
    (batch,) = pipeline(folder, classes=["dog"], batch_size=2)
    assert batch["label"].tolist() == [0, 0] and batch["image"][0, 0, 0].tolist() == [10] * 3
    with pytest.raises(ConfigError, match=r"unknown class 'dgo'. Did you mean 'dog'"):
        iter(pipeline(folder, classes=["dgo"]))


def test_pixels_come_in_the_mode_asked_for(folder, tmp_path):
    (batch,) = pipeline(folder, mode="L")
    assert batch["image"].shape == (4, 4, 5, 1)
    deep = Image.fromarray(np.full((4, 5), 40_000, np.uint16))
    (tmp_path / "deep" / "x").mkdir(parents=True)
    deep.save(tmp_path / "deep" / "x" / "a.png")
    (batch,) = pipeline(tmp_path / "deep", mode=None, batch_size=1)
    assert batch["image"].dtype == np.uint16 and batch["image"].max() == 40_000


def test_photographs_are_turned_as_the_camera_was_held(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: a quarter turn.
    save(tmp_path / "x" / "a.jpg", (9, 9, 9), exif=exif)
    (batch,) = pipeline(tmp_path, batch_size=1)
    assert batch["image"].shape == (1, 5, 4, 3)


def test_shuffled_images_resume_with_threads(folder):
    """D06: shuffled images resume with threads."""
    ds = pipeline(folder, batch_size=2, num_epochs=3, shuffle=True, seed=0, num_threads=2)
    iterator = iter(ds)
    next(iterator), next(iterator), next(iterator)
    resumed = iter(dataclasses.replace(ds, num_threads=0))
    resumed.set_state(iterator.get_state())
    rest = [batch["image"].tolist() for batch in iterator]
    assert len(rest) == 3 and rest == [batch["image"].tolist() for batch in resumed]


def test_folders_without_images_and_broken_files_are_named(folder, tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        iter(pipeline(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no images"):
        iter(pipeline(folder / "dog" / "more"))
    (folder / "cat" / "a.PNG").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=r"a\.PNG: cannot be read"):
        next(iter(pipeline(folder)))


def test_cut_and_empty_images_and_classes_without_images_are_named(folder):
    """F13: an image of no bytes was an error without its path in the first line; an empty class was passed over."""
    content = (folder / "cat" / "b.png").read_bytes()
    for cut in (content[: len(content) // 2], b""):
        (folder / "cat" / "b.png").write_bytes(cut)
        with pytest.raises(ConfigError, match=r"b\.png: cannot be read"):
            next(iter(pipeline(folder)))
    (folder / "cow").mkdir()
    (folder / "elk").mkdir()
    with pytest.raises(ConfigError, match=r"no images .* in the folders of the classes cow, elk"):
        iter(pipeline(folder))
