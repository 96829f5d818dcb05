"""The Prefect profile of this workspace, .prefect/profiles.toml: address and secret of its server.

prefect.toml names this file, so that plain `prefect` commands use it too. Only its owner can read it.
"""

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from codline.core.errors import StorageError
from codline.core.files import atomic_write

HOME = Path(".prefect")  # as in prefect.toml
PROFILES = HOME / "profiles.toml"
NAME = "codline"


@dataclass(frozen=True)
class ServerAccess:
    """Address of a Prefect API, and the secret that it demands; empty if none is known."""

    url: str
    secret: str = field(repr=False)


def make_private_home() -> None:
    try:
        HOME.mkdir(mode=0o700, exist_ok=True)
        HOME.chmod(0o700)  # an older version may have made it
    except OSError as error:
        raise StorageError(f"{HOME}: cannot be used ({error.strerror}); it must be a directory of your own") from error


def read_access() -> ServerAccess:
    """What the profile says; the server need not be running."""
    profile = read_profiles().get("profiles", {}).get(NAME, {})
    return ServerAccess(profile.get("PREFECT_API_URL", ""), profile.get("PREFECT_API_AUTH_STRING", ""))


def read_profiles() -> dict[str, dict[str, dict[str, str]]]:
    try:
        return tomllib.loads(PROFILES.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def write_access(access: ServerAccess) -> None:
    """Replace the profile; settings that `prefect config set` has added stay. Called by the server alone."""
    import tomlkit

    profiles = read_profiles()
    profile = profiles.setdefault("profiles", {}).setdefault(NAME, {})
    profile |= {"PREFECT_API_URL": access.url, "PREFECT_API_AUTH_STRING": access.secret}
    with atomic_write(PROFILES, durable=False) as part:
        part.unlink(missing_ok=True)
        # Created with its mode: a file that is narrowed afterwards can be opened before.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps({"active": NAME} | profiles))
