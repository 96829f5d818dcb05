"""evaluate: this cycle's model on the test split -> metrics, and what it said of every test image."""

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from codline import dataset as datasets, images as image_store, inference, metrics as measures, outputs as output_store, tables, weights
from codline.compute import configure
from codline.files import write_json
from codline.params import Compute, Section
from stages._cli import In, Out, run


class Params(Section):
    batch_size: PositiveInt
    calibration_bins: PositiveInt


def evaluate(params: Params, *, compute: Compute, cycle: str, images: In, dataset: In, test: In, model: In, metrics: Out, predictions: Out) -> None:
    device = configure(compute)
    facts = datasets.opened(dataset)
    network, card = weights.load_network(model, classes=len(facts.classes), shape=facts.shape)
    truth = tables.read(test, tables.TEST)
    ids, labels = truth["id"].to_numpy(), truth["label"].to_numpy()
    normalize = inference.Normalize(facts.mean, facts.std, device)
    chunks = inference.logits(network.to(device), image_store.opened(images).take, ids, normalize, params.batch_size)
    logits = np.concatenate([logits for _, logits in chunks])
    write_json(metrics, {"labels": card.labels} | measures.classification(logits, labels, facts.classes, params.calibration_bins))
    probs = output_store.softmax(logits)
    names = np.array(facts.classes)
    columns = [ids, names[labels], names[probs.argmax(1)], probs.max(1)]
    tables.write_csv(pa.table(columns, schema=tables.PREDICTIONS), tables.PREDICTIONS, predictions)


if __name__ == "__main__":
    run(evaluate)
