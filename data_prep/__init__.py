"""Make corpora: plain text in files of train, dev and test, and MANIFEST.json.

``corpora`` has a module for each public corpus, ``importers`` one for each kind of the user's own
files; ``nmt-import NAME`` runs them. ``cleaning`` has the rules of ``nmt-clean``. All write plain
text: tokenization and segmentation belong to the run.
"""
