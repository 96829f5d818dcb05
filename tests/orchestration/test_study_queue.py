"""Points of a study wait in its order, and are not taken while another point computes a stage that they need."""

import pytest

from codline.orchestration.study_grid import StudyPoint
from codline.orchestration.study_queue import StudyQueue

POINTS = [StudyPoint(arm, seed, "") for seed in (0, 1) for arm in ("random", "cod", "margin")]


@pytest.fixture
def locked() -> set[str]:
    return set()


@pytest.fixture
def queue(locked: set[str]) -> StudyQueue:
    return StudyQueue(POINTS, lambda key: key not in locked)


def take_all(queue: StudyQueue) -> list[StudyPoint]:
    return list(iter(queue.take, None))


def test_points_are_taken_in_the_order_of_the_study(queue: StudyQueue) -> None:
    assert take_all(queue) == POINTS
    assert queue.take() is None


def test_points_that_were_put_back_are_taken_at_their_places(queue: StudyQueue, locked: set[str]) -> None:
    locked.add("prepare")
    first, second = queue.take(), queue.take()
    assert (first, second) == (POINTS[0], POINTS[1])
    queue.put_back(POINTS[1], "prepare")
    queue.put_back(POINTS[0], "prepare")
    locked.clear()
    assert take_all(queue) == POINTS


def test_a_blocked_point_blocks_its_seed_while_there_is_another_one(queue: StudyQueue, locked: set[str]) -> None:
    locked.add("prepare")
    assert queue.take() == POINTS[0]
    queue.put_back(POINTS[0], "prepare")
    assert take_all(queue) == [*POINTS[3:], *POINTS[1:3]]
    locked.clear()
    assert take_all(queue) == POINTS[:1]
