"""Examples a second of the data pipelines, as ratios to loops written by hand, measured in turns in one run.

    python -m benchmarks.data                 # prints a table; about a minute
    python -m benchmarks.data --parquet-gb=2  # also streams a file of that size, and prints the memory it took
    python -m benchmarks.data --seqio         # also a SeqIO task against SeqIO alone; loads TensorFlow

Targets: InMemory at least 0.8 of fancy-indexing NumPy, DataSource at least 0.9 of Grain with the same steps.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from absl import flags

from kauldron_core import data

BATCH = 128
NUM_EXAMPLES = 20_000


def images() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (NUM_EXAMPLES, 28, 28, 1), np.uint8)
    return {"image": pixels, "label": np.arange(NUM_EXAMPLES) % 10}


class Images:
    """The same images one by one."""

    def __init__(self):
        self._images = images()

    def __len__(self) -> int:
        return NUM_EXAMPLES

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"image": self._images["image"][number], "label": self._images["label"][number]}

    def __repr__(self) -> str:
        return "Images()"


def scale(example: dict[str, Any]) -> dict[str, Any]:
    image = np.asarray(example["image"], np.float32) / 255
    return {"image": image[2:26, 2:26], "label": example["label"]}


def fancy_indexing() -> Iterator[Any]:
    arrays = images()
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(NUM_EXAMPLES)
        for start in range(0, NUM_EXAMPLES - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield {name: array[rows] for name, array in arrays.items()}


def in_memory() -> Iterator[Any]:
    return iter(data.InMemoryPipeline(images, batch_size=BATCH, shuffle=True, seed=0))


def plain_grain(num_workers: int = 0) -> Iterator[Any]:
    # Not at the top: the process that measures memory would pay for it.
    import grain

    steps = grain.MapDataset.source(Images()).shuffle(seed=0).map(scale).repeat().batch(BATCH, drop_remainder=True)
    dataset = steps.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    if num_workers:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers, per_worker_buffer_size=4))
    return iter(dataset)


def data_source(num_workers: int = 0) -> Iterator[Any]:
    return iter(
        data.py.DataSource(Images, batch_size=BATCH, shuffle=True, seed=0, transforms=[scale], num_workers=num_workers)
    )


def write_images(path: str) -> None:
    arrays = images()
    columns = {"image": list(arrays["image"].reshape(NUM_EXAMPLES, -1)), "label": arrays["label"]}
    pq.write_table(pa.table(columns), path, row_group_size=2000)


def arrow_loop(path: str) -> Iterator[Any]:
    """Reads a file of `write_images` as one would by hand: row groups in random order, shuffled within."""
    random = np.random.default_rng(0)
    file = pq.ParquetFile(path)
    while True:
        for group in random.permutation(file.num_row_groups):
            table = file.read_row_group(group)
            images = table["image"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
            labels = table["label"].to_numpy()
            order = random.permutation(len(table))
            for start in range(0, len(table) - BATCH + 1, BATCH):
                rows = order[start : start + BATCH]
                yield {"image": images[rows], "label": labels[rows]}


def parquet(path: str) -> Iterator[Any]:
    return iter(data.py.Parquet(path, batch_size=BATCH, shuffle=True, seed=0, shuffle_window_mib=2))


def text_task() -> Any:
    """Returns a task of texts as bytes. TensorFlow takes half a minute to load: only on demand."""
    import seqio
    import tensorflow as tf

    def texts(split: str, shuffle_files: bool, seed: int | None = None) -> Any:
        del split, shuffle_files, seed
        return tf.data.Dataset.from_tensor_slices({"targets": [f"text {n} " + "x" * (n % 50) for n in range(100_000)]})

    steps = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim]
    features = {"targets": seqio.Feature(seqio.ByteVocabulary())}
    source = seqio.FunctionDataSource(texts, splits=["train"])
    return seqio.Task("benchmark", source=source, preprocessors=steps, output_features=features)


def plain_seqio(task: Any, pack: bool) -> Iterator[Any]:
    import seqio
    import tensorflow as tf

    converter = seqio.LMFeatureConverter(pack=pack)
    dataset = seqio.get_dataset(task, {"targets": 128}, converter, shuffle=True, seed=0, num_epochs=None)
    yield from dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def seqio_task(task: Any, pack: bool) -> Iterator[Any]:
    settings = {"feature_converter": "lm", "pack": pack, "batch_size": BATCH, "shuffle": True, "seed": 0}
    return iter(data.SeqIO(task, {"targets": 128}, **settings))


def rates(makers: dict[str, Callable[[], Iterator[Any]]], *, num_batches: int, rounds: int) -> dict[str, float]:
    """Returns examples a second of each, the best of many short `rounds` in turns: other work only ever slows one."""
    iterators = {name: make() for name, make in makers.items()}
    for iterator in iterators.values():
        next(iterator)
    measured: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, iterator in iterators.items():
            # What was read ahead while another one was measured does not count.
            list(itertools.islice(iterator, 12))
            start = time.perf_counter()
            list(itertools.islice(iterator, num_batches))
            measured[name].append(num_batches * BATCH / (time.perf_counter() - start))
    for iterator in iterators.values():
        iterator.close()  # pyright: ignore[reportAttributeAccessIssue]
    return {name: max(values) for name, values in measured.items()}


def show(what: str, makers: dict[str, Callable[[], Iterator[Any]]], **settings: int) -> dict[str, Any]:
    (ours_name, ours), (theirs_name, theirs) = rates(makers, **settings).items()
    print(f"{what:22} {ours_name} {ours:12,.0f}/s   {theirs_name} {theirs:12,.0f}/s   ratio {ours / theirs:.2f}")
    return {"what": what, "examples_per_s": ours, "reference": theirs, "ratio": ours / theirs}


def stream_large(gigabytes: float) -> dict[str, Any]:
    """Streams a file of random bytes in a process of its own, whose memory is then known."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "large.parquet")
        write_large(path, gigabytes)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            result = pool.apply(_stream, (path,))
    print(f"{gigabytes} GB of Parquet, shuffled: {result['megabytes_per_s']:.0f} MB/s, peak {result['peak_mb']:.0f} MB")
    return result


