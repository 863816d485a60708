"""Corpora: one module each, which writes {train,dev,test}.{src,tgt} and MANIFEST.json.

``nmt import NAME -o DIR [--src-lang X --tgt-lang Y] [--from LOCAL]`` writes one. A recipe
names a module in ``data.download``; nmt-train calls its ``prepare`` if the recipe's files are
missing. Modules ``from_*`` read the user's own files. All write plain text: tokenization and
segmentation belong to the run.
"""

from pkgutil import iter_modules

_SHARED = {"command", "languages", "pairs", "released", "remote", "splits", "tables", "write"}

# What data.download may name: each module of a public corpus registers by its file name.
CORPORA = tuple(
    sorted(
        module.name
        for module in iter_modules(__path__)
        if module.name not in _SHARED and not module.name.startswith("from_")
    )
)
