"""A checkpoint is read on another number of devices than wrote it, split as the reader wants it, bit for bit."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kauldron_core import ckpts

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.process


@contextlib.contextmanager
def _devices(folder: pathlib.Path, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process with so many devices."""
    command = [sys.executable, str(HERE / "on_devices.py"), str(folder), str(count)]
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _do(child: subprocess.Popen[str], command: str) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{command}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "ok\n", command


def test_eight_devices_save_and_1_2_and_4_read_and_back(tmp_path: pathlib.Path) -> None:
    with _devices(tmp_path, 8) as eight:
        _do(eight, "save")
        for count in (1, 2, 4):
            with _devices(tmp_path, count) as fewer:
                _do(fewer, "read 8")
                _do(fewer, "save")
            _do(eight, f"read {count}")


def test_two_hosts_save_together_and_one_of_them_removes(tmp_path: pathlib.Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    command = [sys.executable, str(HERE / "on_hosts.py"), str(tmp_path), str(port)]
    hosts = [
        subprocess.Popen([*command, str(process)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        for process in range(2)
    ]
    try:
        for host in hosts:
            out, err = host.communicate(timeout=100)
            assert out.splitlines()[-1:] == ["ok"], err[-3000:]
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    assert ckpts.verify(tmp_path / "checkpoints" / "ckpt_2") == []
