"""Attacks on the servers of `codline ui`, which are real and running: by web pages, and by other users of the machine.

docs/security.md has the table of them.
"""

import base64
import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.project import Project, clone_with_small_campaign, running_commands
from tests.workspace import REPOSITORY

pytestmark = pytest.mark.slow

EVIL = "http://evil.test"
RUN = "/api/deployments/00000000-0000-0000-0000-000000000000/create_flow_run"
SEARCH = "/ajax-api/2.0/mlflow/experiments/search"
NOBODY = 65534


@dataclass(frozen=True)
class Servers:
    project: Project
    prefect: int  # ports
    mlflow: int
    secret: str
    token: str

    def basic(self, secret: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"codline-{self.mlflow}={self.token}"}


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # so that other users see the workspace
        project = clone_with_small_campaign(Path(directory) / "codline").without_given_server()
        with running_pages(project) as (mlflow, prefect):
            one, two = urlsplit(mlflow), urlsplit(prefect)
            yield Servers(project, two.port or 0, one.port or 0, two.fragment, parse_qs(one.query)["token"][0])


@contextmanager
def running_pages(project: Project) -> Iterator[list[str]]:
    process = project.start("codline", "ui")
    try:
        while "Ctrl-C stops both" not in project.output:
            assert process.poll() is None, project.output
            time.sleep(0.1)
        yield re.findall(r"http://\S+", project.output)
    finally:
        process.terminate()
        process.wait(30)


