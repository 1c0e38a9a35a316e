"""From files to batches: sources, preparation (one size, one intensity range), subsets, loader."""

from icone.data.cache import cache_folder
from icone.data.dataset import Dataset
from icone.data.identity import DIGEST_VERSION, DigestMemory, InstanceChange, compare_instances, file_digest
from icone.data.inspection import Facts, Inspection, Problem, inspect_source
from icone.data.labels import read_labels
from icone.data.loader import Batch, Loader, where_samples_are
from icone.data.loading import Data, load_data, load_for_inference
from icone.data.opening import open_source
from icone.data.preparation import Preparation
from icone.data.reading import check_outside
from icone.data.source import Sample, Source
from icone.data.subsets import imbalanced_subset, stratified_split, stratified_subset

__all__ = [
    "DIGEST_VERSION",
    "Batch",
    "Data",
    "Dataset",
    "DigestMemory",
    "Facts",
    "Inspection",
    "InstanceChange",
    "Loader",
    "Preparation",
    "Problem",
    "Sample",
    "Source",
    "cache_folder",
    "check_outside",
    "compare_instances",
    "file_digest",
    "imbalanced_subset",
    "inspect_source",
    "load_data",
    "load_for_inference",
    "open_source",
    "read_labels",
    "stratified_split",
    "stratified_subset",
    "where_samples_are",
]
