"""Git worktrees in which the points of a study run: the committed code, sharing the project's DVC cache."""

import shutil
import subprocess
from pathlib import Path

from dvc.repo import Repo
from ruamel.yaml import YAML

from codline.core.errors import DataError, UserError
from codline.core.files import write_text
from codline.orchestration.inputs import link_inputs
from codline.orchestration.site_cache import LOCATION as SITE_CACHE, configure_site_cache

CODE = ("codline", "stages", "flows", "dvc.yaml")  # the committed files that decide a campaign, besides params.yaml


def git(*words: str, at: Path = Path()) -> str:
    done = subprocess.run(["git", *words], cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or "failed"
        raise DataError(f"git {words[0]}: {reason}; a study needs a git repository with a commit")
    return done.stdout


def head_commit() -> str:
    return git("rev-parse", "HEAD").strip()


def committed_text(name: str) -> str:
    return git("show", f"HEAD:./{name}")


def code_version() -> str:
    """Git's hashes of the committed code; a commit that changes other files leaves them as they are."""
    return git("rev-parse", *(f"HEAD:./{name}" for name in CODE))


def is_committed(*names: str) -> bool:
    return not git("status", "--porcelain", "--", *names).strip()


def require_committed_code() -> None:
    """Refuse uncommitted code: points run the commit, so a study of anything else could not be repeated."""
    changed = git("status", "--porcelain", "--", *CODE).splitlines()
    if changed:
        path = changed[0][3:]
        raise UserError(f"{path}: not committed as it is; a study runs committed code, so commit or stash it first")


def dvc_cache_directory() -> Path:
    with Repo() as repo:
        return Path(repo.cache.local_cache_dir).resolve()


def prepare_worktree(folder: Path, commit: str, params: str, cache: Path) -> None:
    """Create or update a worktree of this commit with this params.yaml.

    The worktree keeps its own dvc.lock, so that stages which are up to date are not run again.
    """
    if not (folder / ".git").exists():
        shutil.rmtree(folder, ignore_errors=True)
        git("worktree", "prune")
        git("worktree", "add", "--quiet", "--detach", "--force", str(folder), commit)
        (folder / "dvc.lock").unlink(missing_ok=True)  # it describes the project's own campaign
    elif git("rev-parse", "HEAD", at=folder).strip() != commit:
        checkout_commit(folder, commit)
    link_inputs(YAML(typ="safe", pure=True).load(params), folder)
    # Links instead of copies: the points share one copy of images and outputs. Safe because stages replace files and
    # never write into an existing one.
    config = f"[cache]\n    dir = {cache}\n    type = reflink,hardlink,copy\n"
    config += f"[core]\n    site_cache_dir = {folder.resolve() / SITE_CACHE}\n"
    write_text(folder / ".dvc/config.local", config, durable=False)
    configure_site_cache(folder)
    if not (folder / "params.yaml").exists() or (folder / "params.yaml").read_text(encoding="utf-8") != params:
        write_text(folder / "params.yaml", params, durable=False)


def checkout_commit(folder: Path, commit: str) -> None:
    """Check out another commit in a worktree, keeping its dvc.lock."""
    lock = folder / "dvc.lock"
    content = lock.read_text(encoding="utf-8") if lock.exists() else None
    git("checkout", "--quiet", "--force", "--detach", commit, at=folder)
    if content is None:
        lock.unlink(missing_ok=True)
    else:
        write_text(lock, content)


def worktree_folders() -> list[Path]:
    """This workspace and all worktrees of its repository: those of studies and others."""
    listed = git("worktree", "list", "--porcelain", "-z").split("\0")
    return [Path(), *(Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree "))]


def remove_worktree(folder: Path) -> None:
    """Remove a worktree of a study, whatever state it is in."""
    shutil.rmtree(folder)
    git("worktree", "prune")
