"""The address of MLflow."""

import pytest

from codline.tracking.address import tracking_uri, unreachable


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_postgres_gets_the_driver_that_is_installed(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}://me:s3cret@host:5432/mlflow?sslmode=require")
    assert tracking_uri() == "postgresql+psycopg2://me:s3cret@host:5432/mlflow?sslmode=require"
    assert "s3cret" not in str(unreachable("refused"))


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:5000", "sqlite:///mlflow.db", "postgresql+psycopg://host/mlflow"]
)
def test_other_addresses_stay_as_they_are(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert tracking_uri() == address
