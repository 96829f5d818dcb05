"""Bad inputs: each is refused with one sentence and the exit code of its kind, and nothing is written.

The cases call what the commands call; the last table runs the commands themselves. To add a case, add a line to the
table of its kind: what is given, a part of the sentence, and the exit code where a table has several.
"""

import io
import os
import shutil
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from codline.cli.options import parse_overrides
from codline.cli.plugins import members
from codline.core import params_errors
from codline.core.errors import CodlineError, DataError, UserError
from codline.data import output_store
from codline.data.answers import KnownImages, read_sheet, refuse
from codline.data.tables import FILES, POOL, write_columns
from codline.learning import model_file
from codline.orchestration import params_file, presets, study_grid
from stages.check_params import check
from tests.tiny_study import TINY
from tests.workspace import REPOSITORY, Workspace, create_workspace

Files = dict[str, bytes]


def files_in(root: Path) -> Files:
    """All files but notes, which a stage writes where it fails."""
    paths = [path for path in root.rglob("*") if path.is_file() and ".codline" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def assert_refused(act: Callable[[], object], sentence: str, kind: type[CodlineError]) -> None:
    with pytest.raises(CodlineError) as refused:
        act()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert refused.value.exit_code == kind.exit_code


# ---- params.yaml: a value

AMOUNT = "a share of the pool (more than 0, less than 1) or a number of images (1, 2, ...)"
AMOUNT_OR_ALL = "a share of the pool (more than 0, less than 1), a number of images (1, 2, ...) or all"
FIRST_CYCLE = "'largest', 'smallest', 'independent', 'snapshot', 'uniform' or 'random'"
STRATEGIES = ", ".join(sorted(params_errors.plugin_name(kind) for kind in members("strategies")))
SENTENCES = [
    ("trian", {}, "trian: unknown section; did you mean train?"),
    ("seed", -1, "seed: found -1, expected a whole number that is not negative, below 2**63"),
    ("seed", None, "seed: found nothing, expected a whole number that is not negative, below 2**63"),
    ("seed", True, "seed: found true, expected a whole number that is not negative, below 2**63"),
    ("compute", [1], "compute: found [1], expected keys beneath it, such as device"),
    ("compute.device", "gpu", "compute.device: found 'gpu', expected 'auto', 'cpu', 'cuda' or 'mps'"),
    ("compute.threads", 0, "compute.threads: found 0, expected more than 0"),
    ("train.epoch", 3, "train.epoch: unknown key; did you mean epochs?"),
    ("train.epochs", "30", "train.epochs: found '30', expected a whole number"),
    ("train.epochs", 3.5, "train.epochs: found 3.5, expected a whole number"),
    ("train.epochs", None, "train.epochs: found nothing, expected a whole number"),
    ("train.learning_rate", "fast", "train.learning_rate: found 'fast', expected a number"),
    ("train.learning_rate", float("inf"), "train.learning_rate: found inf, expected a finite number"),
    ("train.batch_size", 1, "train.batch_size: found 1, expected at least 2"),
    ("train.momentum", 1, "train.momentum: found 1, expected less than 1"),
    ("train.augment.crops", 1, "train.augment.crops: unknown key; did you mean crop?"),
    ("train.augment.flip", "yes", "train.augment.flip: found 'yes', expected true or false"),
    (
        "train.objective",
        {"name": "none"},
        "train.objective: found one objective, expected the list train.objectives: [{name: ema}], "
        "or [] for labels alone",
    ),
    ("train.objectives", {}, "train.objectives: found {}, expected a list"),
    ("train.objectives", [{}], "train.objectives.0.name: missing; expected one of cyclic, ema, fixmatch, ll4al"),
    ("train.objectives", ["ema"], "train.objectives.0: found 'ema', expected keys beneath it, such as name"),
    ("train.objectives", [{"name": "emma"}], "train.objectives.0.name: unknown objective 'emma'; did you mean ema?"),
    (
        "train.objectives",
        [{"name": "ll4al"}, {"name": "ema", "wieght": 1}],
        "train.objectives.ema.wieght: unknown key; did you mean weight?",
    ),
    (
        "train.objectives",
        [{"name": "ema", "weight": -1}],
        "train.objectives.ema.weight: found -1, expected at least 0",
    ),
    (
        "train.objectives",
        [{"name": "ema", "decay": 0.9, "horizon": 0.14}],
        "train.objectives.ema.horizon: found 0.14, expected only one of horizon and decay (here 0.9)",
    ),
    (
        "train.objectives",
        [{"name": "ema"}, {"name": "ema"}],
        "train.objectives: found [{'name': 'ema'}, {'name': 'ema'}], expected every objective once",
    ),
    (
        "train.objectives",
        [{"name": "ema", "batch_size": 8}, {"name": "cyclic"}],
        "train.objectives: found [{'batch_size': 8, 'name': 'ema'}, {'name': 'cyclic'}], "
        "expected the same batch_size for all, since they share the unlabeled images of a step",
    ),
    ("score.strategy", "cod", "score.strategy: found 'cod', expected keys beneath it, such as name"),
    (
        "train.snapshots",
        list(range(1, 10)),
        "train.snapshots: found [1, 2, 3, 4, 5, 6, 7, 8, 9], expected at most 8 of them",
    ),
    ("train.snapshots", 5, "train.snapshots: found 5, expected a list"),
    (
        "prepare.dataset",
        {"name": "parquet", "train": [], "test": ["a"]},
        "prepare.dataset.train: found [], expected at least 1 of them",
    ),
    ("score.strategy.name", "whim", f"score.strategy.name: unknown strategy 'whim'; expected one of {STRATEGIES}"),
    (
        "score.strategy",
        {"name": "true_loss"},
        "score.truth: found 'pool', expected oracle: true_loss needs the true labels, and the pool has none",
    ),
    ("score.truth", "oracle", "score.truth: found 'oracle', expected pool: cod must not see the true labels"),
    ("score.truth", "data/oracle.parquet", "score.truth: found 'data/oracle.parquet', expected 'pool' or 'oracle'"),
    ("score.strategy.name", "entropi", "score.strategy.name: unknown strategy 'entropi'; did you mean entropy?"),
    (
        "score.strategy.name",
        "Least-Confidence",
        "score.strategy.name: unknown strategy 'Least-Confidence'; did you mean least_confidence?",
    ),
    (
        "score.strategy.first_cycle",
        "small",
        f"score.strategy.first_cycle: found 'small', expected {FIRST_CYCLE}",
    ),
    ("prepare.dataset.tset", 0.5, "prepare.dataset.tset: unknown key; did you mean test?"),
    (
        "prepare.model.name",
        "resnet",
        "prepare.model.name: unknown model 'resnet'; did you mean resnet18 or resnet18_224 or small_unet?",
    ),
    ("annotate.annotator.noise", 2, "annotate.annotator.noise: found 2, expected at most 1"),
    ("select.budget", 0, f"select.budget: found 0, expected {AMOUNT}"),
    ("select.budget", 1.5, f"select.budget: found 1.5, expected {AMOUNT}"),
    ("select.budget", "5%", f"select.budget: found '5%', expected {AMOUNT}"),
    ("prepare.start", True, f"prepare.start: found true, expected {AMOUNT_OR_ALL}"),
    ("prepare.start", "everything", f"prepare.start: found 'everything', expected {AMOUNT_OR_ALL}"),
    ("prepare.start", 1.0, f"prepare.start: found 1.0, expected {AMOUNT_OR_ALL}"),
    (
        "prepare.start",
        "all",
        "prepare.start: found 'all', which leaves nothing to query; expected a single cycle, which has no query",
    ),
    ("select.budget", "all", f"select.budget: found 'all', expected {AMOUNT}"),
    ("merge.order", 1, "merge.order: unknown key; expected no keys here"),
    ("merge", 3, "merge: found 3, expected keys beneath it"),
    ("cycles", {}, "cycles: found none, expected at least c1: {prev: init}"),
    ("cycles", 7, "cycles: found 7, expected keys beneath it"),
    ("cycles.c2", {}, "cycles.c2.prev: missing"),
    *(
        (
            "cycles",
            {name: {"prev": "init"}},
            f"cycles: found the name {name!r}, expected at most 64 letters, digits, - and _, such as c1, and not init",
        )
        for name in ("c1 ; touch x #", "../../esc", "init", "", "-c", "c\n1", "$(id)")
    ),
    ("cycles.c2.pre", "c1", "cycles.c2.pre: unknown key; did you mean prev?"),
    ("cycles.c2.prev", "init", "cycles.c2.prev: found 'init', expected 'c1': each cycle follows the one above it"),
    ("queries", {}, "queries: found none, expected the lines of cycles without the last: c1, c2"),
    ("queries.c2.prev", "init", "queries.c2.prev: found 'init', expected 'c1' as in cycles"),
    ("queries.c2.answer", "x", "queries.c2.answer: unknown key; did you mean answers?"),
    (
        "queries.c2",
        {"prev": "c1"},
        "queries.c2.answers: found nothing, expected data/oracle.parquet, which the annotator simulated reads; "
        "`codline run` writes it",
    ),
    (
        "annotate.annotator",
        {"name": "people"},
        "queries.c1.answers: found data/oracle.parquet, expected answers/c1.csv, which the annotator people reads; "
        "`codline run` writes it",
    ),
    (
        "annotate.annotator",
        {"name": "people", "answers": "answers.csv"},
        "annotate.annotator: found {'answers': 'answers.csv', 'name': 'people'}, expected folder instead of answers: "
        "every query has a file of its own, such as answers/c1.csv",
    ),
    *(
        (
            "annotate.annotator",
            {"name": "people", "folder": folder},
            f"annotate.annotator.folder: found {folder!r}, expected a folder in this directory, of letters, digits, - "
            "and _, such as answers (not data, cycles, models, queries or report)",
        )
        for folder in ("../answers", "/answers", "a;b", "$(a)", "my answers", "data", "queries/a", "a/", "", "a\nb")
    ),
]


# Added to the values above: numbers that no machine has room for, names, and every dataset.
TEST_SHARE = (
    "prepare.dataset.test: found {}, expected a share of the labelled images (more than 0, less than 1), or the"
)
SIDE = "expected the pixels of a side, 8 to 8192, or [height, width]"
NUMBERS = [
    ("seed", 2**63, "seed: found 9223372036854775808, expected a whole number that is not negative, below 2**63"),
    ("seed", 0.5, "seed: found 0.5, expected a whole number"),
    ("train.learning_rate", float("nan"), "train.learning_rate: found nan, expected a finite number"),
    ("train.epochs", 10**30, "train.epochs: found 1000000000000000000000000000000, expected at most 2147483647"),
    ("train.epochs", 0, "train.epochs: found 0, expected more than 0"),
    ("train.epochs", -3, "train.epochs: found -3, expected more than 0"),
    ("train.decay_at", 2, "train.decay_at: found 2, expected at most 1"),
    ("train.snapshots", [1, 2**40], "train.snapshots.1: found 1099511627776, expected at most 2147483647"),
    ("train.snapshots", [1.5], "train.snapshots.0: found 1.5, expected a share of the steps (more than 0"),
    ("train.snapshots", [3, 0], "train.snapshots.1: found 0, expected a share of the steps (more than 0"),
    ("train.committee", 17, "train.committee: found 17, expected at most 16"),
    ("prepare.model.dropout", 1, "prepare.model.dropout: found 1, expected less than 1"),
    ("compute.threads", 5000, "compute.threads: found 5000, expected at most 1024"),
    ("prepare.model.width", 10**20, "prepare.model.width: found 100000000000000000000, expected at most 2147483647"),
    ("select.budget", float("nan"), f"select.budget: found nan, expected {AMOUNT}"),
    ("prepare.validation", -1, "prepare.validation: found -1, expected a share (more than 0, less than 1), a number"),
    ("diagnose.buckets", 0, "diagnose.buckets: found 0, expected more than 0"),
    ("report.gallery", "all", "report.gallery: found 'all', expected a whole number"),
    ("scan.links", "all", "scan.links: found 'all', expected 'refuse' or 'follow'"),
    ("score.subset", 3, "score.subset: found 3, expected at least select.budget (5)"),
    ("inputs", {"a b": "x"}, "inputs.a b: found 'a b', expected"),
    ("inputs", [1], "inputs: found [1], expected keys beneath it"),
    ("\x1b[31mred\n", 1, "\\x1b[31mred\\n: unknown section"),
]
DATASETS = [
    ({"name": "digit"}, "prepare.dataset.name: unknown dataset 'digit'; did you mean digits?"),
    ({"name": "digits", "test": 0}, "prepare.dataset.test: found 0, expected more than 0"),
    ({"name": "folder"}, "prepare.dataset.path: missing"),
    ({"name": "folder", "path": ""}, "prepare.dataset.path: found '', expected a path"),
    ({"name": "folder", "path": "a\0b"}, "prepare.dataset.path: found 'a\\x00b', expected a path"),
    ({"name": "folder", "path": 3}, "prepare.dataset.path: found 3, expected a text"),
    ({"name": "folder", "path": "x", "labels": "\n"}, "prepare.dataset.labels: found '\\n', expected a path"),
    ({"name": "folder", "path": "x", "test": 1.5}, TEST_SHARE.format(1.5)),
    ({"name": "folder", "path": "x", "test": 0}, TEST_SHARE.format(0)),
    ({"name": "folder", "path": "x", "size": 4}, f"prepare.dataset.size: found 4, {SIDE}"),
    ({"name": "folder", "path": "x", "size": [64, 0]}, f"prepare.dataset.size: found [64, 0], {SIDE}"),
    ({"name": "folder", "path": "x", "size": 10**6}, f"prepare.dataset.size: found 1000000, {SIDE}"),
    ({"name": "folder", "path": "x", "channels": 2}, "prepare.dataset.channels: found 2, expected 'auto', 1 or 3"),
    ({"name": "folder", "path": "x", "unreadable": "hide"}, "prepare.dataset.unreadable: found 'hide', expected"),
    ({"name": "parquet", "test": ["a"]}, "prepare.dataset.train: missing"),
    ({"name": "parquet", "train": "a", "test": ["a"]}, "prepare.dataset.train: found 'a', expected a list"),
    ({"name": "parquet", "train": [""], "test": ["a"]}, "prepare.dataset.train.0: found '', expected a path"),
    ({"name": "parquet", "train": ["a"], "test": ["a"], "pool": 0}, "prepare.dataset.pool: found 0, expected more th"),
    ({"name": "streets", "size": 3}, "prepare.dataset.size: unknown key; expected one of count, height, name, test"),
    ({"name": "camvid", "train": ["a"]}, "prepare.dataset.test: missing"),
    ({"name": "cityscapes"}, "prepare.dataset.root: missing"),
    ({"name": "fashion_mnist", "pool": "x"}, "prepare.dataset.pool: found 'x', expected a whole number"),
    ({"name": "cifar10", "pool": 0}, "prepare.dataset.pool: found 0, expected more than 0"),
    ({"name": "cifar100", "pool": 1.5}, "prepare.dataset.pool: found 1.5, expected a whole number"),
    ({"name": "svhn", "pool": -1}, "prepare.dataset.pool: found -1, expected more than 0"),
    ({"name": "caltech101", "tset": 1}, "prepare.dataset.tset: unknown key; did you mean test?"),
]
VALUES = [*SENTENCES, *NUMBERS, *(("prepare.dataset", given, sentence) for given, sentence in DATASETS)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a valid params.yaml."""
    return (create_workspace(tmp_path_factory.mktemp("small")).root / "params.yaml").read_text()


@pytest.mark.parametrize(("key", "value", "sentence"), VALUES)
def test_value_is_refused(tmp_path: Path, small: str, key: str, value: Any, sentence: str) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "params.yaml").write_text(small)
    workspace.change(**({"select.budget": 5} if key == "score.subset" else {}), **{key: value})
    before = files_in(tmp_path)
    assert_refused(lambda: check(tmp_path / "params.yaml"), f"params.yaml: {sentence}", UserError)
    assert files_in(tmp_path) == before


# ---- params.yaml: the file

MANY = "".join(f"  c{i}: {{prev: {f'c{i - 1}' if i > 1 else 'init'}}}\n" for i in range(1, 1002))
TEXTS = [
    ("", "found nothing, expected sections such as seed and train"),
    ("- 1", "found [1], expected sections such as seed and train"),
    ("a: [", "not valid YAML: line 1: expected"),
    ("a: 1\na: 2", 'not valid YAML: line 2: found duplicate key "a" with value "2" (original value: "1")'),
    (
        "seed: !!python/object/apply:os.system [touch pwned]",
        "not valid YAML: line 1: could not determine a constructor",
    ),
    ("seed: !mine 3", "not valid YAML: line 1: could not determine a constructor for the tag '!mine'"),
    ("seed: &a [1]\ntrain: [*a, *a]", "not valid YAML: found an alias (*), expected plain values"),
    ("a: " + "[" * 3000 + "]" * 3000, "not valid YAML: too many levels"),
    ("seed: " + "9" * 5000, "not valid YAML: Exceeds the limit (4300 digits)"),
    ("seed: 2024-13-45", "not valid YAML: month must be in 1..12"),
    ("seed: 2024-01-01", "seed: found 2024-01-01, expected a whole number"),
    ("seed: 0\n---\nseed: 1", "not valid YAML: line 2: but found another document"),
    ("train:\n\tepochs: 3", "not valid YAML: line 2: found character '\\t' that cannot start any token"),
    ("seed: \0", "not valid YAML: unacceptable character #x0000"),
    ("seed: \x1b[31m", "not valid YAML: unacceptable character #x001b"),
    ("? {a: b}\n: 2", "not valid YAML: line 1: found unhashable key"),
    ("1: 2", "params.yaml: 1: unknown section"),
    ("seed: 0\ncycles: {1: {prev: init}}", "params.yaml: cycles.1: found 1, expected a text"),
    (f"seed: 0\ncycles:\n{MANY}", "params.yaml: cycles: found 1001, expected at most 1000"),
    ("seed: 0", "params.yaml: cycles: found none, expected at least c1: {prev: init}"),
    ("seed: 0\ncycles: {c1: {prev: c2}, c2: {prev: c1}}", "cycles.c1.prev: found 'c2', expected 'init'"),
    ("seed: 0\ncycles: {c1: {prev: init}, c2: {prev: init}}", "cycles.c2.prev: found 'init', expected 'c1'"),
    ("seed: 0\ncycles: {c1: {prev: zz}}", "cycles.c1.prev: found 'zz', expected 'init'"),
    ("seed: 0\ncycles: {цикл: {prev: init}}", "cycles: found the name 'цикл', expected at most 64 letters"),
    (f"seed: 0\ncycles: {{{'c' * 300}: {{prev: init}}}}", "cycles: found the name 'ccc"),
    ("seed: 0\ncycles: {' ': {prev: init}}", "cycles: found the name ' ', expected at most 64 letters"),
]


@pytest.mark.parametrize(("text", "sentence"), TEXTS)
def test_params_yaml_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    assert_refused(lambda: check(tmp_path / "params.yaml"), sentence, UserError)
    assert files_in(tmp_path) == {"params.yaml": text.encode()}


def test_params_yaml_that_is_missing_a_folder_or_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    assert_refused(lambda: check(path), "not found; run this from the root of a codline project", UserError)
    path.mkdir()
    assert_refused(lambda: check(path), "params.yaml: cannot be read (Is a directory)", UserError)
    (tmp_path / "latin.yaml").write_bytes(b"seed: \xff")
    assert_refused(lambda: check(tmp_path / "latin.yaml"), "not valid YAML: 'utf-8' codec can't decode", UserError)


# ---- -S and other changes

MALFORMED = ["{crop: 1", "[1,", "[1", "{", "*x", "a: b: c", "2024-13-01", "!!python/name:os.system", "@", "[" * 3000]
PAIRS = [
    *((pair, f"-S {pair}: expected key=value, such as train.epochs=10") for pair in ("train.epochs", "=3", "=", "")),
    *((f"train.epochs={value}", "the value is not valid YAML (") for value in MALFORMED),
    ("trian.epochs=3", "trian.epochs: params.yaml has no 'trian'; did you mean train?"),
    ("seed.x=1", "seed.x: params.yaml has a plain value above 'x'"),
    ("train..epochs=1", "train..epochs: params.yaml has no ''; expected one of augment"),
    (".=1", ".: params.yaml has no ''; expected one of annotate"),
]


@pytest.mark.parametrize(("pair", "sentence"), PAIRS)
def test_override_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str, sentence: str) -> None:
    shutil.copy(REPOSITORY / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    before = files_in(tmp_path)
    assert_refused(lambda: params_file.update_params(parse_overrides([pair])), sentence, UserError)
    assert files_in(tmp_path) == before


# ---- a folder of images


def png(seed: int, side: int = 12) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    """As far as its header tells."""
    data = png(0)
    header = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "JPEG")
    return buffer.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
# IPTC fields of a gray image of 8x8 pixels, with a file of any format in it.
IPTC = (
    b"\x1c\x03\x3c\x00\x02\x01\x00\x1c\x03\x41\x00\x01\x01\x1c\x03\x14\x00\x02\x00\x08\x1c\x03\x1e\x00\x02\x00\x08"
    b"\x1c\x03\x78\x00\x02\x00\x04" + b"\x1c\x08\x0a" + struct.pack(">H", len(EPS)) + EPS
)
PSD = b"8BPS\0\1" + b"\0" * 6 + b"\0\3\0\0\0\x10\0\0\0\x10\0\x08\0\3" + b"\0" * 100


def image(content: bytes, name: str = "cat/0.png") -> Callable[[], object]:
    return lambda: Path("photos", name).write_bytes(content)


def link(target: str, name: str = "cat/link.png") -> Callable[[], object]:
    return lambda: Path("photos", name).symlink_to(target)


def file(name: bytes) -> Callable[[], object]:
    def make() -> None:
        path = Path("photos", os.fsdecode(name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(99))

    return make


def csv(*lines: str, header: str = "file,label", encoding: str = "utf-8") -> Callable[[], object]:
    return lambda: Path("photos/labels.csv").write_bytes("\n".join([header, *lines]).encode(encoding))


def only(*paths: str) -> Callable[[], object]:
    """A folder with these images alone."""

    def make() -> None:
        shutil.rmtree("photos")
        Path("photos").mkdir()
        for number, path in enumerate(paths):
            Path("photos", path).parent.mkdir(parents=True, exist_ok=True)
            Path("photos", path).write_bytes(png(number))

    return make


def bind_socket() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("photos/cat/socket.png")


def replace_folder(make: Callable[[], object]) -> Callable[[], object]:
    return lambda: (shutil.rmtree("photos"), make())


ONE, UNREADABLE = "photos: 1 of 1{} images cannot be used: cat/{}: ", "not an image that can be read ("
OUTSIDE = "outside of photos; expected files in the folder, or scan.links=follow"
NO_IMAGE = "photos: found no image in it or its folders (other files: {}); expected images, such as .jpg or .png"
LABELS = "expected a folder per class, or a labels.csv with the columns file and label"
NAME = "expected UTF-8 without control characters"
SPECIAL = "a pipe, socket or device, expected"
LONG = "x" * 5000
SPLIT = "file,label,split"
FOLDERS: dict[str, tuple[Callable[[], object], str]] = {
    "missing": (lambda: shutil.rmtree("photos"), "photos: not found; prepare.dataset names it, from /"),
    "a file": (replace_folder(lambda: Path("photos").write_text("x")), "photos: a file; expected a folder with images"),
    "a pipe": (replace_folder(lambda: os.mkfifo("photos")), f"photos: {SPECIAL} a file or a folder"),
    "empty": (only(), NO_IMAGE.format(0)),
    "texts": (lambda: (only()(), Path("photos/a.txt").touch()), NO_IMAGE.format(1)),
    "heic": (lambda: (only()(), Path("photos/a.heic").touch()), f"{NO_IMAGE.format(1)}; convert them to JPEG"),
    "one class": (only("cat/0.png", "cat/1.png"), "photos: found one class, cat, expected at least two"),
    "too high": (
        only("in/cat/0.png", "in/dog/1.png"),
        "expected at least two; are the classes the folders in photos/in?",
    ),
    "no folders": (only("0.png"), f"photos: 1 images, but no folder that would name their class; {LABELS}"),
    "third split": (only("train/a/0.png", "test/a/1.png", "x/a/2.png"), "photos: found test and beside it train, x; "),
    "blank class": (
        file(b" bird/0.png"),
        "found the class ' bird', expected at most 200 characters",
    ),
    "zero bytes": (image(b""), ONE.format(2, "0.png") + "found 0 bytes, expected an image"),
    "truncated png": (image(png(0)[:200]), ONE.format(2, "0.png") + f"{UNREADABLE}image file is truncated"),
    "truncated jpeg": (image(jpeg()[:500], "cat/a.jpg"), ONE.format(3, "a.jpg") + UNREADABLE),
    "text": (image(b"hello"), ONE.format(2, "0.png") + f"{UNREADABLE}of no known format)"),
    "svg": (image(b"<svg onload='alert(1)'/>"), ONE.format(2, "0.png") + f"{UNREADABLE}of no known format)"),
    "eps": (image(EPS), ONE.format(2, "0.png") + f"{UNREADABLE}of no known format)"),
    "eps in iptc": (image(IPTC), ONE.format(2, "0.png") + f"{UNREADABLE}of no known format)"),
    "psd": (image(PSD, "cat/a.jpg"), ONE.format(3, "a.jpg") + f"{UNREADABLE}of no known format)"),
    "one pixel": (image(png(0, 1)), ONE.format(2, "0.png") + "1x1 pixels, expected at least 8 a side"),
    "169 million pixels": (image(png_of_size(13_000, 13_000)), "found 13000x13000 pixels, expected at most 80 million"),
    "3600 million pixels": (image(png_of_size(60_000, 60_000)), "found too many pixels, expected at most 80 million"),
    "pipe": (lambda: os.mkfifo("photos/cat/pipe.png"), f"photos/cat/pipe.png: {SPECIAL} files and folders"),
    "hidden pipe": (lambda: (file(b".x/a")(), os.mkfifo("photos/.x/pipe")), f"photos/.x/pipe: {SPECIAL}"),
    "socket": (bind_socket, f"photos/cat/socket.png: {SPECIAL} files and folders; remove it"),
    "link to a device": (link("/dev/zero"), f"photos/cat/link.png: a link to /dev/zero, {OUTSIDE}"),
    "link out": (link("/etc/passwd"), f"photos/cat/link.png: a link to /etc/passwd, {OUTSIDE}"),
    "relative link out": (link("../../params.yaml"), f"/params.yaml, {OUTSIDE}"),
    "folder link out": (link("/", "bird"), f"photos/bird: a link to /, {OUTSIDE}"),
    "link beside": (lambda: (Path("photos-2").mkdir(), link("../photos-2", "bird")()), f"photos-2, {OUTSIDE}"),
    "link to nowhere outside": (link("/nowhere"), f"photos/cat/link.png: a link to /nowhere, {OUTSIDE}"),
    "link to nowhere": (link("nowhere"), ONE.format(3, "link.png") + "cannot be read (No such file or directory)"),
    "link to itself": (link("link.png"), "cat/link.png: cannot be read (Too many levels of symbolic links)"),
    "link in a circle": (link("..", "cat/again"), "photos/cat/again: a link to a folder that it lies in itself"),
    "name not UTF-8": (file(b"cat/caf\xe9.png"), f"photos/cat: found the name 'caf\\udce9.png', {NAME}"),
    "name with a line break": (file(b"cat/a\nb.png"), f"photos/cat: found the name 'a\\nb.png', {NAME}"),
    "name with an escape": (file(b"cat/\x1b[31m.png"), f"photos/cat: found the name '\\x1b[31m.png', {NAME}"),
    "folder with an escape": (file(b"c\x1b[2J/a.png"), f"photos: found the name 'c\\x1b[2J', {NAME}"),
    "csv without columns": (csv("a;b", header="file;label"), "labels.csv: found the columns file;label, expected file"),
    "csv of one column": (
        csv("a", header="file"),
        "photos/labels.csv: found the columns file, expected file and label",
    ),
    "csv with a column twice": (csv("a,b,c", header="file,label,label"), "found the column label more than once"),
    "empty csv": (
        lambda: Path("photos/labels.csv").touch(),
        "labels.csv: found the columns of an empty file, expected",
    ),
    "csv of an unknown file": (csv("cat/0.png,a", "cat/99.png,b"), "labels.csv: line 3: 'cat/99.png' is not in photos"),
    "csv of a file outside": (csv("../params.yaml,a"), "labels.csv: line 2: '../params.yaml' is not in photos"),
    "csv of a long name": (csv(f"{LONG},a"), "photos/labels.csv: line 2: 'xxxxxxx"),
    "csv of a name with NUL": (csv("cat/\0.png,a"), "photos/labels.csv: line 2: 'cat/\\x00.png' is not in photos"),
    "csv of two labels": (
        csv("cat/0.png,a", "./cat/0.png,b"),
        "line 3: cat/0.png is labelled b, further up a; expected",
    ),
    "csv in latin-1": (
        csv("cat/0.png,größe", encoding="latin-1"),
        "not UTF-8 (invalid start byte at byte 23); save it",
    ),
    "csv in utf-16": (
        csv("cat/0.png,a", encoding="utf-16"),
        "photos/labels.csv: not UTF-8 (invalid start byte at byte 0)",
    ),
    "csv with a huge cell": (
        csv("cat/0.png," + "x" * 200_000),
        "labels.csv: cannot be read (field larger than field limit",
    ),
    "csv without labels": (csv("cat/0.png,", "cat/2.png,  "), f"photos/labels.csv: no image has a label; {LABELS}"),
    "csv of one class": (csv("cat/0.png,a"), "photos/labels.csv: found one class, a, expected at least two"),
    "csv of a class of dots": (
        csv("cat/0.png,a", "cat/2.png,.."),
        "found the class '..', expected at most 200 characters",
    ),
    "csv of a long class": (csv("cat/0.png,a", f"cat/2.png,{LONG}"), "found the class 'xxx"),
    "csv of a class with NUL": (
        csv("cat/0.png,a", "cat/2.png,b\0"),
        "found the class 'b\\x00', expected at most 200",
    ),
    "csv of a class with a break": (
        csv("cat/0.png,a", 'cat/2.png,"b\nc"'),
        "found the class 'b\\nc', expected at most 200",
    ),
    "csv with other splits": (
        csv("cat/0.png,a,training", "cat/2.png,b,testing", header=SPLIT),
        "photos: found no test images (looked for test, found testing, training); prepare.dataset.test may name",
    ),
    "csv with an unlabelled test image": (
        csv("cat/0.png,a,train", "cat/2.png,b,train", "cat/4.png,,test", header=SPLIT),
        "photos: 1 test images have no label, such as cat/4.png; expected one for each",
    ),
    "csv with nothing but test images": (
        csv(*(f"{('cat', 'dog')[i % 2]}/{i}.png,{i % 2},test" for i in range(12)), header=SPLIT),
        "photos: found nothing but test images (looked for test, found test); prepare.dataset.test may name another",
    ),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: str) -> Workspace:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/inputs").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text(small)
    return Workspace(tmp_path)


def prepare_is_refused(here: Workspace, dataset: dict[str, Any], sentence: str) -> None:
    here.change(**{"prepare.dataset": dataset, "prepare.start": 4, "prepare.validation": 0})
    assert_refused(lambda: here.run("prepare"), sentence, DataError)
    assert not any(path.exists() for path in here.outputs("prepare"))


@pytest.mark.parametrize(("make", "sentence"), FOLDERS.values(), ids=list(FOLDERS))
def test_folder_is_refused(here: Workspace, make: Callable[[], object], sentence: str) -> None:
    for number in range(12):
        path = Path("photos", ("cat", "dog")[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    make()
    prepare_is_refused(here, {"name": "folder", "path": "photos"}, sentence)


def test_links_out_of_a_folder_are_followed_if_the_parameter_says_so(here: Workspace) -> None:
    for number in range(12):
        path = Path("elsewhere", ("cat", "dog")[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    Path("photos").mkdir()
    for name in ("cat", "dog"):
        Path("photos", name).symlink_to(Path("elsewhere", name).resolve())
    dataset = {"name": "folder", "path": "photos"}
    here.change(**{"prepare.dataset": dataset, "prepare.start": 4, "prepare.validation": 0, "scan.links": "follow"})
    here.run("prepare")
    assert pq.read_table("data/files.parquet")["file"].to_pylist().count("cat/0.png") == 1


# ---- Parquet files

CELLS = [png(number) for number in range(8)]
TRAIN: dict[str, Any] = {"image": CELLS, "label": [0, 1] * 4}
BYTES = "expected bytes"
FILE_NAME = "expected names of at most 240 bytes without control characters"
PARQUET: dict[str, tuple[dict[str, Any] | bytes | None, str]] = {
    "missing": (None, "train.parquet: not found; prepare.dataset names it"),
    "text": (
        b"hello",
        "train.parquet: not a Parquet file with the columns image and label (Parquet file size is 5 bytes",
    ),
    "empty": (b"", "train.parquet: not a Parquet file with the columns image and label (Parquet file size is 0 bytes)"),
    "no label": ({"image": CELLS}, "train.parquet: found the columns image, expected image and label"),
    "no image": ({"label": [0, 1]}, "train.parquet: found the columns label, expected image and label"),
    "no rows": ({"image": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}, "train.parquet: has no rows"),
    "texts as images": (TRAIN | {"image": ["x"] * 8}, f"train.parquet: found images of type string, {BYTES}"),
    "numbers as images": (TRAIN | {"image": range(8)}, f"train.parquet: found images of type int64, {BYTES}"),
    "lists as images": (TRAIN | {"image": [[1]] * 8}, f"found images of type list<element: int64>, {BYTES}"),
    "structs as images": (TRAIN | {"image": [{"bytes": b"x"}] * 8}, f"of type struct<bytes: binary>, {BYTES}"),
    "nulls as images": (
        TRAIN | {"image": [None, *CELLS[1:]]},
        "train.parquet: 1 rows have no image, expected one in each",
    ),
    "empty cell": (TRAIN | {"image": [b"", *CELLS[1:]]}, "train.parquet: row 0: found 0 bytes, expected an image"),
    "eps": (TRAIN | {"image": [EPS, *CELLS[1:]]}, f"train.parquet: row 0: {UNREADABLE}of no known format)"),
    "eps in iptc": (TRAIN | {"image": [IPTC, *CELLS[1:]]}, f"train.parquet: row 0: {UNREADABLE}of no known format)"),
    "169 million pixels": (
        TRAIN | {"image": [png_of_size(13_000, 13_000), *CELLS[1:]]},
        "row 0: found 13000x13000 pixels",
    ),
    "truncated image": (TRAIN | {"image": [CELLS[0][:100], *CELLS[1:]]}, f"row 0: {UNREADABLE}image file is truncated"),
    "several sizes": (
        TRAIN | {"image": [png(9, 20), *CELLS[1:]]},
        "row 1: found an image of (3, 12, 12), expected (3, 20",
    ),
    "lists as labels": (
        TRAIN | {"label": [[0]] * 8},
        "found labels of type list<element: int64>, expected whole numbers",
    ),
    "floats as labels": (
        TRAIN | {"label": [0.0, 1.0] * 4},
        "train.parquet: found labels of type double, expected whole",
    ),
    "no labels": (TRAIN | {"label": pa.nulls(8, pa.int64())}, "train.parquet: no image has a label"),
    "label 2^31": (
        TRAIN | {"label": [2**31] * 8},
        "found the label 2147483648, expected class numbers below 100000, or",
    ),
    "label -1": (TRAIN | {"label": [0, -1] * 4}, "train.parquet: row 1: found the label -1, expected one of 2 classes"),
    "names and numbers": (
        TRAIN | {"label": ["a", "b"] * 4},
        "found class numbers as labels in test.parquet and class names",
    ),
    "numbers as names": (TRAIN | {"file": range(8)}, f"train.parquet: column file: found 0, {FILE_NAME}"),
    "line break in a name": (
        TRAIN | {"file": [f"a\n{i}" for i in range(8)]},
        f"column file: found 'a\\n0', {FILE_NAME}",
    ),
    "long name": (TRAIN | {"file": ["é" * 130, *"abcdefg"]}, f"{FILE_NAME}"),
    "one name twice": (TRAIN | {"file": ["a"] * 8}, "1 names are those of several images: a"),
}


@pytest.mark.parametrize(("train", "sentence"), PARQUET.values(), ids=list(PARQUET))
def test_parquet_file_is_refused(here: Workspace, train: dict[str, Any] | bytes | None, sentence: str) -> None:
    labels = [0, 1] if sentence != PARQUET["no labels"][1] else pa.nulls(2, pa.int64())
    pq.write_table(pa.table({"image": [png(20), png(21)], "label": labels}), "test.parquet")
    if isinstance(train, bytes):
        Path("train.parquet").write_bytes(train)
    elif train is not None:
        pq.write_table(pa.table(train), "train.parquet")
    prepare_is_refused(here, {"name": "parquet", "train": ["train.parquet"], "test": ["test.parquet"]}, sentence)


METADATA = [
    ({"classes": "{"}, "train.parquet: metadata classes: found b'{', expected a JSON list of class names"),
    ({"classes": "3"}, "train.parquet: metadata classes: found 3, expected a JSON list of class names"),
    ({"classes": "[1, 2]"}, "train.parquet: metadata classes: found [1, 2], expected a JSON list of class names"),
    ({"classes": '["a", "a"]'}, "found the class 'a' twice, expected names that differ"),
    ({"classes": '["a", ""]'}, "found the class '', expected at most 200 characters"),
    ({"classes": '["a"]'}, "train.parquet: row 1: found the label 1, expected one of 1 classes"),
    ({"image_shape": '"x"'}, "metadata image_shape: found 'x', expected a JSON list of height, width and channels"),
]


@pytest.mark.parametrize(("metadata", "sentence"), METADATA)
def test_parquet_metadata_is_refused(here: Workspace, metadata: dict[str, str], sentence: str) -> None:
    pq.write_table(pa.table(TRAIN).replace_schema_metadata(metadata), "train.parquet")
    pq.write_table(pa.table({"image": [png(20), png(21)], "label": [0, 1]}), "test.parquet")
    prepare_is_refused(here, {"name": "parquet", "train": ["train.parquet"], "test": ["test.parquet"]}, sentence)


# ---- answers of people

ANSWERS = [
    ("", "found the columns of an empty file, expected label, with a comma between them"),
    ("file;label;id\na.jpg;cat;1", "found the columns file;label;id, expected label, with a comma between them"),
    ("name,label\na.jpg,cat", "found the columns name, label, expected file, label, id"),
    ("file,label,label\na.jpg,cat,dog", "found the column label more than once, expected it once"),
    ("file,label,id\na.jpg,cta,", "line 2: found the label 'cta'; did you mean cat?"),
    ("file,label,id\na.jpg,=cmd|'x'!A0,", "line 2: found the label \"=cmd|'x'!A0\"; expected one of cat, dog"),
    ("file,label,id\na.jpg,cat,first", "line 2: found the id 'first', expected a number"),
    (f"file,label,id\na.jpg,cat,{'9' * 5000}", "line 2: found the id '999"),
    ("file,label,id\na.jpg,cat,1.23E+999999999", "line 2: found the id '1.23E+999999999', expected a number"),
    (
        "file,label,id\nb.jpg,cat,1",
        "line 2: found id 1 and the file b.jpg, which is another image (id 2); expected one",
    ),
    ("file,label,id\n,cat,", "line 2: found the label 'cat', but neither a file nor an id"),
    ("file,label,id\na.jpg,cat,\na.jpg,dog,", "line 3: a.jpg is labelled dog, in line 2 cat; expected one label"),
    ("file,label,id\na.jpg,c\x1bt,", "line 2: found the label 'c\\x1bt'; did you mean cat?"),
]


@pytest.mark.parametrize(("text", "sentence"), ANSWERS)
def test_answer_sheet_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    write_columns([[1, 2], ["a.jpg", "b.jpg"]], FILES, tmp_path / "files.parquet")
    write_columns([[1, 2], ["hash", "hash"]], POOL, tmp_path / "pool.parquet")
    (tmp_path / "c1.csv").write_text(text)
    images = KnownImages(tmp_path / "files.parquet", tmp_path / "pool.parquet")
    assert_refused(
        lambda: refuse(read_sheet(tmp_path / "c1.csv", images, ["cat", "dog"]).problems), sentence, DataError
    )


# ---- tables, models and outputs of stages

Damage = Callable[[Path], None]


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """Replace a table by a changed one, as a program other than codline would write it."""

    def damage(path: Path) -> None:
        table = pq.read_table(path)
        pq.write_table(change(table).cast(table.schema), path)

    return damage


def set_last(column: str, value: Any) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        values = [*table[column].to_pylist()[:-1], value]
        index = table.column_names.index(column)
        return table.set_column(index, table.field(index), pa.array(values, table.field(index).type))

    return rewrite(change)


def set_weight(value: float) -> Damage:
    def damage(path: Path) -> None:
        tensors, meta = model_file.read_tensors(path)
        next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = value
        model_file.write_tensors(path, tensors, meta)

    return damage


def set_logit(value: float) -> Damage:
    """In the stored outputs; codline itself refuses to write it."""

    def damage(path: Path) -> None:
        table = pq.read_table(path)
        logits = table["logits"].combine_chunks()
        values = logits.values.to_numpy().copy()
        values[0] = value
        changed = pa.FixedSizeListArray.from_arrays(pa.array(values), type=table.schema.field("logits").type)
        pq.write_table(pa.table([table["id"].combine_chunks(), changed], schema=table.schema), path)

    return damage


twice = rewrite(lambda table: pa.concat_tables([table, table.slice(0, 1)]))
empty = rewrite(lambda table: table.slice(0, 0))
TWICE, EMPTY, FINITE = "occurs more than once", "has no rows, expected at least one", "not a finite number"
LABEL, LOGITS = "has label 10, expected 0 to 9", "has outputs that are not finite numbers"

CASES: list[tuple[str, str, Damage, str]] = [
    ("train", "labeled", twice, TWICE),
    ("train", "labeled", empty, EMPTY),
    ("train", "labeled", set_last("label", 10), LABEL),
    ("train", "labeled", set_last("label", -1), "has label -1, expected 0 to 9"),
    ("train", "pool", twice, TWICE),
    ("train", "pool", empty, EMPTY),
    ("train", "previous_model", set_weight(float("nan")), FINITE),
    ("train", "previous_auxiliary", set_weight(float("inf")), FINITE),
    ("score", "labeled", twice, TWICE),
    ("score", "labeled", set_last("label", 10), LABEL),
    ("score", "pool", empty, EMPTY),
    ("score", "model", set_weight(float("-inf")), FINITE),
    ("score", "previous_outputs", set_logit(float("nan")), LOGITS),
    ("select", "pool", empty, EMPTY),
    ("select", "scores", set_last("score", float("nan")), "has no score (NaN)"),
    ("annotate", "answers", set_last("label", 10), LABEL),
    ("annotate", "query", twice, TWICE),
    ("annotate", "query", empty, EMPTY),
    ("merge", "previous_labeled", twice, TWICE),
    ("merge", "previous_labeled", set_last("label", 10), LABEL),
    ("merge", "annotations", set_last("label", 10), LABEL),
    ("evaluate", "test", twice, TWICE),
    ("evaluate", "test", empty, EMPTY),
    ("evaluate", "test", set_last("label", 10), LABEL),
    ("evaluate", "model", set_weight(float("nan")), FINITE),
    ("diagnose", "oracle", set_last("label", 10), LABEL),
    ("diagnose", "scores", empty, EMPTY),
    ("diagnose", "scores", set_last("score", float("nan")), "has no score (NaN)"),
    ("diagnose", "model", set_weight(float("nan")), FINITE),
    ("diagnose", "outputs", set_logit(float("inf")), LOGITS),
]


@pytest.mark.parametrize(("stage", "argument", "damage", "problem"), CASES)
def test_stage_refuses_its_input(workspace: Workspace, stage: str, argument: str, damage: Damage, problem: str) -> None:
    path = workspace.path(stage, argument, "c2")
    damage(path)
    written = workspace.outputs(stage, "c2")
    for output in written:
        output.unlink()
    assert_refused(lambda: workspace.run(stage, "c2"), problem, DataError)
    assert not any(output.exists() for output in written)


def test_report_refuses_a_label_outside_the_classes(workspace: Workspace) -> None:
    set_last("label", 10)(workspace.path("annotate", "annotations", "c1"))
    with pytest.raises(DataError, match=r"^cycles/c1/annotations\.parquet: id \d+ has label 10, expected 0 to 9$"):
        workspace.run("report")


@pytest.mark.parametrize("stage", ["score", "evaluate"])
def test_stage_refuses_a_model_whose_outputs_overflow(workspace: Workspace, stage: str) -> None:
    """Finite weights may still give infinite outputs."""
    path = workspace.path(stage, "model", "c2")
    tensors, meta = model_file.read_tensors(path)
    for key, tensor in tensors.items():
        if key.endswith("weight"):
            tensor.fill_(1e30)
    model_file.write_tensors(path, tensors, meta)
    with pytest.raises(DataError, match="the model's outputs are not finite numbers"):
        workspace.run(stage, "c2")


def test_output_writer_refuses_what_half_precision_cannot_store(tmp_path: Path) -> None:
    dense = np.full((2, 3, 4, 4), 1e5, np.float32)
    with (
        pytest.raises(DataError, match="not finite, or too large to be stored"),
        output_store.output_writer(tmp_path / "outputs", (3, 4, 4), "c1") as write,
    ):
        write(np.arange(2), dense)
    assert not list(tmp_path.iterdir())


# ---- presets and studies

PRESETS = ["../../x", "", ".", "methods/paper", "/etc/passwd", "a\0b", "digits.yaml", "Digits ", "x" * 5000]
LAYERS = [
    ("", "found nothing, expected sections such as seed and train"),
    ("- 1", "found [1], expected sections such as seed and train"),
    ("about: 3", "about: found 3, expected a text"),
    ("about: x\nextend: [a]", "extend: unknown key; did you mean extends?"),
    ("about: x\nextends: a", "extends: found 'a', expected a list"),
    ("about: x\nextends: [../../etc/passwd]", "extends: unknown layer '../../etc/passwd'; expected top"),
    (f"about: x\nextends: [{LONG}]", "extends: unknown layer"),
    ("about: x\nextends: [top]", "extends: top -> top goes round in a circle"),
    ("about: x\nparams: 3", "params: found 3, expected keys beneath it"),
    ("about: x\nparams: {cycles: many}", "preset top: cycles: found 'many', expected a number of cycles"),
    ("about: x\nparams: {cycles: 0}", "cycles: found 0, expected 1 to 1000"),
    ("about: x\nparams: {cycles: 100000}", "cycles: found 100000, expected 1 to 1000"),
]


@pytest.mark.parametrize("name", PRESETS)
def test_preset_name_is_refused(name: str) -> None:
    sentence = f"preset: unknown preset {name!r}"
    assert_refused(
        lambda: presets.resolve(name, REPOSITORY / "presets"), sentence[:60].replace("\0", "\\x00"), UserError
    )


@pytest.mark.parametrize(("text", "sentence"), LAYERS)
def test_preset_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "top.yaml").write_text(text)
    assert_refused(lambda: presets.resolve("top", tmp_path), sentence, UserError)


ARM = "expected at most 100 characters, letters or digits among them, in one line"
AXES = "axes: {score.strategy.name: [random, entropy]}"
STUDIES = [
    ("seeds:", "sedes:", "studies/tiny.yaml: seeds: missing"),
    ("cycles: 2", "cycels: 2", "studies/tiny.yaml: cycels: unknown key; did you mean cycles?"),
    ("cycles: 2", "cycles: 0", "studies/tiny.yaml: cycles: found 0, expected more than 0"),
    ("cycles: 2", "cycles: 100000", "cycles: found 100000, expected 1 to 1000"),
    ("seeds: [0, 1]", "seeds: [0, 0]", "studies/tiny.yaml: seeds: found 0 twice"),
    ("seeds: [0, 1]", "seeds: []", "studies/tiny.yaml: seeds: found [], expected at least 1 of them"),
    ("seeds: [0, 1]", "seeds: [-1]", "studies/tiny.yaml: seeds.0: found -1, expected at least 0"),
    ("seeds: [0, 1]", "seeds: [0]\narms: {a: {}}", "studies/tiny.yaml: found both axes and arms, expected one"),
    (AXES, "", "studies/tiny.yaml: found neither axes nor arms"),
    (AXES, "axes: {train.epochs: 3}", "studies/tiny.yaml: axes.train.epochs: found 3, expected a list"),
    (
        AXES,
        f"axes: {{a: {[*range(99)]}, b: {[*range(99)]}}}",
        "studies/tiny.yaml: found 9801 arms, expected at most 1000",
    ),
    (AXES, "axes: {seed: [1, 2]}", "found the key seed in the arm 'seed 1', expected seeds for all arms"),
    (AXES, 'arms: {"": {}}', f"studies/tiny.yaml: arms: found the name '', {ARM}"),
    (AXES, 'arms: {"..": {}}', f"studies/tiny.yaml: arms: found the name '..', {ARM}"),
    (AXES, 'arms: {"b\\n": {}}', f"studies/tiny.yaml: arms: found the name 'b\\n', {ARM}"),
    (AXES, f"arms: {{{'a' * 300}: {{}}}}", "studies/tiny.yaml: arms: found the name 'aaa"),
    (AXES, "arms: {a b: {}, a-b: {}}", "studies/tiny.yaml: arms: found two whose names differ in punctuation alone"),
    (AXES, "arms: {1: {}}", "studies/tiny.yaml: arms.1: found 1, expected a text"),
    (AXES, "arms: {a: 3}", "studies/tiny.yaml: arms.a: found 3, expected keys beneath it"),
    ("title: Two", "reference: cod\ntitle: Two", "studies/tiny.yaml: reference: found 'cod'"),
    ("title: Two", "like: tiny\ntitle: Two", "studies/tiny.yaml: like: studies/tiny.yaml goes round in a circle"),
    ("title: Two", "like: ../../etc/passwd\ntitle: Two", "studies/../../etc/passwd.yaml: not found; expected tiny"),
    ("score.strategy", "scroe.strategy", "scroe.strategy.name: params.yaml has no 'scroe'; did you mean score"),
    ("name: tiny", "name: ../tiny", "studies/tiny.yaml: name: found '../tiny'"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), STUDIES)
def test_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("studies").mkdir()
    assert old in TINY
    Path("studies/tiny.yaml").write_text(TINY.replace(old, new))
    committed = (REPOSITORY / "params.yaml").read_text()

    def plan() -> None:
        study_grid.study_points(study_grid.read_study(study_grid.find_study("tiny")), committed, {})

    assert_refused(plan, sentence, UserError)


@pytest.mark.parametrize("name", ["tinny", "../tiny.yaml", "../../etc/passwd", "/etc/passwd.yaml", "", "a\0b", LONG])
def test_study_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("studies").mkdir()
    Path("studies/tiny.yaml").write_text(TINY)
    with pytest.raises(UserError) as refused:
        study_grid.find_study(name)
    assert str(refused.value).endswith(("not found; did you mean tiny?", "not found; expected tiny"))


# ---- the commands

OPTIONS = "Input should be greater than or equal to"  # Typer's own words, in a box
COMMANDS = [
    ("run -S train.epochs=[1", "-S train.epochs=[1: the value is not valid YAML", 2),
    ("run -S train={", "-S train={: the value is not valid YAML", 2),
    ("run -S seed", "-S seed: expected key=value, such as train.epochs=10", 2),
    (
        'run -S cycles={"c1;touch${IFS}x":{"prev":"init"}}',
        "cycles: found the name 'c1;touch${IFS}x', expected at most",
        2,
    ),
    ("run --timeout-minutes -1", OPTIONS, 2),
    ("run --cycles 0", OPTIONS, 2),
    ("run --seed -1", OPTIONS, 2),
    ("run --cycles 100000", "cycles: found 100000, expected 1 to 1000", 2),
    ("run --strategy entropi", "score.strategy.name: unknown strategy 'entropi'; did you mean entropy?", 2),
    ("run -S prepare.dataset={name:folder}", "prepare.dataset.name: missing; expected one of", 2),
    ("run -S prepare.dataset.name=folder -S prepare.dataset.path=nope", "nope: not found; prepare.dataset names it", 3),
    ("run -S prepare.dataset.name=folder -S prepare.dataset.path=pipes", "pipes/pipe: a pipe, socket or device", 3),
    ("preset ../../x", "preset: unknown preset '../../x'; expected one of", 2),
    ("study ../x.yaml", "../x.yaml: not found; expected one of", 2),
    ("query ../x", "cycle: found '../x'; expected one of c1", 2),
    ("export labels.txt", "found no data, expected a campaign that has begun", 2),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(REPOSITORY / name, root)
    for name in ("presets", "studies"):
        shutil.copytree(REPOSITORY / name, root / name)
    (root / "pipes").mkdir()
    os.mkfifo(root / "pipes/pipe")
    return root


def run_command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codline.cli.main", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "CODLINE_TRACKING": "off", "COLUMNS": "200"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("words", "sentence", "code"), COMMANDS)
def test_command_is_refused(project: Path, words: str, sentence: str, code: int) -> None:
    before = files_in(project)
    done = run_command(project, *words.split())
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert sentence == OPTIONS or (done.stderr.startswith("codline: ") and done.stderr.count("\n") == 1)
    assert files_in(project) == before
