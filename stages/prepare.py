"""prepare: a dataset becomes the image store, the pool, the splits, the first labels and an untrained model."""

from codline.core.params import AmountOrAll, Compute, Section
from codline.data.dataset_info import read_dataset_info
from codline.data.image_store import open_image_store
from codline.data.ingest import store_dataset
from codline.data.output_store import output_writer
from codline.data.random_streams import derive_seed, generator
from codline.datasets import AnyDataset
from codline.learning import auxiliary_networks, inference, model_file
from codline.learning.compute import configure
from codline.models import AnyModel
from stages.runner import Out, run

BATCH_PIXELS = 2**16  # of the untrained model's pass: larger batches are not faster on a CPU, but need more memory


class Params(Section):
    dataset: AnyDataset
    start: AmountOrAll  # how many images are labeled initially
    model: AnyModel


def prepare(
    params: Params, *, seed: int, compute: Compute, images: Out, dataset: Out,
    pool: Out, oracle: Out, test: Out, labeled: Out, model: Out, auxiliary: Out, outputs: Out,
) -> None:  # fmt: skip
    device, rng = configure(compute), generator(seed, "split")
    params.model.check_task(params.dataset.name, params.dataset.task)
    files = {"images": images, "dataset": dataset, "pool": pool, "oracle": oracle, "test": test, "labeled": labeled}
    # The loaded dataset is not bound to a name, so that its memory is free when the network runs.
    unlabeled = store_dataset(params.dataset.load(rng), params.dataset.task, params.start, rng, **files)
    info = read_dataset_info(dataset)
    classes, (_, height, width) = len(info.classes), info.shape
    network = params.model.initial_network(classes, info.shape, derive_seed(seed, "init")).to(device)
    card = model_file.ModelCard(params.model.model_dump(), classes, info.shape, cycle="init", labels=0)
    model_file.save_network(model, network, card)
    auxiliary_networks.write_auxiliary(auxiliary, "init", {})
    take, normalize = open_image_store(images).take, inference.Normalize(info.mean, info.std, device)
    batch_size = max(8, min(512, BATCH_PIXELS // (height * width)))
    with output_writer(outputs, info.output_shape, "init") as write:
        for batch in inference.stream_logits(network, take, unlabeled, normalize, batch_size, subsample=True):
            write(*batch)


if __name__ == "__main__":
    run(prepare)
