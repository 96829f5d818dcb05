"""prepare: a dataset becomes the image store, the pool, the splits, the first labels and an untrained model."""

from codline.core.params import AmountOrAll, AmountOrNone, Compute, Section, check_inputs
from codline.data.dataset_info import read_dataset_info
from codline.data.ingest import store_dataset
from codline.data.input_files import check_manifests
from codline.data.output_store import output_writer
from codline.data.random_streams import derive_seed, generator
from codline.datasets import AnyDataset
from codline.models import AnyModel
from stages.runner import In, Out, run

BATCH_PIXELS = 2**16  # of the untrained model's pass: larger batches are not faster on a CPU, but need more memory


class Params(Section):
    dataset: AnyDataset
    start: AmountOrAll  # how many images are labeled initially
    # How many of the labeled images outside the test split are never trained on, for whatever is chosen by a number.
    validation: AmountOrNone
    model: AnyModel


def prepare(
    params: Params, *, seed: int, compute: Compute, inputs: dict[str, str], manifests: In, images: Out, dataset: Out,
    files: Out, pool: Out, oracle: Out, validation: Out, test: Out, labeled: Out,
    model: Out, auxiliary: Out, outputs: Out,
) -> None:  # fmt: skip
    from codline.learning import auxiliary_networks, model_file
    from codline.learning.compute import configure
    from codline.learning.image_reader import ImageReader

    check_inputs(inputs, params.dataset.input_paths())
    device = configure(compute)
    params.model.check_task(params.dataset.name, params.dataset.task)
    paths = {"images": images, "dataset": dataset, "files": files, "pool": pool, "oracle": oracle,
             "validation": validation, "test": test, "labeled": labeled}  # fmt: skip
    # The loaded dataset is not bound to a name, so that its memory is free when the network runs.
    unlabeled = store_dataset(
        params.dataset.load(generator(seed, "test")), params.dataset.task,
        params.start, params.validation, seed, **paths,
    )  # fmt: skip
    check_manifests(inputs, manifests)  # once everything has been read, so that scan and prepare have read the same
    info = read_dataset_info(dataset)
    classes, (_, height, width) = len(info.classes), info.shape
    network = params.model.initial_network(classes, info.shape, derive_seed(seed, "init")).to(device)
    card = model_file.ModelCard(params.model.model_dump(), classes, info.shape, cycle="init", labels=0)
    model_file.save_network(model, network, card)
    auxiliary_networks.write_auxiliary(auxiliary, "init", {})
    reader = ImageReader(images, info, compute, batch_size=max(8, min(512, BATCH_PIXELS // (height * width))))
    with output_writer(outputs, info.output_shape, "init") as write:
        for batch in reader.stream_logits(network, unlabeled, subsample=True):
            write(*batch)


if __name__ == "__main__":
    run(prepare)
