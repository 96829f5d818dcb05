"""DVC's site cache: in the workspace, for its owner alone, also after the workspace was moved."""

import shutil
import stat
from pathlib import Path

import pytest

from codline.orchestration.site_cache import configure_site_cache, configured_directory
from tests.project import Project, clone_with_small_campaign


@pytest.fixture
def clone(tmp_path: Path) -> Project:
    """In a directory whose name DVC has to quote."""
    return clone_with_small_campaign(tmp_path / "it's #1, 100%/codline", CODLINE_TRACKING="off")


def used_site_cache(project: Project) -> Path:
    """The directory that a plain `dvc` command uses."""
    (line,) = (line for line in project.must("dvc", "doctor").splitlines() if line.startswith("Repo.site_cache_dir"))
    return Path(line.partition(": ")[2])


def site_cache(project: Project) -> Path:
    return project.root / ".dvc/tmp/site-cache"


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_codline_command_makes_plain_dvc_use_a_private_site_cache_in_the_workspace(clone: Project) -> None:
    clone.must("dvc", "config", "--local", "remote.storage.url", "/somewhere")
    clone.must("codline", "presets")
    assert permissions(site_cache(clone)) == 0o700
    assert used_site_cache(clone).is_relative_to(site_cache(clone))
    assert clone.must("dvc", "config", "--local", "remote.storage.url").strip() == "/somewhere"
    assert clone.must("git", "status", "--porcelain") == ""


def test_copied_workspace_uses_a_site_cache_of_its_own(clone: Project, tmp_path: Path) -> None:
    clone.must("codline", "presets")
    copy = clone.copy_to(tmp_path / "copy")
    assert used_site_cache(copy).is_relative_to(site_cache(clone))
    copy.must("codline", "presets")
    assert used_site_cache(copy).is_relative_to(site_cache(copy))
    assert used_site_cache(clone).is_relative_to(site_cache(clone))


def test_site_cache_that_others_could_write_to_is_emptied(clone: Project) -> None:
    configure_site_cache(clone.root)
    shutil.rmtree(site_cache(clone))
    assert used_site_cache(clone).exists()
    assert permissions(site_cache(clone)) & 0o022  # as DVC creates it
    planted = site_cache(clone) / "planted"
    planted.touch()
    configure_site_cache(clone.root)
    assert not planted.exists()
    assert permissions(site_cache(clone)) == 0o700


def test_site_cache_that_is_configured_stays_as_it_is(clone: Project) -> None:
    configure_site_cache(clone.root)
    kept = site_cache(clone) / "kept"
    kept.touch()
    config = clone.root / ".dvc/config.local"
    before = config.stat().st_mtime_ns
    configure_site_cache(clone.root)
    assert kept.exists()
    assert config.stat().st_mtime_ns == before


def test_site_cache_is_created_in_dvc_repositories_alone(tmp_path: Path) -> None:
    configure_site_cache(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert configured_directory(tmp_path) is None


def test_directory_that_the_user_has_configured_is_kept(clone: Project, tmp_path: Path) -> None:
    clone.must("dvc", "config", "--local", "core.site_cache_dir", str(tmp_path / "chosen"))
    clone.must("codline", "presets")
    assert used_site_cache(clone).is_relative_to(tmp_path / "chosen")
