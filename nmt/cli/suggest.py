"""nmt-suggest: write a recipe for a corpus, with the expected training time."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from nmt.cli.common import enable_gc, positive, run_command
from nmt.cli.parsers import add_output, command_parser
from nmt.errors import UserError
from nmt.runtime.memory import cached_products, limit_onednn_cache

if TYPE_CHECKING:
    import torch

    from nmt.apps.suggest.choices import Budget, Suggestion
    from nmt.apps.suggest.corpus import CorpusPaths
    from nmt.apps.suggest.facts import CorpusFacts
    from nmt.apps.suggest.text import Expectation
    from nmt.config.recipe import Recipe

SECONDS = 3.0  # of updates, for each precision and number of threads


EXAMPLES = """\
examples:
  %(prog)s corpus/train -o gl-en.yaml             # corpus/train.gl and .en
  %(prog)s corpus/train --hours 2.5 -o gl-en.yaml
  %(prog)s corpus/train --parent runs/pt-en -o gl-en.yaml"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-suggest."""
    p = command_parser(
        "nmt-suggest",
        usage="%(prog)s PREFIX [PREFIX ...] [options]",
        description="Read a corpus, measure the speed of this machine, and write a recipe with "
        "the reason for each key and the expected time.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "prefix",
        nargs="+",
        metavar="PREFIX",
        help="a corpus PREFIX.SRC and PREFIX.TGT, or several",
    )
    p.add_argument(
        "--src-lang",
        metavar="LANG",
        help="source language; default: as MANIFEST.json says, or that of the file next to English",
    )
    p.add_argument(
        "--tgt-lang",
        metavar="LANG",
        help="target language; default: the other one, or English",
    )
    p.add_argument(
        "--mono",
        metavar="PREFIX",
        help="monolingual text of the target language, PREFIX.TGT, to copy to both sides; "
        "default: mono next to the corpus, if it exists",
    )
    p.add_argument(
        "--hours",
        type=positive,
        metavar="H",
        help="hours that the run may take on this machine; default: a short run",
    )
    p.add_argument(
        "--parent",
        metavar="RUN",
        help="fine-tune this run, from nmt-train or nmt-convert",
    )
    add_output(
        p, "FILE", "where to write the recipe; default: standard output", "an existing recipe"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Write a recipe for the corpora ``args.prefix``.

    Raises:
        UserError: the corpus is incomplete, ambiguous or wrong, the output file exists, or the
            parent does not fit.
        MachineError: the output file cannot be written.
    """
    from nmt.apps.suggest.corpus import find_corpus
    from nmt.runtime.files import AGAIN, write_atomic
    from nmt.store.output import CHOOSE_ANOTHER, check_output_file

    limit_onednn_cache(cached_products("bf16"))  # the largest that it measures
    output = None if args.output is None else Path(args.output)
    if args.mono is not None and (len(args.prefix) > 1 or args.parent is not None):
        fix = "leave --mono out, and add an entry with equal src and tgt to data.train"
        raise UserError("--mono is for one corpus, without --parent", fix=fix)
    langs = args.src_lang, args.tgt_lang
    corpora = [find_corpus(prefix, *langs, args.mono) for prefix in args.prefix]
    paths = corpora[0]
    if output is not None:
        check_output_file(output, args.force, [file for each in corpora for file in each.files()])
    if args.src_lang is None and args.tgt_lang is None and len(corpora) == 1:
        print(
            f"translating {paths.src} to {paths.tgt}; for the other direction, add "
            f"--src-lang {paths.tgt} --tgt-lang {paths.src}",
            file=sys.stderr,
        )
    from nmt.apps.suggest.text import recipe_text, too_few_hours

    if args.parent is None:
        facts, suggestion, expectation = _from_scratch(args, corpora)
    elif len(corpora) > 1:
        raise UserError("--parent is for one corpus", fix="name one corpus, or leave --parent out")
    else:
        facts, suggestion, expectation = _from_parent(args, paths)
    if note := too_few_hours(suggestion, expectation):
        print(f"note: {note[0].lower()}{note[1:]}", file=sys.stderr)
    folder = Path() if output is None else output.parent
    text = recipe_text(paths, facts, suggestion, expectation, folder)
    if output is None:
        print(text, end="")
        return
    check_output_file(output, args.force)  # another process may have written it meanwhile
    write_atomic(output, text, CHOOSE_ANOTHER, AGAIN)
    print(
        f"wrote {output}; next: {expectation.environment}nmt-train {shlex.quote(str(output))}",
        file=sys.stderr,
    )


Advice: TypeAlias = "tuple[CorpusFacts, Suggestion, Expectation]"


def _from_scratch(args: argparse.Namespace, corpora: Sequence[CorpusPaths]) -> Advice:
    from nmt.apps.suggest.choices import suggest, with_related_text
    from nmt.apps.suggest.monolingual import with_copied_text
    from nmt.apps.suggest.several import collect_all, joined, with_all_corpora
    from nmt.config.recipe import Recipe

    parts = collect_all(corpora, progress=True)
    facts, paths = joined(parts), corpora[0]
    from nmt.runtime.device import resolve_device

    enable_gc()
    device = resolve_device("auto")
    gpu = device.type == "cuda"
    row = None
    while True:  # choose a smaller model while too few updates fit into the hours
        suggestion = suggest(paths, facts, gpu, row=row, parts=parts)
        recipe = Recipe.model_validate(suggestion.values())
        expectation = _measure(recipe, facts, suggestion, device)
        if (budget := _budget(args, expectation)) is None:
            break
        suggestion = suggest(paths, facts, gpu, budget, row, parts)
        row = None if gpu or expectation.busy else suggestion.smaller_size
        if row is None:
            break
    if len(corpora) > 1:
        return facts, with_all_corpora(suggestion, corpora, parts), expectation
    suggestion = with_related_text(suggestion, paths, facts)
    return facts, with_copied_text(suggestion, paths, facts), expectation


def _from_parent(args: argparse.Namespace, paths: CorpusPaths) -> Advice:
    from nmt.apps.suggest.facts import collect_facts
    from nmt.apps.suggest.finetune import ParentModel, choose_start, resolve, suggest_from
    from nmt.runtime.device import resolve_device

    parent = ParentModel.open(args.parent, paths)
    if args.output is not None:
        parent.require_another_folder(Path(args.output))
    for note in parent.notes:
        print(f"note: {note}", file=sys.stderr)
    facts = collect_facts(paths, True, parent.about.data.tokenized)
    enable_gc()
    device = resolve_device("auto")
    start = choose_start(paths, facts, parent, progress=True)
    suggestion = suggest_from(facts, parent, start, device)
    expectation = _measure(resolve(suggestion.choices), facts, suggestion, device)
    if (budget := _budget(args, expectation)) is not None:
        suggestion = suggest_from(facts, parent, start, device, budget)
    return facts, suggestion, expectation


def _budget(args: argparse.Namespace, expectation: Expectation) -> Budget | None:
    from nmt.apps.suggest.choices import Budget

    if args.hours is None:
        return None
    return Budget(args.hours, 3600 * args.hours * expectation.speed)


def _measure(
    recipe: Recipe, facts: CorpusFacts, suggestion: Suggestion, device: torch.device
) -> Expectation:
    """Time some updates of the suggested model, and print each speed."""
    import torch

    from nmt.apps.suggest.speed import busy_note, measure_speeds
    from nmt.apps.suggest.text import Expectation
    from nmt.data.prepare import Prepared
    from nmt.runtime.memory import parameter_count, require_memory
    from nmt.training.tasks import model_without_memory

    sample = suggestion.sample
    prepared = Prepared(
        segmenter=sample.segmenter,
        vocab=sample.vocab,
        train=cast(Any, sample),
        dev=[],
        test=None,
        report=facts.report,
        data_hash="",
        content={},
    )
    parameters = parameter_count(model_without_memory(recipe, len(sample.vocab)))
    require_memory(parameters, 0, recipe.optim.kind, device)
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"measuring a model of {parameters:,} parameters ({name})", file=sys.stderr)
    speeds = {}
    measured = recipe.model_copy(update={"segment": sample.config})  # that of the sample
    wall, used = time.perf_counter(), time.thread_time()
    for setting, speed in measure_speeds(measured, prepared, device, SECONDS):
        speeds[setting] = speed
        print(f"  {setting}: {speed:,.0f} target tokens/s", file=sys.stderr)
    wall, used = time.perf_counter() - wall, time.thread_time() - used
    busy = busy_note(wall, used) if device.type == "cpu" else ""
    if busy:
        print(f"note: {busy[0].lower()}{busy[1:]}", file=sys.stderr)
    return Expectation(name, parameters, speeds, threads, busy)


if __name__ == "__main__":
    sys.exit(main())
