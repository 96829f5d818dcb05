"""Inputs are compared with dvc.lock once per file and campaign, in stages that DVC runs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codline.core.errors import DataError
from codline.core.files import file_md5
from codline.runtime import recorded_outputs
from codline.runtime.directory_hash import output_md5
from codline.runtime.recorded_outputs import (
    CAMPAIGN,
    add_verified,
    read_recorded_outputs,
    read_verified,
    refuse_damaged_inputs,
)
from tests.bits import flip_bit

LOCK = """schema: '2.0'
stages:
  prepare:
    cmd: python -m stages
      outs: of a folded line
    deps:
    - path: data/raw
      hash: md5
      md5: 00000000000000000000000000000000
    params:
      params.yaml:
        prepare:
          outs: 3
    outs:
    - path: data/images
      hash: md5
      md5: {images}
      size: 6
    - path: cycles/init/model
      hash: md5
      md5: {model}
  report:
    cmd: python
    outs:
    - path: report
      hash: md5
      md5: 0123.dir
      nfiles: 2
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", "train@c1")
    monkeypatch.setenv(CAMPAIGN, "1")
    for name in ("data/images", "cycles/init/model"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text(name)
    hashes = {"images": file_md5(Path("data/images")), "model": file_md5(Path("cycles/init/model"))}
    Path("dvc.lock").write_text(LOCK.format(**hashes))


def test_recorded_outputs_are_found_by_their_indentation() -> None:
    outputs = read_recorded_outputs()
    assert {path: output.stage for path, output in outputs.items()} == {
        "data/images": "prepare",
        "cycles/init/model": "prepare",
        "report": "report",
    }
    assert [output.is_directory for output in outputs.values()] == [False, False, True]


def test_no_outputs_are_recorded_without_dvc_lock() -> None:
    Path("dvc.lock").unlink()
    assert read_recorded_outputs() == {}


@pytest.mark.parametrize("named", ["cycles/init/model", "cycles"], ids=["file", "directory"])
def test_damaged_input_is_refused_with_the_cure(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [Path("data/images"), Path(named)]
    refuse_damaged_inputs(inputs)
    flip_bit(Path("cycles/init/model"), 5)
    refuse_damaged_inputs(inputs)  # read already in this campaign, and its size and time are the same
    monkeypatch.setenv(CAMPAIGN, "2")
    with pytest.raises(DataError) as refused:
        refuse_damaged_inputs(inputs)
    found = "cycles/init/model: differs from the file that dvc.lock records for prepare: damaged, or changed by hand"
    cure = "`codline verify --repair` restores it, `dvc commit prepare` accepts it as it is"
    assert str(refused.value) == f"{found}; {cure}"
    monkeypatch.delenv("DVC_STAGE")
    refuse_damaged_inputs(inputs)  # run by hand


def test_input_is_read_once_per_campaign_and_again_when_it_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[Path]()
    monkeypatch.setattr(recorded_outputs, "output_md5", lambda path: (read.append(path), file_md5(path))[1])
    for _ in range(3):
        refuse_damaged_inputs([Path("data/images")])
    assert read == [Path("data/images")]
    Path("data/images").unlink()
    Path("data/images").write_text("other")
    with pytest.raises(DataError, match="data/images: differs"):
        refuse_damaged_inputs([Path("data/images")])


def test_stages_that_run_at_the_same_time_note_all_files_that_they_have_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"file {number}" for number in range(60)]
    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(add_verified, "campaign", {name: ["md5", "version"]}) for name in names]:
            done.result()
    assert set(read_verified("campaign")) == set(names)
    assert read_verified("another campaign") == {}


def test_damaged_file_of_a_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "gallery/b"):
        Path("report", name).parent.mkdir(exist_ok=True)
        Path("report", name).write_text(name)
    lock = Path("dvc.lock").read_text().replace("0123.dir", output_md5(Path("report")))
    Path("dvc.lock").write_text(lock)
    refuse_damaged_inputs([Path("report")])
    flip_bit(Path("report/gallery/b"), 3)
    monkeypatch.setenv(CAMPAIGN, "2")
    with pytest.raises(DataError, match=r"^report: differs from the directory that dvc.lock records for report: "):
        refuse_damaged_inputs([Path("report")])
