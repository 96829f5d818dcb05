"""Records the golden results, after a change of numbers: run the demo, then `python tests/golden/record.py`.

Commit dvc.lock, docs/recorded-machine.json and the files in tests/golden together.
"""

import json
import subprocess
import sys
from pathlib import Path

from codline.cli.doctor import output_hashes
from codline.data import tables
from codline.runtime.pipeline import Pipeline

pipeline = Pipeline()
ids = {
    cycle: tables.read_table(pipeline.path("select", "query", cycle), tables.QUERY)["id"].to_pylist()
    for cycle in pipeline.queries
}
locked = output_hashes(Path("dvc.lock").read_text(encoding="utf-8"))
lines = ",\n".join(f'    "{cycle}": {json.dumps(row)}' for cycle, row in ids.items())
md5 = json.dumps({cycle: locked[f"cycles/{cycle}/query.parquet"] for cycle in ids})
Path(__file__).with_name("queries.json").write_text(f'{{\n  "ids": {{\n{lines}\n  }},\n  "md5": {md5}\n}}\n')
diagnostics = {
    cycle: json.loads(pipeline.path("diagnose", "diagnostics", cycle).read_text(encoding="utf-8"))
    for cycle in pipeline.queries
}
lines = ",\n".join(f'  "{cycle}": {json.dumps(row)}' for cycle, row in diagnostics.items())
Path(__file__).with_name("diagnostics.json").write_text(f"{{\n{lines}\n}}\n")
subprocess.run([sys.executable, "-m", "codline.cli.doctor", "--record"], check=True)
