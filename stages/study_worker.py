"""Runs points of a study: their stages one after the other, as functions, in one process that imports torch once.

python -m stages.study_worker

Reads one JSON line per point on standard input and answers each with one on standard output. A point is a directory
with params.yaml and dvc.yaml. Results are those of `codline run`: each stage is looked up in DVC's run cache first;
otherwise it runs, with the checks of stages/runner.py, and is added to the cache. dvc.lock is written at the end of the
point: until then, the cache tells what is done.
"""

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from codline.core import params
from codline.core.errors import CodlineError, DataError, InfrastructureError, disk_error
from codline.core.files import file_version, read_json, write_text
from codline.core.locks import KeyLocks, file_lock
from codline.runtime import lock_entries, log, process_lifetime, state_directory
from codline.runtime.background import BUSY, campaign_lock
from codline.runtime.campaign_identity import CampaignIdentity
from codline.runtime.code_files import CODE, ROOT, code_version
from codline.runtime.directory_hash import listing_md5, output_md5
from codline.runtime.lock_entries import Entry
from codline.runtime.object_store import ObjectInfo, ObjectStore
from codline.runtime.pipeline import Pipeline, dotted_value
from codline.runtime.recorded_outputs import LOCK, RecordedOutput, damage_sentence
from codline.runtime.stage_snapshot import KnownFiles
from stages import runner

CURVE_KEYS = ("labels", "accuracy", "loss", "mean_iou")  # mean_iou: only segmentation has it
PARAMS = Path("params.yaml")
TORCH_SEED = 67280421310721  # of torch's global random state in a new process


class BusyStage(Exception):  # noqa: N818 (not an error: another process computes it)
    """Another worker is computing the stage with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StageError(Exception):
    """A stage of the point has failed."""

    def __init__(self, stage: str, error: CodlineError) -> None:
        super().__init__(stage)
        self.stage, self.error = stage, error


class KnownFile(NamedTuple):
    info: ObjectInfo
    version: str  # see file_version


class StudyCache:
    """What the workers of all studies of a project share: DVC's cache, and a lock for every run that is under way."""

    def __init__(self, directory: Path, locks: Path) -> None:
        self.code_version = code_version()  # of this process
        self.runs, self.objects, self.locks = directory / "runs", ObjectStore(directory / "files/md5"), KeyLocks(locks)

    def restore(self, key: str) -> list[dict[str, Any]] | None:
        """Restore the outputs of a past run; None if there is none, or an output of it is missing or damaged."""
        entry = lock_entries.read_entry(self.runs, key)
        if entry is None or not all(self.objects.has(out["md5"]) for out in entry["outs"]):
            return None
        for out in entry["outs"]:
            self.objects.restore(out["md5"], Path(out["path"]))
        return list(entry["outs"])


