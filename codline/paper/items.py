"""The figures and tables of the paper and its supplementary: what each shows, and which campaigns it needs.

To add one, add an Item and the function that draws it. An item names the paper's datasets and the arms of
protocols.yaml; protocols.yaml says what a campaign of them is at each scale.
"""

import re
from dataclasses import dataclass

from codline.core.errors import UserError
from codline.core.params_errors import format_value, suggestion

RIVALS = (
    "CoreGCN",
    "UncertainGCN",
    "SRAAL",
    "TA-VAAL",
    "VAAL",
    "LL4AL",
    "Core-set",
    "MC-Dropout",
)
OURS = ("Ours-Semi", "Ours-Task")
PAIRED = ("Ours-Task", "LL4AL", "VAAL", "Core-set", "Random")  # strategies with and without the unsupervised loss
PAIRED_WITH_LOSS = ("Ours-Semi", "LL4AL + L_U", "VAAL + L_U", "Core-set + L_U", "Random + L_U")
LAMBDAS = ("lambda 0.005", "lambda 0.01", "Ours-Semi", "lambda 0.1", "lambda 0.5")
ALPHAS = ("alpha 0.9", "alpha 0.99", "Ours-Semi", "alpha 0.9999")


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper."""

    name: str
    place: str  # where it is in the paper
    about: str
    draw: str = ""  # module of codline.paper and function, such as curves.classification; empty: a diagram
    datasets: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()

    @property
    def is_diagram(self) -> bool:
        return not self.draw


ITEMS = (
    Item(
        "gradient-norms",
        "Figure 1",
        "squared gradient norm of the outputs over the cycles",
        "losses.gradient_norms",
        ("cifar10", "cifar100"),
        ("TOD",),
    ),
    Item("sampler", "Figure 2", "diagram of sampling by COD; docs/method.md has ours"),
    Item(
        "cod-and-loss",
        "Figure 3",
        "mean COD and true loss of unlabelled images over cycles",
        "losses.cod_and_loss",
        ("cifar10", "cifar100"),
        ("Ours-Task",),
    ),
    Item("task-learning", "Figure 4", "diagram of the training; docs/method.md has ours"),
    Item(
        "loss-by-cod",
        "Figure 5",
        "mean true loss of unlabelled images by descending COD",
        "losses.loss_by_cod",
        ("cifar10", "cifar100"),
        ("Ours-Task",),
    ),
    Item(
        "capture",
        "Figure 6",
        "highest losses that COD and LL4AL find, on the same models",
        "losses.capture",
        ("cifar10", "cifar100"),
        ("LL4AL",),
    ),
    Item(
        "classification",
        "Figure 7",
        "learning curves of all methods on four datasets",
        "curves.classification",
        ("cifar10", "cifar100", "svhn", "caltech101"),
        (*OURS, *RIVALS, "Random", "Full Training"),
    ),
    Item(
        "forty-percent",
        "Table 1",
        "accuracy with 40%: rivals, and each half of the method",
        "curves.forty_percent",
        ("cifar10", "cifar100"),
        ("Core-set", "LL4AL", "VAAL", "SRAAL", "Random", "Random + L_U", "Ours-Task", "Ours-Semi"),
    ),
    Item(
        "segmentation",
        "Figure 8",
        "learning curves of all methods on Cityscapes",
        "curves.segmentation",
        ("cityscapes",),
        (*OURS, "VAAL", "QBC", "Core-set", "MC-Dropout", "Random"),
    ),
    Item(
        "sampling",
        "Figure 9",
        "ablation of the sampling: COD, EMAOD, LL4AL, random",
        "curves.sampling",
        ("cifar10", "cifar100"),
        ("Ours-Semi", "Ours-Task", "EMAOD", "LL4AL", "Random"),
    ),
    Item(
        "objectives",
        "Figure 10",
        "ablation of the loss: L_U, CyclicOD, LL4AL, none",
        "curves.objectives",
        ("cifar10", "cifar100"),
        ("Ours-Semi", "Random + L_U", "CyclicOD loss", "LL4AL loss", "Random"),
    ),
    Item(
        "class-iou",
        "Table 2",
        "IoU of each class with 40%, without and with L_U",
        "classes.class_iou",
        ("cityscapes",),
        ("Random", "Random + L_U"),
    ),
    Item(
        "per-class",
        "Figure 11",
        "accuracy of each class of CIFAR-10 over the cycles",
        "classes.per_class",
        ("cifar10",),
        ("Ours-Semi",),
    ),
    Item(
        "time",
        "Table 3",
        "seconds of one sampling, learning of extra models apart",
        "times.sampling_times",
        ("cifar10", "svhn", "caltech101"),
        ("Core-set", "VAAL", "LL4AL", "Ours-Task", "Random"),
    ),
    Item("proofs", "Supplementary, proofs", "the bounds of the proofs, checked numerically", "theory.bounds"),
    Item("datasets", "Table 4", "the datasets, as the presets have them", "settings.datasets"),
    Item("settings", "Table 5", "the implementation details, as the presets have them", "settings.details"),
    Item(
        "hyper-parameters",
        "Figure 12",
        "accuracy against weight and decay of L_U",
        "curves.hyper_parameters",
        ("cifar100",),
        (*LAMBDAS, *(arm for arm in ALPHAS if arm not in LAMBDAS)),
    ),
    Item(
        "strategies",
        "Figure 13",
        "strategies without and with L_U on three datasets",
        "curves.strategies",
        ("cifar10", "cifar100", "svhn"),
        (*PAIRED, *PAIRED_WITH_LOSS),
    ),
    Item(
        "tod-steps",
        "Figure 14",
        "highest losses that TOD finds, by its number of steps",
        "losses.tod_steps",
        ("cifar10", "cifar100"),
        ("TOD",),
    ),
)


def find_item(name: str) -> Item:
    """An item by its name or its place in the paper (`figure-7`, `Table 1`)."""
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower())
    for item in ITEMS:
        if wanted in (item.name, item.place.lower().replace(" ", "-")):
            return item
    names = [item.name for item in ITEMS]
    raise UserError(f"paper: unknown item {format_value(name)}{suggestion(wanted, names)}")
