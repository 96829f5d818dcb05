"""The points of a study that wait for a worker, in the order of the study: all arms of a seed before the next seed."""

from collections.abc import Callable

from codline.orchestration.study_grid import StudyPoint


class StudyQueue:
    """A point is blocked while another one computes a stage that both need."""

    def __init__(self, points: list[StudyPoint], is_free: Callable[[str], bool]) -> None:
        """`is_free` tells whether nobody holds the lock of a stage."""
        self.waiting, self.is_free = list(points), is_free
        self.order = {point.name: place for place, point in enumerate(points)}
        self.blocked = dict[StudyPoint, str]()  # {waiting point: key of the stage's lock}

    def take(self) -> StudyPoint | None:
        """The first waiting point that may find nothing locked.

        Points of one seed share their first stages, so one that is blocked is taken to block the others of its seed,
        unless no other seed is left.
        """
        self.blocked = {point: key for point, key in self.blocked.items() if not self.is_free(key)}
        seeds = {point.seed for point in self.blocked}
        unblocked = [point for point in self.waiting if point not in self.blocked]
        point = next((point for point in unblocked if point.seed not in seeds), None) or next(iter(unblocked), None)
        if point is not None:
            self.waiting.remove(point)
        return point

    def put_back(self, point: StudyPoint, key: str) -> None:
        """A point that has been taken, and has found the stage with this key locked, waits at its place again."""
        self.blocked[point] = key
        self.waiting = sorted([*self.waiting, point], key=lambda each: self.order[each.name])
