"""Which files of DVC's cache nothing names any more."""

import re
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo

from codline.core.errors import DataError
from codline.orchestration import dvc_lock
from codline.orchestration.worktrees import worktree_folders
from codline.runtime.directory_hash import DIRECTORY
from codline.runtime.object_store import ObjectStore

MD5 = re.compile(r"\bmd5: ([0-9a-f]{32}(?:\.dir)?)$", re.MULTILINE)
OUTPUTS = "\nouts:"  # the last section of an entry in the run cache


def unused_cache_files() -> list[Path]:
    """Objects that no dvc.lock names, and entries of the run cache whose outputs are among them or gone.

    Asked are the dvc.lock of this workspace and of all git worktrees, and whatever DVC finds in branches, tags and
    experiments. A cache outside of the workspace may belong to other projects, so nothing of it is unused.
    """
    with Repo() as repo:
        cache, objects = Path(repo.cache.local_cache_dir), ObjectStore(Path(repo.cache.local.path))
        if not cache.resolve().is_relative_to(Path.cwd()) or not objects.root.exists():
            return []
        used = objects_named_by_locks(objects) | objects_found_by_dvc(repo)
        unused = {md5 for md5 in repo.cache.local.all() if md5 not in used}
    return [objects.path(md5) for md5 in sorted(unused)] + unused_run_entries(cache / "runs", objects, unused)


def objects_named_by_locks(objects: ObjectStore) -> set[str]:
    """Also by entries of stages that params.yaml no longer has: DVC would leave these out."""
    locks = [folder / dvc_lock.LOCK for folder in worktree_folders()]
    named = {md5 for lock in locks if lock.exists() for md5 in MD5.findall(lock.read_text(encoding="utf-8"))}
    directories = [md5 for md5 in named if md5.endswith(DIRECTORY)]
    if damaged := next(filter(objects.is_damaged, directories), None):
        path = objects.path(damaged)
        raise DataError(f"{path}: damaged, so it cannot be told what is unused; run `codline verify --repair` first")
    return named.union(*(objects.members(md5).values() for md5 in directories))


def objects_found_by_dvc(repo: Repo) -> set[str]:
    """In the workspace, the last commit, branches, tags and experiments: what `dvc gc` keeps."""
    try:
        # force: do not ask whether to go on if the list of a directory's files is missing.
        found = repo.used_objs(revs=["HEAD"], all_branches=True, all_tags=True, all_experiments=True, force=True)
    except DvcException as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise DataError(f"DVC cannot tell which results the git repository needs ({error}: {reason})") from error
    return {info.value for infos in found.values() for info in infos}


def unused_run_entries(runs: Path, objects: ObjectStore, unused: set[str]) -> list[Path]:
    """Files, or their directory if it has no others: DVC fails on one that is empty."""

    def is_unused(entry: Path) -> bool:
        outputs = MD5.findall(entry.read_text(encoding="utf-8", errors="replace").partition(OUTPUTS)[2])
        return any(md5 in unused or not objects.path(md5).exists() for md5 in outputs)

    found = list[Path]()
    for directory in sorted(runs.glob("*/*")):
        entries = sorted(path for path in directory.iterdir() if path.is_file())  # else one that is being written
        unused_entries = [entry for entry in entries if is_unused(entry)]
        found += [directory] if entries and unused_entries == entries else unused_entries
    return found
