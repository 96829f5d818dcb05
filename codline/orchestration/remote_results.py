"""Results that machines share through the DVC remote: entries of DVC's run cache, and the objects that they name.

A stage that any machine has run is restored, and what is computed here is sent, stage by stage: after a kill, another
machine goes on with the next stage. DVC's own `--run-cache` transfers all entries of a remote, which takes longer the
more there are; here they are looked up by key.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dvc.config import NoRemoteError
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc_data.hashfile.hash_info import HashInfo

from codline.core.errors import InfrastructureError, UserError, disk_error
from codline.core.files import write_text
from codline.runtime.object_store import ObjectStore

PROBE = "0" * 64  # a key that no run has


def check_remote() -> None:
    """Refuse a DVC remote that is not there or cannot be read, before anything runs."""
    with Repo() as repo:
        RemoteResults(repo).check()


class RemoteResults:
    """The default remote of a DVC repository."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self.runs, self.objects = Path(repo.cache.legacy.path, "runs"), ObjectStore(Path(repo.cache.local.path))
        self.address = "without a name"
        with self.errors():
            remote = repo.cloud.get_remote(command="push")
            self.files, self.remote_path = remote.fs, remote.path
            self.address = self.files.unstrip_protocol(self.remote_path)

    def check(self) -> None:
        with self.errors():
            if self.files.protocol == "s3":
                self.files.info(self.remote_path.partition("/")[0])
            self.entries(PROBE)

    def folder(self, key: str) -> str:
        """Where the entries of a run are, as `dvc push --run-cache` stores them."""
        folder: str = self.files.join(self.remote_path, "runs", key[:2], key)
        return folder

    def entries(self, key: str) -> list[str]:
        return list(self.files.find(self.folder(key)))

    def has_run(self, key: str) -> bool:
        with self.errors():
            return bool(self.entries(key))

    def fetch_run(self, key: str) -> None:
        """Add the entries of this run to the local run cache, without the outputs that they name."""
        with self.errors():
            for source in self.entries(key):
                text = self.files.read_text(source, encoding="utf-8")
                write_text(self.runs / key[:2] / key / self.files.name(source), text, durable=False)

    def fetch_objects(self, hashes: Iterable[str]) -> None:
        """Add objects to the local cache, with the members of directories. Some may not be in the remote."""
        with self.errors():
            missing = {md5 for md5 in hashes if not self.objects.has(md5)}
            self.repo.cloud.pull(as_infos(missing))
            members = {member for md5 in missing for member in self.objects.members(md5).values()}
            self.repo.cloud.pull(as_infos({md5 for md5 in members if not self.objects.has(md5)}))

    def push(self, key: str, hashes: Iterable[str]) -> None:
        """Send the outputs of a run, then its entry, which names them."""
        everything = {each for md5 in hashes for each in (md5, *self.objects.members(md5).values())}
        with self.errors():
            failed = self.repo.cloud.push(as_infos(everything)).failed
            if failed:
                raise InfrastructureError(f"the DVC remote {self.address} did not take {len(failed)} files; try again")
            for entry in (self.runs / key[:2] / key).iterdir():
                self.files.put_file(str(entry), self.files.join(self.folder(key), entry.name))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of DVC, the network and the storage into one sentence."""
        try:
            yield
        except NoRemoteError as error:
            sentence = "DVC has no default remote to share results through; dvc remote add --default NAME URL"
            raise UserError(sentence) from error
        except DvcException as error:
            raise UserError(f"the DVC remote {self.address}: {reason(error)}") from error
        except PermissionError as error:
            action = f"access denied ({reason(error)}); check this machine's credentials"
            raise UserError(f"the DVC remote {self.address}: {action}") from error
        except FileNotFoundError as error:
            action = f"not found ({reason(error)}); create it, or correct its address"
            raise UserError(f"the DVC remote {self.address}: {action}") from error
        except Exception as error:
            known = disk_error(error)
            if known is not None or not is_of_storage(error):
                raise (known or error) from error
            if "Credentials" in type(error).__name__:
                raise UserError(f"the DVC remote {self.address}: {reason(error)}") from error
            raise InfrastructureError(f"the DVC remote {self.address} does not answer ({reason(error)})") from error


def as_infos(hashes: Iterable[str]) -> set[HashInfo]:
    return {HashInfo("md5", md5) for md5 in hashes}


def is_of_storage(error: BaseException) -> bool:
    """Whether it comes from a network or a library for S3, which has exceptions of its own."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("botocore", "aiohttp", "s3fs")


def reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
