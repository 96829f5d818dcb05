"""A campaign that is interrupted by Ctrl-C says so and can be run again; kills are in tests/faults."""

import os
import signal
import time

import pytest

from tests.project import Project, running_commands


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_stops_a_campaign_in_any_stage(
    alone: Project, finished: Project, fork_server_environment: dict[str, str]
) -> None:
    for stage in ("train@c1", "score@c1"):
        process = alone.start("codline", "run")
        name, _, cycle = stage.partition("@")
        deadline = time.monotonic() + 90
        while not any(f"stages {name} --cycle {cycle}" in command for command in running_commands(alone.root)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert alone.output.rstrip().endswith("stopped; run it again to go on from here")
        assert running_commands(alone.root) == []
    alone.with_environment(**fork_server_environment).must("codline", "run")
    assert alone.lock == finished.lock