def send(
    port: int, path: str, method: str = "GET", body: str = "", **headers: str
) -> tuple[int, http.client.HTTPMessage]:
    """Send exactly these headers; `Host` is this server's unless it is given. Header names have _ for -."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"127.0.0.1:{port}"} | headers).items():
            connection.putheader(name.replace("_", "-"), value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode())
        reply = connection.getresponse()
        return reply.status, reply.headers


def test_owner_gets_in(servers: Servers) -> None:
    for host in ("127.0.0.1", "localhost"):
        own = {"Host": f"{host}:{servers.prefect}", "Origin": f"http://{host}:{servers.prefect}"}
        assert send(servers.prefect, "/api/admin/version", **servers.basic(servers.secret), **own)[0] == 200
        own = {"Host": f"{host}:{servers.mlflow}", "Origin": f"http://{host}:{servers.mlflow}"}
        search = json.dumps({"max_results": 1})
        json_type = {"Content_Type": "application/json"}
        assert send(servers.mlflow, SEARCH, "POST", search, **json_type, **servers.cookie, **own)[0] == 200
    status, headers = send(servers.mlflow, f"/open?token={servers.token}")
    assert (status, headers["Set-Cookie"]) == (
        200,
        f"codline-{servers.mlflow}={servers.token}; HttpOnly; Path=/; SameSite=strict",
    )


READ_WORK_POOLS = """
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    print(client.api_url, client.read_work_pools())
"""


def test_prefect_s_own_client_finds_address_and_secret_in_the_workspace(servers: Servers) -> None:
    said = servers.project.must("python", "-c", READ_WORK_POOLS)
    assert said == f"http://127.0.0.1:{servers.prefect}/api/ []\n"


FOREIGN_ORIGINS = (EVIL, "null", "https://127.0.0.1", "http://127.0.0.1:1", "http://localhost:{port}")


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_page_of_another_site_is_refused_even_with_the_secret(servers: Servers, origin: str) -> None:
    for port, path, secret in (
        (servers.prefect, RUN, servers.basic(servers.secret)),
        (servers.mlflow, SEARCH, servers.cookie),
    ):
        foreign = {"Origin": origin.format(port=port)}
        simple = {"Content_Type": "text/plain"}
        assert send(port, path, "POST", "{}", **foreign, **simple)[0] == 403
        assert send(port, path, "POST", "{}", **foreign, **simple, **secret)[0] == 403
        assert send(port, path, "GET", **foreign, **secret)[0] == 403
        asked = {"Access_Control_Request_Method": "PATCH", "Access_Control_Request_Headers": "authorization"}
        status, headers = send(port, path, "OPTIONS", **foreign, **asked)
        assert status == 403
        assert not [name for name in headers if name.lower().startswith("access-control")]


FOREIGN_HOSTS = ("evil.test", "evil.test:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.test:{port}", "")


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_host_name_that_is_made_to_resolve_to_this_machine_is_refused(servers: Servers, host: str) -> None:
    for port, path, secret in (
        (servers.prefect, "/api/admin/version", servers.basic(servers.secret)),
        (servers.prefect, "/api/health", {}),
        (servers.prefect, "/open", {}),
        (servers.mlflow, "/", servers.cookie),
        (servers.mlflow, "/health", {}),
        (servers.mlflow, f"/open?token={servers.token}", {}),
    ):
        assert send(port, path, **secret, Host=host.format(port=port))[0] == 421


PREFECT_PATHS = (
    "/api/admin/settings",
    "/api/version",
    "/api/docs",
    "/api/openapi.json",
    "/api/deployments/name/x/health",
    "/api/deployments/name/x/ready",
    "/api/variables/name/system-health",
    "/api/health/../admin/settings",
    "/api//health",
    "/api/health/",
    "/api/static/prefect-logo-mark-gradient.png",
)


@pytest.mark.parametrize("path", PREFECT_PATHS)
def test_prefect_demands_the_secret(servers: Servers, path: str) -> None:
    assert send(servers.prefect, path)[0] == 401
    assert send(servers.prefect, path, **servers.basic("wrong"))[0] == 401
    assert send(servers.prefect, path, **servers.basic(""))[0] == 401
    assert send(servers.prefect, path, Authorization=f"Bearer {servers.secret}")[0] == 401


@pytest.mark.parametrize("path", [RUN, "/api/flow_runs/filter", "/api/health", "/api/ready"])
def test_prefect_demands_the_secret_for_every_change(servers: Servers, path: str) -> None:
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        assert send(servers.prefect, path, "POST", "{}", Content_Type=kind)[0] == 401
    for method in ("PATCH", "DELETE", "PUT"):
        assert send(servers.prefect, path, method, "{}", **servers.basic("wrong"))[0] == 401


def test_prefect_tells_without_the_secret_only_that_it_runs(servers: Servers) -> None:
    assert [send(servers.prefect, path)[0] for path in ("/api/health", "/api/ready")] == [200, 200]
    assert [send(servers.prefect, path)[0] for path in ("/docs", "/redoc", "/openapi.json")] == [404, 404, 404]


def test_no_page_of_another_site_can_frame_the_servers(servers: Servers) -> None:
    for port, path in ((servers.prefect, "/"), (servers.prefect, "/open"), (servers.mlflow, "/")):
        assert send(port, path, **servers.cookie)[1]["Content-Security-Policy"] == "frame-ancestors 'self'"


@pytest.mark.parametrize("path", ["/", SEARCH, "/health", "/version", "/open", "/static-files/index.html"])
def test_mlflow_demands_the_cookie(servers: Servers, path: str) -> None:
    for wrong in ({}, {"Cookie": f"codline-{servers.mlflow}=wrong"}, {"Cookie": f"codline-1={servers.token}"}):
        for method in ("GET", "POST", "DELETE"):
            assert send(servers.mlflow, path, method, **wrong)[0] == 401
    for token in ("wrong", "", servers.secret, "%C3%A4"):
        assert send(servers.mlflow, f"/open?token={token}")[0] == 401


SOCKETS = (
    "/api/events/in",
    "/api/events/out",
    "/api/logs/out",
    "/api/task_runs/subscriptions/scheduled",
    "/api/work_pools/local/workers/connect",
)


@pytest.mark.parametrize("path", SOCKETS)
def test_websocket_demands_the_secret_and_refuses_other_sites(servers: Servers, path: str) -> None:
    address, prefect = f"ws://127.0.0.1:{servers.prefect}{path}", [Subprotocol("prefect")]
    for origin in (EVIL, "null"):
        with pytest.raises(InvalidStatus) as refused, connect(address, origin=Origin(origin), subprotocols=prefect):
            pass
        assert refused.value.response.status_code == 403
    rebound = socket.create_connection(("127.0.0.1", servers.prefect))
    evil = address.replace("127.0.0.1", "evil.test")
    with pytest.raises(InvalidStatus) as refused, connect(evil, sock=rebound, subprotocols=prefect):
        pass
    assert refused.value.response.status_code == 421
    with pytest.raises(InvalidStatus) as refused, connect(address):  # without the handshake that has the secret
        pass
    assert refused.value.response.status_code == 403
    for message in ({"type": "auth"}, {"type": "auth", "token": "wrong"}, {"type": "filter"}):
        with pytest.raises(ConnectionClosedError) as closed, connect(address, subprotocols=prefect) as websocket:
            websocket.send(json.dumps(message))
            websocket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    with connect(address, subprotocols=prefect) as websocket:
        websocket.send(json.dumps({"type": "auth", "token": servers.secret}))
        assert json.loads(websocket.recv(timeout=20)) == {"type": "auth_success"}


def test_secrets_are_in_no_command_line_and_no_log(servers: Servers) -> None:
    root = servers.project.root
    logs = [path.read_text(errors="replace") for path in root.glob(".*/*.log")]
    assert len(logs) >= 2
    for text in (*running_commands(root), *logs):
        assert servers.secret not in text
        assert servers.token not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_this_machine_reads_neither_files_nor_environments(servers: Servers) -> None:
    root = servers.project.root

    def read(path: str | Path) -> tuple[int, bytes]:
        command = ["cat", str(path)]
        done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)
        return done.returncode, done.stdout

    assert read(root / "prefect.toml")[1] == (REPOSITORY / "prefect.toml").read_bytes()
    for path in (".prefect/profiles.toml", ".prefect/prefect.db", ".prefect/server.lock"):
        assert (root / path).exists()
        assert read(root / path) == (1, b"")
    processes = [path for path in Path("/proc").glob("[0-9]*") if is_in(path, root)]
    assert len(processes) >= 3
    assert {read(process / "environ") for process in processes} == {(1, b"")}


def is_in(process: Path, root: Path) -> bool:
    try:
        return (process / "cwd").readlink() == root
    except OSError:
        return False
