"""nmt-prepare: check and encode the corpora of a recipe, so that nmt-train starts at once."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from data_prep.download import obtain_corpus
from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_recipe, command_parser, recipe_of, recipe_words
from nmt.runtime.signals import raise_terminated
from nmt.runtime.words import quantity

EXAMPLES = """\
examples:
  %(prog)s gl-en.yaml                     # checks and encodes the corpus
  %(prog)s gl-en.yaml segment.merges=3000
  %(prog)s recipes/sweeps/one-change.yaml --variant dropout-0.1"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-prepare."""
    p = command_parser(
        "nmt-prepare",
        description="Check, segment and encode the corpora of a recipe on all cores. The result is "
        "stored in the folder .cache next to the run folder, where nmt-train finds it. nmt-train "
        "does the same if the result is missing or the corpus has changed.",
        epilog=EXAMPLES,
    )
    add_recipe(p, "segment.merges=3000")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


@raise_terminated()
def body(args: argparse.Namespace) -> None:
    """Prepare the corpora and print what the checks found."""
    recipe = recipe_of(args)
    from nmt.data.adapt import describe_change
    from nmt.data.prepare import prepare
    from nmt.data.report import summary
    from nmt.store.parent import open_parent, text_of_parent, with_keys_of_parent

    enable_gc()
    recipe = with_keys_of_parent(recipe, resume=False)
    obtain_corpus(recipe)
    text = text_of_parent(recipe, open_parent(recipe)) if recipe.init.parent else None
    for line in describe_change(text) if text else ():
        print(line.strip())
    prepared = prepare(recipe, True, text)
    print(summary(prepared.report))
    train = prepared.train
    if recipe.translates:
        found = f"{quantity(len(train), 'training pair')} with a mean of "
        found += f"{train.src_len.mean():.1f} source and {train.tgt_len.mean():.1f} target subwords"
    else:
        found = f"{quantity(len(train), 'training line')} with {train.src_len.sum():,} subwords"
    print(f"{len(prepared.vocab):,} types; {found}")
    print(f"next: {shlex.join(['nmt-train', *recipe_words(args)])}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
