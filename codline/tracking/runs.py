"""The runs of a campaign in MLflow: its own and one per cycle, found or created with names, times and descriptions."""

from collections.abc import Iterable

from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from codline.runtime import state_directory
from codline.tracking.campaign import TrackedCampaign
from codline.tracking.store import CAMPAIGN, CAMPAIGN_RUN, CYCLE, DATA, MlflowStore

DESCRIPTION = "mlflow.note.content"
CAMPAIGN_TEXT = """Campaign: all cycles of one params.yaml. Metrics are by number of labels.

Dataset {dataset}, strategy {strategy}, seed {seed}. `accuracy_low` and `accuracy_high` (of segmentation: `mean_iou_low`
and `mean_iou_high`) are a 95% interval; metrics that begin with `best_` are those of the model that validation images
choose, or of the last cycle if there are none.

To reproduce it, copy `params.yaml` from the artifacts of this run into a clone of the project and run `codline run`.
"""
CYCLE_TEXT = """Cycle {cycle} of the campaign {campaign}: a model trained on the labels so far, and its test metrics.

Dataset {dataset}, strategy {strategy}, seed {seed}. It lasts from the start of its training to the end of its last
stage. `accuracy_low` and `accuracy_high` (of segmentation: `mean_iou_low` and `mean_iou_high`) are a 95% interval.

To reproduce it, copy `params.yaml` from the artifacts of the campaign's run into a clone of the project and run
`codline run`, or `dvc repro evaluate@{cycle}` without Prefect.
"""


def current_runs(store: MlflowStore, campaign: TrackedCampaign) -> dict[str, Run]:
    """The campaign's runs. Those of other data are deleted: raw input can change under the same parameters."""
    runs = store.runs(campaign.key)
    if campaign.data.exists():
        for key in [key for key, run in runs.items() if run.data.tags.get(DATA) not in (None, campaign.data.digest)]:
            store.delete_run_and_models(runs.pop(key))
    return runs


def cycle_run(store: MlflowStore, campaign: TrackedCampaign, cycle: str) -> Run:
    """The run of this cycle, nested in that of the campaign; created if missing."""
    runs = current_runs(store, campaign)
    parent = campaign_run(store, campaign, runs)
    run = runs.get(cycle) or store.client.create_run(
        store.experiment,
        start_time=to_milliseconds(campaign.start(cycle)),
        run_name=campaign.name(cycle),
        tags=run_tags(campaign, CYCLE_TEXT, cycle) | {CYCLE: cycle, MLFLOW_PARENT_RUN_ID: parent.info.run_id},
    )
    write_run_note(store, campaign, cycle, run)
    return store.with_params(run, campaign.params | {"cycle": cycle})


def campaign_run(store: MlflowStore, campaign: TrackedCampaign, runs: dict[str, Run]) -> Run:
    run = runs.get(CAMPAIGN_RUN) or store.client.create_run(
        store.experiment,
        start_time=campaign_start(campaign, runs.values()),
        run_name=campaign.name(),
        tags=run_tags(campaign, CAMPAIGN_TEXT),
    )
    write_run_note(store, campaign, "campaign", run)
    return store.with_params(run, campaign.params)


def run_tags(campaign: TrackedCampaign, text: str, cycle: str = "") -> dict[str, str]:
    description = text.format(
        campaign=campaign.name(),
        cycle=cycle,
        dataset=campaign.dataset,
        strategy=campaign.identity.method,
        seed=campaign.identity.seed,
    )
    data = {DATA: campaign.data.digest} if campaign.data.exists() else {}
    return {CAMPAIGN: campaign.key, DESCRIPTION: description} | data


def write_run_note(store: MlflowStore, campaign: TrackedCampaign, name: str, run: Run) -> None:
    note = {"experiment": store.experiment, "run": run.info.run_id, "campaign": campaign.key}
    state_directory.write_note("runs", name, note)


def campaign_start(campaign: TrackedCampaign, cycles: Iterable[Run]) -> int | None:
    """The start of its first cycle, by the notes of the stages or in MLflow; None (now) if neither tells."""
    noted = (to_milliseconds(campaign.start(cycle)) for cycle in campaign.pipeline.cycles)
    first = next((start for start in noted if start is not None), None)
    known = [start for start in (first, *(run.info.start_time for run in cycles)) if start is not None]
    return min(known, default=None)


def cycle_end(campaign: TrackedCampaign, cycle: str, run: Run) -> int | None:
    """The end of its last stage. Stages that ran again later, with the same results, do not move it."""
    span = campaign.span(cycle)
    if span is None:
        return None
    ran_again = run.info.end_time is not None and run.info.end_time < span.start * 1000
    return run.info.end_time if ran_again else to_milliseconds(span.end)


def campaign_end(cycles: Iterable[Run]) -> int | None:
    return max((run.info.end_time for run in cycles if run.info.end_time is not None), default=None)


def to_milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
