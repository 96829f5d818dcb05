"""dvc.lock has the text that DVC itself would write."""

from copy import deepcopy
from typing import Any

import pytest
from dvc.utils.serialize import dumps_yaml
from hypothesis import given, strategies as st
from ruamel.yaml import YAML

from codline.orchestration import dvc_lock
from tests.workspace import REPOSITORY

COMMITTED = (REPOSITORY / "dvc.lock").read_text(encoding="utf-8")
ENTRIES: dict[str, Any] = YAML(typ="safe").load(COMMITTED)["stages"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(sorted(ENTRIES)), st.sampled_from(sorted(ENTRIES))), min_size=1, max_size=6))
def test_replace_entry_gives_the_text_that_dvc_would_write(replacements: list[tuple[str, str]]) -> None:
    text, data = dvc_lock.HEAD, {}
    for name, content in replacements:
        text = dvc_lock.replace_entry(text, {name: ENTRIES[content]})
        data[name] = deepcopy(ENTRIES[content])  # one object named twice would be dumped as an alias
    assert text == dumps_yaml({"schema": "2.0", "stages": data})


def test_replace_entry_with_the_same_entry_changes_nothing() -> None:
    for name, entry in ENTRIES.items():
        assert dvc_lock.replace_entry(COMMITTED, {name: entry}) == COMMITTED
