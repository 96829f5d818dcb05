"""A Prefect work pool: what a deployment to it needs, and flow runs that its workers start again if one is lost."""

import re
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType, WorkerStatus
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

from codline.core.errors import InfrastructureError, UserError
from codline.orchestration.worktrees import git, head_commit, require_committed_code

REMOTE_CAMPAIGN = "remote-campaign"  # the flow that is deployed
HEARTBEAT_SECONDS = 30  # the least that Prefect accepts
SILENT_SECONDS = 75  # without a heartbeat, after which a flow run is started again
HEARTBEAT = "prefect.flow-run.heartbeat"
ENDED = {f"prefect.flow-run.{state}" for state in ("Completed", "WaitingForPeople", "Failed", "Cancelled")}


class CommittedCode(NamedTuple):
    """A commit, and the address of a git repository that has it."""

    repository: str
    commit: str


def pushed_code() -> CommittedCode:
    """The last commit; refused unless the remote that workers clone from has it."""
    require_committed_code()
    commit, remotes = head_commit(), git("remote").split()
    if not remotes:
        raise UserError("git has no remote from which a worker could clone this repository; git remote add origin URL")
    holders = [line.strip().partition("/")[0] for line in git("branch", "--remotes", "--contains", commit).splitlines()]
    if not holders:
        raise UserError(f"commit {commit[:10]} is on no branch of {remotes[0]}, so no worker can clone it; git push")
    repository = git("remote", "get-url", holders[0]).strip()
    if urlsplit(repository).password:
        found = f"the address of the git remote {holders[0]} contains a password, which Prefect would show"
        raise UserError(f"{found}; take it out: workers use their own credentials")
    return CommittedCode(repository, commit)


def check_pool(pool: str) -> None:
    """Refuse a work pool that does not exist or takes no runs."""
    with get_client(sync_client=True) as client:
        try:
            found = client.read_work_pool(pool)
        except ObjectNotFound as error:
            names = ", ".join(sorted(each.name for each in client.read_work_pools())) or "none"
            make = f"prefect work-pool create --type process {pool}"
            raise UserError(f"work pool {pool}: not found at {client.api_url}, which has {names}; {make}") from error
        if found.type != "process":
            raise UserError(f"work pool {pool}: found type {found.type}, expected process: its workers have codline")
        if found.is_paused:
            raise InfrastructureError(f"work pool {pool} is paused; prefect work-pool resume {pool}")


def require_worker(pool: str) -> None:
    with get_client(sync_client=True) as client:
        if not has_worker(client, pool):
            raise InfrastructureError(no_worker(pool))


def has_worker(client: SyncPrefectClient, pool: str) -> bool:
    return any(worker.status == WorkerStatus.ONLINE for worker in client.read_workers_for_work_pool(pool))


def no_worker(pool: str) -> str:
    return f"no worker polls the work pool {pool}; prefect worker start --pool {pool}, on a machine with codline"


def deployment_name(pool: str, code: CommittedCode) -> str:
    """A deployment belongs to one commit: with another one under its name, waiting runs would change their code."""
    return f"{re.sub('[/%&><]', '-', pool)}-{code.commit[:10]}"


def restart_lost_runs(deployment: UUID, name: str) -> None:
    """Have Prefect's server start a run of the deployment again if its process died or its machine was lost.

    Either ends its heartbeats. A run that crashed before its first one, because its code could not be cloned, stays so.
    """
    owner = f"prefect.deployment.{deployment}"  # applying the deployment again removes what it owns
    silence = EventTrigger(
        after={HEARTBEAT},
        expect={HEARTBEAT} | ENDED,
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related={"prefect.resource.id": owner},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    )
    start = ChangeFlowRunState(
        name="AwaitingRetry",
        state=StateType.SCHEDULED,
        force=True,
        message="its process was killed, or its machine has not been heard of",
    )
    rule = AutomationCore(name=f"lost runs of {name}", trigger=silence, actions=[start], owner_resource=owner)
    with get_client(sync_client=True) as client:
        client.create_automation(rule)
