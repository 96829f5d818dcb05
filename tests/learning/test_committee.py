"""The committee: networks trained independently of the model, exactly resumed, continued in the next cycle."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from codline.data import tables
from codline.data.dataset_info import read_dataset_info
from codline.data.image_store import open_image_store
from codline.learning import checkpoints, model_file
from codline.learning.auxiliary_networks import load_auxiliary_network, read_auxiliary
from codline.learning.checkpoints import Checkpoint
from codline.learning.fit import TrainingState
from codline.learning.inference import Normalize
from codline.learning.model_file import tensors_under
from codline.models.networks.network import Network
from codline.models.small_cnn import SmallCnn
from tests.workspace import Workspace

SHAPE = (1, 8, 8)


class KilledError(Exception):
    pass


@pytest.fixture
def committee(workspace: Workspace) -> Workspace:
    """The small campaign at c2, with a committee of two besides the model; labels are those of the query of c1."""
    workspace.change(**{"train.committee": 2, "score.strategy": {"name": "qbc"}})
    for cycle in ("c1", "c2"):
        workspace.run("train", cycle)
    return workspace


def networks(workspace: Workspace, cycle: str) -> list[Network]:
    """The model and the members, in eval mode."""
    model, card = model_file.load_network(workspace.path("train", "model", cycle), classes=10, shape=SHAPE)
    auxiliary = read_auxiliary(workspace.path("train", "auxiliary", cycle))
    empty = [card.spec.uninitialized_network(10, SHAPE) for _ in range(2)]
    members = [load_auxiliary_network(network, f"member.{i}", auxiliary) for i, network in enumerate(empty, 1)]
    return [each.eval() for each in (model, *members)]


def stem(network: Network) -> torch.Tensor:
    return network.body.get_parameter("0.weight").detach()


def test_members_differ_from_the_model_which_is_the_same_as_without_a_committee(workspace: Workspace) -> None:
    alone = workspace.path("train", "model", "c1").read_bytes()
    workspace.change(**{"train.committee": 2})
    workspace.run("train", "c1")
    assert workspace.path("train", "model", "c1").read_bytes() == alone
    stems = [stem(network) for network in networks(workspace, "c1")]
    assert all(torch.dist(first, second) > 0.5 for first, second in zip(stems, [*stems[1:], stems[0]], strict=True))


@pytest.mark.parametrize("start_from", ["previous", "fresh"])
def test_members_continue_from_the_previous_cycle_like_the_model(committee: Workspace, start_from: str) -> None:
    committee.change(**{"train.start_from": start_from, "train.learning_rate": 1e-9})
    committee.run("train", "c2")
    before, after = (networks(committee, cycle) for cycle in ("c1", "c2"))
    continued = [torch.dist(stem(one), stem(two)) < 1e-4 for one, two in zip(before, after, strict=True)]
    assert continued == [start_from == "previous"] * 3
    if start_from == "fresh":
        committee.run("train", "c1")
        assert all(
            torch.dist(stem(one), stem(two)) < 1e-4 for one, two in zip(networks(committee, "c1"), after, strict=True)
        )


def test_members_have_objectives_of_their_own(committee: Workspace) -> None:
    auxiliary = read_auxiliary(committee.path("train", "auxiliary", "c2"))
    teachers = [tensors_under(f"{name}objective.ema.average.module", auxiliary) for name in ("", "member.1.")]
    assert teachers[0].keys() == teachers[1].keys() == SmallCnn(width=4).build(10, SHAPE).state_dict().keys()
    assert not torch.equal(teachers[0]["head.weight"], teachers[1]["head.weight"])


def test_train_killed_in_a_member_and_run_again_writes_the_same_bytes(committee: Workspace) -> None:
    outputs = committee.outputs("train", "c2")
    expected = [path.read_bytes() for path in outputs]
    shutil.rmtree(".codline/checkpoints")  # complete ones, which a stage discards only after DVC has its outputs
    written: list[str] = []
    write = Checkpoint.write

    def write_until_killed(self: Checkpoint, state: TrainingState) -> None:
        write(self, state)
        written.append(self.path.name)
        if written.count("member-2-last.checkpoint") == 2:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "INTERVAL_SECONDS", 0)
        patch.setattr(Checkpoint, "write", write_until_killed)
        with pytest.raises(KilledError):
            committee.run("train", "c2")
        written.clear()
        torch.manual_seed(12345)
        committee.run("train", "c2")
    assert [path.read_bytes() for path in outputs] == expected
    assert written == ["member-2-last.checkpoint"]  # the last of three epochs; model and first member are complete


def test_discarding_the_checkpoint_discards_those_of_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path))
    checkpoint = Checkpoint([])
    for each in (checkpoint, checkpoint.of_member(1)):
        each.write(TrainingState(1, {"network.weight": torch.ones(2)}))
    assert len(list(tmp_path.rglob("*.checkpoint"))) == 2
    checkpoint.discard()
    assert not list(tmp_path.rglob("*.checkpoint"))


def test_qbc_scores_the_votes_of_the_model_and_the_members(committee: Workspace) -> None:
    committee.run("score", "c2")
    table = tables.read_table(committee.path("score", "scores", "c2"), tables.SCORES)
    pixels = open_image_store(committee.path("score", "images", "c2")).take(table["id"].to_numpy())
    info = read_dataset_info(committee.path("score", "dataset", "c2"))
    images = Normalize(info.mean, info.std, torch.device("cpu"))(torch.from_numpy(pixels))
    with torch.inference_mode():
        votes = np.stack([network(images).argmax(1).numpy() for network in networks(committee, "c2")])
    ratios = [1 - np.bincount(ballot).max() / 3 for ballot in votes.T]
    assert table["score"].to_pylist() == pytest.approx(ratios, abs=1e-5)
    assert len(set(ratios)) == 3
