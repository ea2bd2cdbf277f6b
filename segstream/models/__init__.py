"""Networks that segment: an encoder and a decoder from a library, and a head that grows."""

from segstream.models.features import FeatureCache
from segstream.models.head import Head
from segstream.models.segmenter import Segmenter
from segstream.models.weights import WeightsReport

__all__ = ["FeatureCache", "Head", "Segmenter", "WeightsReport"]
