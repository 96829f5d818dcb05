"""Acquisition strategies. To add one, write its module and add its class to a union below."""

from typing import Annotated

from pydantic import Field

from codline.strategies.baal import Baal
from codline.strategies.badge import Badge
from codline.strategies.bald import Bald
from codline.strategies.cod import Cod
from codline.strategies.cod_diverse import CodDiverse
from codline.strategies.core_gcn import CoreGcn
from codline.strategies.core_set import CoreSet
from codline.strategies.emaod import Emaod
from codline.strategies.entropy import Entropy
from codline.strategies.feature_dropout import FeatureDropout
from codline.strategies.least_confidence import LeastConfidence
from codline.strategies.ll4al import Ll4al
from codline.strategies.margin import Margin
from codline.strategies.mc_dropout import McDropout
from codline.strategies.prob_cover import ProbCover
from codline.strategies.qbc import Qbc
from codline.strategies.random import Random
from codline.strategies.scikit_activeml import ScikitActiveml
from codline.strategies.snapshot_committee import SnapshotCommittee
from codline.strategies.sraal import Sraal
from codline.strategies.ta_vaal import TaVaal
from codline.strategies.tod import Tod
from codline.strategies.true_loss import TrueLoss
from codline.strategies.typiclust import Typiclust
from codline.strategies.uncertain_gcn import UncertainGcn
from codline.strategies.vaal import Vaal

Sampling = McDropout | Bald | FeatureDropout | Qbc | SnapshotCommittee  # several predictions for each image
Scoring = Cod | Emaod | Tod | Random | Entropy | Margin | LeastConfidence | Sampling
Diversity = CoreSet | Badge | Typiclust | ProbCover | CodDiverse
Learned = Ll4al | Vaal | Sraal | TaVaal | UncertainGcn | CoreGcn
Library = ScikitActiveml | Baal
AnyStrategy = Annotated[Scoring | Diversity | Learned | Library | TrueLoss, Field(discriminator="name")]
