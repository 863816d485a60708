"""Imports the modules of commands that read files of strangers, once for many processes."""

import importlib

for name in (
    "data_prep.corpora.mtdata", "data_prep.importers.gettext", "data_prep.importers.tmx",
    "data_prep.importers.tsv",
    "nmt.apps.documents.formats.office", "nmt.apps.documents.model", "nmt.apps.judge.sheet",
    "nmt.apps.report.page", "nmt.apps.transformers.convert", "nmt.cli.documents", "nmt.cli.score",
    "nmt.cli.sweep", "nmt.cli.train", "nmt.cli.translate", "nmt.data.prepare",
    "nmt.decoding.ctranslate2.folder", "nmt.decoding.torch_engine", "nmt.session",
    "tests.faults.test_hostile_files", "torch._dynamo",
):  # fmt: skip
    importlib.import_module(name)