def write_large(path: str, gigabytes: float) -> None:
    random = np.random.default_rng(0)
    rows, width = 2000, 16_384
    schema = pa.schema({"id": pa.int64(), "image": pa.binary()})
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for group in range(int(gigabytes * 1e9 / (rows * width))):
            blob = random.bytes(rows * width)
            cells = [blob[row * width : (row + 1) * width] for row in range(rows)]
            writer.write_table(pa.table({"id": np.arange(rows) + group * rows, "image": cells}, schema=schema))


def _stream(path: str) -> dict[str, Any]:
    start, count = time.perf_counter(), 0
    transforms = [lambda row: {"id": row["id"], "image": np.frombuffer(row["image"], np.uint8)}]
    ds = data.py.Parquet(
        path, batch_size=256, shuffle=True, seed=0, num_epochs=1, transforms=transforms, batch_drop_remainder=False
    )
    for batch in ds:
        count += batch["image"].nbytes
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"megabytes_per_s": count / 1e6 / seconds, "peak_mb": peak, "bytes": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--parquet-gb", type=float, default=0, help="size of a Parquet file to stream, 0 for none")
    parser.add_argument("--seqio", action="store_true", help="also measure a SeqIO task")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()
    # Grain's workers read absl flags.
    flags.FLAGS.mark_as_parsed()
    rounds = arguments.rounds
    results = [show("InMemory", {"ours": in_memory, "numpy": fancy_indexing}, num_batches=60, rounds=rounds)]
    for workers in (0, 2):
        makers = {
            name: functools.partial(f, workers) for name, f in {"ours": data_source, "grain": plain_grain}.items()
        }
        results.append(show(f"DataSource, {workers} workers", makers, num_batches=30, rounds=rounds))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.parquet")
        write_images(path)
        makers = {"ours": functools.partial(parquet, path), "pyarrow": functools.partial(arrow_loop, path)}
        results.append(show("Parquet", makers, num_batches=40, rounds=rounds))
    if arguments.parquet_gb:
        results.append({"what": "large Parquet", **stream_large(arguments.parquet_gb)})
    if arguments.seqio:
        task = text_task()
        for pack, what in ((False, "SeqIO"), (True, "SeqIO, packed")):
            makers = {"ours": functools.partial(seqio_task, task, pack)}
            makers |= {"seqio": functools.partial(plain_seqio, task, pack)}
            results.append(show(what, makers, num_batches=20, rounds=min(rounds, 8)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
