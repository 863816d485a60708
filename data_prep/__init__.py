"""Corpora: one module per source, each writing {train,dev,test}.{src,tgt} and MANIFEST.json.

``python -m data_prep.NAME --out DIR [--from LOCAL]``; a recipe names a module in ``data.prepare``
and nmt-train calls its ``prepare(out)`` when the recipe's files are missing. Nothing here
segments or tokenises: codes and vocabulary belong to the run, so that training and translation
cannot differ.
"""
