"""What a process prints while it runs a trial goes into that trial's files."""

import os
import subprocess
import sys

import pytest

from ray_cluster.workers.trial_logs import redirected_output


@pytest.mark.process
def test_python_c_and_children_print_into_the_logs_and_the_old_streams_return(tmp_path):
    code = f"""
import os, subprocess, sys
from ray_cluster.workers.trial_logs import redirected_output
print("before")
with redirected_output({str(tmp_path / "logs")!r}):
    print("python")
    os.write(1, b"system\\n")
    subprocess.run(["echo", "child"], check=True)
    print("trouble", file=sys.stderr)
print("after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "after"]
    assert sorted((tmp_path / "logs" / "stdout.log").read_text().split()) == ["child", "python", "system"]
    assert (tmp_path / "logs" / "stderr.log").read_text() == "trouble\n"


def test_a_second_time_appends_and_no_descriptor_is_left(tmp_path):
    before = os.listdir("/proc/self/fd")
    for word in ("one", "two"):
        with redirected_output(tmp_path):
            os.write(1, word.encode() + b"\n")
    assert (tmp_path / "stdout.log").read_text() == "one\ntwo\n"
    assert os.listdir("/proc/self/fd") == before