class PointCampaign:
    """The campaign in the current directory. `dependencies` are what DVC records of code and inputs."""

    def __init__(self, cache: StudyCache, dependencies: dict[str, ObjectInfo]) -> None:
        self.cache, self.dependencies = cache, dependencies
        self.params_version = file_version(str(PARAMS))
        self.raw = params.read_yaml(PARAMS)
        self.identity = CampaignIdentity(self.raw)
        self.pipeline = Pipeline()
        self.pipeline.params = YAML(typ="safe").load(PARAMS)  # as DVC reads it, in a quarter of the time
        self.pipeline.stages = YAML(typ="safe").load(Path("dvc.yaml"))["stages"]
        self.files: dict[str, KnownFile] = {}  # outputs of the stages that are done
        self.entries: dict[str, Entry] = {}

    def run(self) -> None:
        """Bring all stages up to date and write dvc.lock; if one fails, with the stages before it."""
        self.remove_other_files()
        for name in self.pipeline.stage_names():
            try:
                self.bring_up_to_date(name)
            except CodlineError as error:
                self.record()
                raise StageError(name, error) from error
        self.record()

    def remove_other_files(self) -> None:
        """Remove files of cycles and inputs that params.yaml no longer has: report would show them."""
        outputs = {path for name in self.pipeline.stage_names() for path in self.pipeline.outputs(name)}
        manifests = self.pipeline.path("prepare", "manifests").glob("*.parquet")
        for path in [*manifests, *self.pipeline.path("report", "campaign").rglob("*")]:
            if path.is_file() and path.as_posix() not in outputs:
                path.unlink()

    def bring_up_to_date(self, name: str) -> None:
        entry = self.describe(name)
        key, cache = lock_entries.run_key(entry), self.cache
        outs = cache.restore(key)
        if outs is None:
            if not cache.locks.try_lock(key):
                raise BusyStage(key)
            try:
                outs = cache.restore(key) or self.compute(name, key, entry)  # another worker may just have computed it
            finally:
                cache.locks.unlock(key)
        for out in outs:
            info = ObjectInfo(out["md5"], out["size"], out.get("nfiles"))
            self.files[out["path"]] = KnownFile(info, file_version(out["path"]))
        self.entries[name] = entry | {"outs": outs}

    def describe(self, name: str) -> Entry:
        """The entry of a stage in dvc.lock, without the hashes of its outputs."""
        stage, _, cycle = name.partition("@")
        keys, dependencies = self.pipeline.recorded(name)
        values = {key: dotted_value(self.pipeline.params, key) for key in sorted(keys)}
        return {
            "cmd": self.pipeline.resolve(self.pipeline.definition(stage)["cmd"], stage, cycle),
            "deps": [{"path": path, "hash": "md5"} | self.info(path).as_dict() for path in sorted(dependencies)],
            "params": {PARAMS.name: values},
            "outs": [{"path": path} for path in sorted(self.pipeline.outputs(name))],
        }

    def info(self, path: str) -> ObjectInfo:
        """What DVC records of a dependency: code, an input, an output, or a directory of outputs."""
        if path in self.dependencies:
            return self.dependencies[path]
        if path in self.files:
            known = self.files[path]
            if known.version != file_version(path) and output_md5(Path(path)) != known.info.md5:
                stage = next(name for name, entry in self.entries.items() if path in {o["path"] for o in entry["outs"]})
                raise DataError(damage_sentence(RecordedOutput(stage, path, known.info.md5)))
            return known.info
        inside = f"{path}/"
        members = {name.removeprefix(inside): each.info for name, each in self.files.items() if name.startswith(inside)}
        if not members:
            raise DataError(f"{path}: not found; it is made by an earlier stage: run dvc repro")
        md5 = listing_md5({name: info.md5 for name, info in members.items()})
        return ObjectInfo(md5, sum(info.size for info in members.values()), len(members))

    def compute(self, name: str, key: str, entry: Entry) -> list[dict[str, Any]]:
        """Run the stage, and add its outputs and the run to DVC's cache."""
        import torch

        stage, _, cycle = name.partition("@")
        function: runner.Stage = getattr(import_module(f"stages.{stage}"), stage)
        words = self.pipeline.arguments(stage, cycle or None)
        arguments = {word: value if word in runner.KEYS else Path(value) for word, value in words.items()}
        arguments |= {"params": PARAMS}
        data = [dep["path"] for dep in entry["deps"] if dep["path"].partition("/")[0] not in CODE]
        known = KnownFiles(set(entry["params"][PARAMS.name]), data, self.params_version)
        began = time.time()
        log.show_warnings(name)
        torch.manual_seed(TORCH_SEED)  # so that nothing depends on the stages before
        try:
            runner.execute(function, arguments, self.raw, known)
            if code_version() != self.cache.code_version:
                raise DataError(f"{ROOT}: code changed while {name} ran; its result is not recorded: run it again")
            for out in entry["outs"]:
                out |= {"hash": "md5"} | self.cache.objects.add(Path(out["path"])).as_dict()
            lock_entries.write_entry(self.cache.runs, key, entry)
            note = {"seconds": time.time() - began, "started": began, "campaign": self.identity.key}
            state_directory.write_note("seconds", name, note)
        except (Exception, KeyboardInterrupt) as error:
            raise runner.reported_error(error, function, arguments) from error
        return list(entry["outs"])

    def record(self) -> None:
        """Write dvc.lock, once the objects that it names are durable."""
        self.cache.objects.sync_names()
        write_text(LOCK, lock_entries.lock_text(self.entries))

    def learning_curve(self) -> list[dict[str, Any]]:
        metrics = {cycle: read_json(self.pipeline.path("evaluate", "metrics", cycle)) for cycle in self.pipeline.cycles}
        return [
            {"cycle": cycle} | {key: values[key] for key in CURVE_KEYS if key in values}
            for cycle, values in metrics.items()
        ]


def run_point(cache: StudyCache, request: dict[str, Any]) -> dict[str, Any]:
    """Run the campaign of a point. Returns its curve, or the stage that another worker computes, or an error."""
    os.chdir(request["directory"])
    dependencies = {path: ObjectInfo(**info) for path, info in request["dependencies"].items()}
    try:
        with file_lock(campaign_lock(), busy=BUSY, write_owner=True):
            campaign = PointCampaign(cache, dependencies)
            campaign.run()
        return {"curve": campaign.learning_curve()}
    except BusyStage as busy:
        return {"busy": busy.key}
    except StageError as failed:
        if isinstance(failed.error, InfrastructureError):  # the study runs the point again, in another worker
            sys.stderr.write(f"codline: {failed.stage}: {failed.error}\n")
            sys.exit(InfrastructureError.exit_code)
        return error_answer(failed.stage, failed.error)
    except CodlineError as error:
        return error_answer("", error)
    except Exception as error:
        traceback.print_exc()
        known = disk_error(error) or CodlineError(f"unexpected {type(error).__name__}: {error}")
        return error_answer("", known)


def error_answer(stage: str, error: CodlineError) -> dict[str, Any]:
    sentence = f"{stage}: {error}" if stage else str(error)
    sys.stderr.write(f"codline: {sentence}\n")
    return {"stage": stage, "sentence": sentence, "exit_code": error.exit_code}


def redirect_output(log_file: str) -> None:
    """Append what stages and libraries write to the log of the point."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def main() -> None:
    process_lifetime.end_with_parents()  # before slow imports, during which a parent could die unnoticed
    import torch  # noqa: F401 (while the first point is prepared)

    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    settings = json.loads(requests.readline())
    cache = StudyCache(Path(settings["cache"]), Path(settings["locks"]))
    for line in requests:
        request = json.loads(line)
        redirect_output(request["log"])
        answers.write(json.dumps(run_point(cache, request)) + "\n")


if __name__ == "__main__":
    main()
