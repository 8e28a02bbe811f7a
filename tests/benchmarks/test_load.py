"""The output of wrk is parsed correctly."""

import pytest
from benchmarks.harness import SideFailedError
from benchmarks.load import Load, read_wrk

WRK = """Running 6s test @ http://127.0.0.1:46851/collect
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   551.12ms  968.92ms   5.96s    89.25%
  Latency Distribution
     50%  220.78ms
     75%  272.25ms
     90%    1.66s 
     99%    4.71s 
  779 requests in 6.02s, 111.83KB read
  Socket errors: connect 0, read 2, write 0, timeout 1
  Non-2xx or 3xx responses: 79
Requests/sec:    129.50
"""  # noqa: W291 - as it prints it


def test_the_summary_of_wrk_is_read() -> None:
    assert read_wrk(WRK) == Load(700, 79, 3, 6.02, 0.22078, 4.71)
    fast = WRK.replace("220.78ms", "90.00us").partition("  Socket")[0]
    assert read_wrk(fast) == Load(779, 0, 0, 6.02, pytest.approx(9e-5), 4.71)
    with pytest.raises(SideFailedError):
        read_wrk("unable to connect")
