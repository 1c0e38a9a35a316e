"""From files to batches: sources, preparation (one size, intensities in [0, 1]), subsets, loader."""

from icone.data.cache import cache_folder
from icone.data.dataset import Dataset
from icone.data.draw import EarlierSplit
from icone.data.formats.base import Format, Header, Sample
from icone.data.formats.registry import register_format
from icone.data.identity import DIGEST_VERSION, DigestMemory, InstanceChange, compare_instances, file_digest
from icone.data.inspection import Facts, Inspection, Problem, inspect_source
from icone.data.labels import read_labels
from icone.data.load import Data, check_outside, inspect_data, load_data, load_for_inference
from icone.data.loader import Batch, Loader, larger_last_batch, where_samples_are
from icone.data.prepare import Preparation
from icone.data.sources.base import Source
from icone.data.sources.folder import read_sample
from icone.data.sources.registry import check_path, open_source
from icone.data.splits import (
    grouped_share,
    grouped_split,
    imbalanced_subset,
    stratified_share,
    stratified_split,
    stratified_subset,
)
from icone.data.summary import Summary

__all__ = [
    "DIGEST_VERSION",
    "Batch",
    "Data",
    "Dataset",
    "DigestMemory",
    "EarlierSplit",
    "Facts",
    "Format",
    "Header",
    "Inspection",
    "InstanceChange",
    "Loader",
    "Preparation",
    "Problem",
    "Sample",
    "Source",
    "Summary",
    "cache_folder",
    "check_outside",
    "check_path",
    "compare_instances",
    "file_digest",
    "grouped_share",
    "grouped_split",
    "imbalanced_subset",
    "inspect_data",
    "inspect_source",
    "larger_last_batch",
    "load_data",
    "load_for_inference",
    "open_source",
    "read_labels",
    "read_sample",
    "register_format",
    "stratified_share",
    "stratified_split",
    "stratified_subset",
    "where_samples_are",
]
