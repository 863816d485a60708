"""Corpora: one module per source, each writing {train,dev,test}.{src,tgt} and MANIFEST.json.

``python -m data_prep.NAME --out DIR [--src X --tgt Y] [--from LOCAL]``; a recipe names a module in
``data.download`` and nmt-train calls its ``prepare`` with the recipe's languages when the recipe's
files are missing. Nothing here segments or tokenizes: codes and vocabulary belong to the run, so
that training and translation cannot differ.
"""

# What a recipe's data.download may name; the modules from_* read files of one's own.
CORPORA = (
    "americasnlp",
    "bible_ny_en",
    "flores",
    "iwslt15_en_vi",
    "lafand",
    "multi30k",
    "tatoeba",
    "ted_talks",
    "ui_sk_en",
    "wmt14_en_de",
)
