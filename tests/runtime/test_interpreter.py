"""The interpreter of stages has the libraries that the commit records."""

from importlib.metadata import version
from pathlib import Path

import pytest

from codline.core.errors import UserError
from codline.runtime.interpreter import check_libraries


def test_check_libraries_refuses_another_version_and_ignores_what_is_not_installed(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        f"numpy=={version('numpy')} \\\n    --hash=sha256:0\nnot-installed==1.0 ; sys_platform == 'win32'\n"
    )
    check_libraries(lock)
    lock.write_text("numpy==1.0 \\\n    --hash=sha256:0\n")
    found = rf"^this environment has numpy {version('numpy')}, and requirements.lock of the commit has 1.0; run"
    with pytest.raises(UserError, match=found):
        check_libraries(lock)
