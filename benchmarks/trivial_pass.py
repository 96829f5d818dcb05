"""The stage score without networks and images: a trivial model in worker processes gives the outputs."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from benchmarks.stand_in import CLASSES, chunk_slices, configure_nothing, trivial_model
from codline.data import output_store
from codline.data.score_table import write_scores
from codline.engine.local_workers import compute_in_order
from codline.learning.inference import BatchOutputs
from codline.scoring.context import ScoringContext
from codline.scoring.networks import ScoringNetworks
from codline.scoring.scorers import Scorer
from codline.strategies.margin import Margin

CHUNK_ROWS = 2048  # of a pass with batches of 512


def score_rows(rows: int, workers: int) -> dict[str, int]:
    """What score does apart from images and networks; returns the bytes that it wrote."""
    networks = ScoringNetworks(cast(Any, None), {}, None, first_cycle=False, image_shape=(1, 1, 1))
    context = ScoringContext(networks, cast(Any, None), np.arange(rows), None, None, seed=0, cycle="c1")
    scorer = Scorer(Margin(), context)
    chunks = (context.scored_ids[chunk] for chunk in chunk_slices(rows, CHUNK_ROWS))
    with TemporaryDirectory(prefix="codline-benchmark-") as folder:
        outputs, scores = Path(folder, "outputs.parquet"), Path(folder, "scores.parquet")

        def write_outputs() -> Iterator[BatchOutputs]:
            with (
                output_store.output_writer(outputs, (CLASSES,), "c1") as write,
                closing(compute_in_order(workers, configure_nothing, trivial_model, chunks)) as results,
            ):
                for ids, logits in results:
                    write(ids, logits)
                    yield BatchOutputs(ids, [logits])

        write_scores(scorer.scores(write_outputs()), scores, ranks_pool=True)
        return {path.name: path.stat().st_size for path in (outputs, scores)}
