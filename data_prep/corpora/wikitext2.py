"""Wikipedia articles of WikiText-2, English text.

``nmt-import wikitext2 -o data/wikitext-2``. WikiText-2 (Merity et al. 2016) is for language models.
The files are train.en, dev.en and test.en, as PyTorch's examples have them: tokenized and cased,
rare words are ``<unk>``, headings are ``= heading =``, blank lines separate articles and their
parts. With a line end for each line, also a blank one, dev has 217,646 words and test 245,569,
which published perplexities count.
"""

from __future__ import annotations

from data_prep.languages import match_language
from data_prep.remote import RemoteFile, fetched
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.lines import read_lines
from nmt.data.pair import Pair
from nmt.data.report import Drops

_COMMIT = "77f55b912142e11fcfdf5b530231fb9c52f181e8"
_URL = (
    f"https://raw.githubusercontent.com/pytorch/examples/{_COMMIT}/word_language_model/data/"
    "wikitext-2/"
)
TREE = "3b9626d3549cb2f1077d44fc4f4ba3a8ef478577"  # git mktree of the three files
SPLITS = {"train": "train.txt", "dev": "valid.txt", "test": "test.txt"}
SOURCES = [
    RemoteFile("WikiText-2", "CC BY-SA 3.0", name, url=_URL + name) for name in SPLITS.values()
]


def prepare(request: Request) -> None:
    """Write the three splits with every line, also blank ones.

    Raises:
        UserError: a language other than English is asked for, or a target language.
    """
    match_language(request.src, ["en"], "WikiText-2")
    with fetched(SOURCES, request.local, TREE) as paths:
        splits = {
            split: (Pair(line, "") for line in read_lines(path, clean=False))
            for split, path in zip(SPLITS, paths, strict=True)
        }
        notes = [
            "Lines are as released, also blank ones.",
            "Text is tokenized: set data.tokenized: true.",
        ]
        write_corpus(
            Corpus("wikitext-2", splits, Drops(), SOURCES, notes, monolingual=True), request
        )


LANGS = ("en",)
