"""Pictures with labels: where they come from, in which order, and what of their labels is shown."""

from segstream.data.scenario import Scenario
from segstream.data.source import Cached, DataError, Resized, Source, Splits, Subset, hold_back
from segstream.data.stream import Repeated, Stream
from segstream.data.views import BaseSet, JointSet, PartlyLabelled, SampleSet, TestSet
from segstream.data.wrap import wrap

__all__ = [
    "BaseSet",
    "Cached",
    "DataError",
    "JointSet",
    "PartlyLabelled",
    "Repeated",
    "Resized",
    "SampleSet",
    "Scenario",
    "Source",
    "Splits",
    "Stream",
    "Subset",
    "TestSet",
    "hold_back",
    "wrap",
]
