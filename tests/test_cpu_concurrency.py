"""Sessions on many threads, many sessions, and processes that fork: right results and no growth in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from cpu_runner import run_in, session

SOFTMAX_AND_SCAN = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = scan_sum f32 %5
output 0 f32 [d0, d1] %6
"""


def test_one_session_on_16_threads() -> None:
    rng = np.random.default_rng(0)
    node = session(SOFTMAX_AND_SCAN, threads=2)
    shapes = [(3, 70), (200, 300), (1, 200_000), (5, 17_000), (40, 9)]
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    expected = [run_in(node, SOFTMAX_AND_SCAN, [x])[0] for x in inputs]
    wrong: list[str] = []

    def work(first: int) -> None:
        try:
            for k in range(12):
                i = (first + k) % len(inputs)
                if not np.array_equal(run_in(node, SOFTMAX_AND_SCAN, [inputs[i]])[0], expected[i]):
                    wrong.append(f"other numbers for {shapes[i]}")
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


MANY_SESSIONS = """
import gc, sys
import numpy as np
from cpu_runner import run_in, session
from test_cpu_concurrency import SOFTMAX_AND_SCAN, resident

x = np.ones((30, 70), np.float32)
count = int(sys.argv[1])
for k in range(count):
    run_in(session(SOFTMAX_AND_SCAN, threads=2 if k % 10 == 0 else 1), SOFTMAX_AND_SCAN, [x])
    if k == count // 2:
        gc.collect()
        middle = resident()
gc.collect()
print(resident() - middle)
"""

FORK = """
import os, sys
import numpy as np
from cpu_runner import run_in, session
from test_cpu_concurrency import SOFTMAX_AND_SCAN

x = np.random.default_rng(0).normal(size=(1, 200_000)).astype(np.float32)
node = session(SOFTMAX_AND_SCAN)
pool = session(SOFTMAX_AND_SCAN, threads=2)
expected = run_in(node, SOFTMAX_AND_SCAN, [x])[0]
assert np.array_equal(run_in(pool, SOFTMAX_AND_SCAN, [x])[0], expected)
child = os.fork()
if child == 0:  # the session without threads goes on; one with threads must be new, as always with ONNX Runtime
    same = np.array_equal(run_in(node, SOFTMAX_AND_SCAN, [x])[0], expected)
    same = same and np.array_equal(run_in(session(SOFTMAX_AND_SCAN, threads=2), SOFTMAX_AND_SCAN, [x])[0], expected)
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(run_in(pool, SOFTMAX_AND_SCAN, [x])[0], expected)
"""


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_process(code: str, *arguments: str) -> str:
    folder = str(Path(__file__).parent)
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-c", code, *arguments]
    env = dict(os.environ, PYTHONPATH=path)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sessions_come_and_go_without_growth() -> None:
    """ONNXFUSE_SESSIONS=1000 makes it a thousand."""
    count = os.environ.get("ONNXFUSE_SESSIONS", "200")
    assert int(in_process(MANY_SESSIONS, count)) < 3 << 20


def test_a_fork_after_load() -> None:
    in_process(FORK)
