"""Where points run: git worktrees of the committed code, with the project's own DVC cache."""

import shutil
import subprocess
from pathlib import Path

from dvc.repo import Repo

from codline.core.errors import DataError, UserError
from codline.core.files import write_text

CODE = (
    "codline",
    "stages",
    "flows",
    "dvc.yaml",
)  # what a campaign's results and its running depend on, besides params.yaml

RAW = "raw"  # where datasets keep what they downloaded


def git(*words: str, at: Path = Path()) -> str:
    done = subprocess.run(["git", *words], cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(
            f"git {words[0]}: {' '.join(done.stderr.split()) or 'failed'}; a study needs a git repository with a commit"
        )
    return done.stdout


def head() -> str:
    return git("rev-parse", "HEAD").strip()


def committed(name: str) -> str:
    return git("show", f"HEAD:./{name}")


def code() -> str:
    """Names the committed code; a commit that changes other files leaves it as it is."""
    return git("rev-parse", *(f"HEAD:./{name}" for name in CODE))


def unchanged(*names: str) -> bool:
    return not git("status", "--porcelain", "--", *names).strip()


def refuse_changes() -> None:
    """Points run what is committed: a study of anything else could not be repeated."""
    changed = git("status", "--porcelain", "--", *CODE).splitlines()
    if changed:
        raise UserError(
            f"{changed[0][3:]}: not committed as it is; a study runs committed code, so commit or stash it first"
        )


def cache() -> Path:
    with Repo() as repo:
        return Path(repo.cache.local_cache_dir).resolve()


def made(folder: Path, commit: str, params: str, cache: Path) -> None:
    """Bring a worktree to this commit and these params. Its dvc.lock stays: it says what is done there."""
    if not (folder / ".git").exists():
        shutil.rmtree(folder, ignore_errors=True)
        git("worktree", "prune")
        git("worktree", "add", "--quiet", "--detach", "--force", str(folder), commit)
        (folder / "dvc.lock").unlink(missing_ok=True)  # of the project's own campaign
    elif git("rev-parse", "HEAD", at=folder).strip() != commit:
        moved(folder, commit)
    if Path(RAW).is_dir() and not (folder / RAW).exists():
        (folder / RAW).symlink_to(
            Path(RAW).resolve(), target_is_directory=True
        )  # or every point would download its own
    # Linked, not copied: images and outputs of all points are there once. Stages replace files, they never write into one.
    write_text(folder / ".dvc/config.local", f"[cache]\n    dir = {cache}\n    type = reflink,hardlink,copy\n")
    if not (folder / "params.yaml").exists() or (folder / "params.yaml").read_text(encoding="utf-8") != params:
        write_text(folder / "params.yaml", params)


def moved(folder: Path, commit: str) -> None:
    lock = folder / "dvc.lock"
    done = lock.read_text(encoding="utf-8") if lock.exists() else None
    git("checkout", "--quiet", "--force", "--detach", commit, at=folder)
    if done is None:
        lock.unlink(missing_ok=True)
    else:
        write_text(lock, done)
