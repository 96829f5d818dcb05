"""What can go wrong for a user: one sentence each, and an exit code that scripts can use."""


class CodlineError(Exception):
    exit_code = 1


class UserError(CodlineError):
    """A parameter or an argument is wrong."""

    exit_code = 2


class DataError(CodlineError):
    """A file is missing, broken, or not what it should be."""

    exit_code = 3


class TrainingError(CodlineError):
    """Training cannot go on."""

    exit_code = 4


class StorageError(CodlineError):
    """The disk refused a write."""

    exit_code = 5


class BusyError(CodlineError):
    """A lock or a port is held by somebody else."""

    exit_code = 6


class InfrastructureError(CodlineError):
    """A stage was killed or timed out: worth another try."""

    exit_code = 7


AGAIN = "stopped; run it again to go on from here"


class Stopped(CodlineError):  # noqa: N818 (nothing went wrong)
    """Ctrl-C."""

    exit_code = 130


BY_EXIT_CODE = {kind.exit_code: kind for kind in CodlineError.__subclasses__()}
