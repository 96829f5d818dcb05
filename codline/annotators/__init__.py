"""The annotators. To add one: write its file, and its class into this union."""

from codline.annotators.simulated import Simulated

AnyAnnotator = Simulated
