"""nmt-translate: text in, text out, one line of output for each line of input; or documents."""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nmt.cli.common import add_model_options, enable_gc, run_command
from nmt.cli.documents import add_documents, documents_of
from nmt.cli.pairs import add_pairs, corpus_of
from nmt.cli.parsers import command_parser, shorten_help
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.runtime.signals import raise_terminated
from nmt.version import __version__

if TYPE_CHECKING:
    from nmt.apps.synthesize.pairs import SyntheticCorpus
    from nmt.cli.documents import Documents
    from nmt.data.glossary import Term
    from nmt.decoding.codec import Translation, UnknownPieces
    from nmt.decoding.confidence import Expectations
    from nmt.decoding.glossary import Glossary
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator
    from nmt.runtime.progress import TerminalBar
    from nmt.store.output import LineNumber, Write

MAX_UNKNOWN = 0.05  # share of unknown source pieces above which a note is printed

# files with one line for each line of the input
CONSTRAINT_FILES = {
    "prefix": "line n is the start of translation n; blank = none",
    "require": "line n lists the phrases that translation n must contain, separated by tabs; "
    "blank = none",
}
# title of a group of search options -> its options; others are listed under "search"
OPTION_GROUPS = {
    "sampling": ("sample", "temperature", "top_k", "top_p", "seed"),
    "constraints": ("glossary", *CONSTRAINT_FILES),
    "choice among candidates": (
        "reverse_weight", "reverse_tag", "reverse_tgt_tag", "candidates",
    ),
    "scores and alignment": ("token_scores", "align"),
}  # fmt: skip
# shown by --help; --help-all shows the others too
OFTEN_USED = (
    "run", "input", "output", "to", "force", "resume", "beam", "n_best", "split", "tag",
)  # fmt: skip


# ---------------------------------------------------------------- command line


EXAMPLES = """\
examples:
  echo 'Bo día a todos.' | %(prog)s runs/gl-en
  %(prog)s runs/gl-en --input test.gl -o test.en
  %(prog)s runs/gl-en letter.docx app.po --to english/

docs/search-options.md explains the search options."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-translate."""
    p = command_parser(
        "nmt-translate",
        usage="%(prog)s RUN [RUN ...] [FILE ... --to DIR] [options]",
        description="Translate plain text, line by line, from standard input to standard "
        "output. Blank lines stay blank. Input and output are UTF-8 in any locale.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="run folder from nmt-train, or model from nmt-convert, nmt-average or nmt-export; "
        "several with the same vocabulary are an ensemble",
    )
    files = p.add_argument_group("input and output")
    files.add_argument("--input", metavar="FILE", help="read this file: plain, .gz, .xz or .bz2")
    files.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write this file; its name is FILE.part until it is complete",
    )
    existing = files.add_mutually_exclusive_group()
    existing.add_argument("--force", action="store_true", help="replace an existing output")
    existing.add_argument("--resume", action="store_true", help="continue an interrupted output")
    files.add_argument(
        "--json",
        action="store_true",
        help="write one JSON object per translation, in which any text is unambiguous",
    )
    add_pairs(p)
    add_documents(p)
    model = p.add_argument_group("model")
    add_model_options(model)
    model.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of batches that CTranslate2 searches in parallel on a CPU, each on one core; "
        "default: all cores that the CPU affinity, the container's quota and OMP_NUM_THREADS allow",
    )
    model.add_argument(
        "--verbose", action="store_true", help="say which engine searches, and why if it is torch"
    )
    _add_search_options(p)
    shorten_help(p, *OFTEN_USED)
    return p


def _add_search_options(p: argparse.ArgumentParser) -> None:
    """Add a flag for each search option and for each file of constraints, all None by default."""
    from nmt.config.errors import format_value
    from nmt.config.recipe import SearchConfig
    from nmt.config.schema import leaf_types, meanings
    from nmt.decoding.options import DEFAULT_REVERSE_WEIGHT, SearchOptions, as_flag

    explained = meanings(SearchOptions)
    recipe_flags = [as_flag(name) for name in SearchConfig.model_fields]
    search = p.add_argument_group(
        "search",
        f"the recipe's decode keys set the defaults of {', '.join(recipe_flags[:-1])} and "
        f"{recipe_flags[-1]}",
    )
    groups = {title: p.add_argument_group(title) for title in OPTION_GROUPS}
    group_of = {name: groups[title] for title, names in OPTION_GROUPS.items() for name in names}
    for name, field in SearchOptions.model_fields.items():
        types = leaf_types(field.annotation)
        choices = [leaf for leaf in types if isinstance(leaf, str)]  # of a Literal
        meaning = explained[name].removeprefix("true = ")
        if name not in SearchConfig.model_fields and field.default:  # of no recipe
            meaning += f"; default: {format_value(field.default)}"
        kind: dict[str, Any]
        if bool in types:
            kind = {"action": "store_true"}
        elif choices:
            kind = {"choices": choices}
        elif int in types or float in types:
            number, metavar = (int, "N") if int in types else (float, "X")
            kind = {"type": number, "metavar": metavar}
        elif name == "src" or name.endswith("tag"):
            kind = {"metavar": "LANG" if name == "src" else "TAG"}
        else:
            kind, meaning = {"metavar": "FILE"}, f"file with {meaning}; one per line, with a tab"
        group = group_of.get(name, search)
        group.add_argument(as_flag(name), dest=name, default=None, help=meaning, **kind)
    groups["choice among candidates"].add_argument(
        "--reverse",
        action="append",
        metavar="RUN",
        help="rerank the candidates with a reverse model or run: score + "
        f"--reverse-weight (default: {DEFAULT_REVERSE_WEIGHT}) x score of the source given the "
        "candidate; several are an ensemble",
    )
    for name, meaning in CONSTRAINT_FILES.items():
        group_of[name].add_argument(as_flag(name), metavar="FILE", help=meaning)
    scores = groups["scores and alignment"]
    scores.add_argument(
        "--scores", action="store_true", help="write SCORE and a tab before each translation"
    )
    scores.add_argument(
        "--confidence",
        action="store_true",
        help="write the expected chrF and a tab before each translation; requires nmt-calibrate "
        "RUN",
    )
    scores.add_argument(
        "--score-target",
        dest="targets",
        metavar="FILE",
        help="do not search: score line n of FILE as the translation of line n of the input; "
        "writes LOG-PROBABILITY, tab, SCORE",
    )


def _check_flags(args: argparse.Namespace) -> SearchOptions:
    """Check the flags before torch is imported; return the search options among them."""
    from nmt.data.glossary import read_glossary
    from nmt.decoding.options import SearchOptions, as_flag, search_options

    given = {name: getattr(args, name) for name in SearchOptions.model_fields}
    for name in (*CONSTRAINT_FILES, "glossary"):
        file = getattr(args, name)
        if file is not None and not os.path.exists(file):  # perhaps a phrase instead of a file
            raise UserError(
                f"there is no file {file}",
                at=as_flag(name),
                fix="write phrases or terms to a file and pass its path; --help-all explains it",
            )
    if args.glossary is not None:
        given["glossary"] = tuple(read_glossary(Path(args.glossary)))
    others = {name for name, value in vars(args).items() if value}
    return search_options(given, others - given.keys(), as_flag)


def _parallel_files(args: argparse.Namespace) -> dict[str, str]:
    """Return the files with one line for each line of the input, by their options."""
    files = {name: getattr(args, name) for name in ("targets", *CONSTRAINT_FILES)}
    return {name: file for name, file in files.items() if file is not None}


def _constraints(args: argparse.Namespace, total: int | None) -> dict[str, Any]:
    """Return the constraints of each line, as arguments of ``Translator.stream``."""
    from nmt.cli.input import read_parallel

    def phrases(line: str) -> list[str]:
        return [phrase for phrase in line.split("\t") if phrase.strip()]

    constraints: dict[str, Any] = {}
    for name in CONSTRAINT_FILES:
        if file := _parallel_files(args).get(name):
            lines = read_parallel(file, total)
            constraints[name] = lines if name == "prefix" else map(phrases, lines)
    return constraints


# ---------------------------------------------------------------- translating


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the arguments and files, then translate."""
    from nmt.store.output import locked_output

    chosen = _check_flags(args)
    if (documents := documents_of(args)) is not None:
        _translate_documents(args, documents, chosen)
        return
    if (corpus := corpus_of(args)) is not None:
        args.output = corpus.name
    if args.resume and not (args.input and args.output and Path(args.input).is_file()):
        raise UserError(
            "--resume requires a regular --input file and --output or --pairs",
            fix="add them, or leave out --resume",
        )
    inputs = [args.input, *_parallel_files(args).values(), args.glossary]
    files = None if corpus is None else corpus.files
    locked = locked_output(args.output, inputs, args.resume, args.force, files)
    # a signal ends the command as an error does, so finished lines are written first
    with raise_terminated(), locked:
        _translate(args, corpus, chosen)


def _translate_documents(
    args: argparse.Namespace, documents: Documents, chosen: SearchOptions
) -> None:
    with raise_terminated():
        translator = _load(args)
        enable_gc()
        options = translator.check_options(chosen)
        _engine(args, translator, options)
        _note_tags(translator, options)
        documents.translate(translator, options)


def _translate(
    args: argparse.Namespace, corpus: SyntheticCorpus | None, chosen: SearchOptions
) -> None:
    from nmt.cli.input import Input, read_input, read_parallel
    from nmt.cli.line_checks import LineChecks
    from nmt.runtime.files import file_digest
    from nmt.store.output import open_output

    source = read_input(args.input) if corpus is None else Input(*corpus.read_input())
    lines, total, ready = source
    targets = None if args.targets is None else read_parallel(args.targets, total)
    constraints = _constraints(args, total)
    translator = _load(args)
    enable_gc()
    options = translator.check_options(chosen)
    _note_tags(translator, options)
    expectations = _expectations(args, translator, options)
    if corpus is None:
        engine, complete = _engine(args, translator, options), None
        format_line, line_number = _output_format(args, options, expectations, engine)
    else:
        if args.resume and corpus.is_complete():
            _note(f"{corpus.name}: the corpus is complete already")
            return
        format_line, line_number = corpus.line_format(translator), None
        settings = {
            "version": __version__,
            "run": args.run,
            "model": translator.engine.model_hash(),
            "input": file_digest(Path(args.input)),
            "reverse": args.reverse,
            **options.model_dump(),
        }
        complete = functools.partial(corpus.write, settings=settings)
    found: Counter[str] = Counter()
    if options.glossary:
        glossary = translator.codec.glossary(options.glossary, options.src)
        lines = _count_terms(lines, glossary, found)
    checks = None
    if targets is None and corpus is None:  # a corpus counts what it leaves out
        checks = LineChecks(translator, options)
    again = total if _can_read_again(args) else None
    opening = open_output(args.output, args.resume, args.force, line_number, again, complete)
    with opening as (write, finished):
        if corpus is not None:
            corpus.check_unfinished(finished)
        with _progress_bar(args, total, finished) as bar:
            given: dict[str, Any] = {"checked": options, **constraints}
            given |= {"progress": bar.update, "skip": finished, "ready": ready}
            if checks is not None:
                sources = checks.sources(lines, finished)
                translations = checks.see(translator.stream(sources, **given))
            elif targets is None:
                translations = translator.stream(lines, **given)
            else:
                scored = translator.score_stream(lines, targets, **given)
                translations = ([one] for one in scored)
            notes = _write(translations, write, format_line, finished)
            notes += checks.notes() if checks else []
            for note in notes if corpus is None else ():
                _note(note)
            if expectations is not None:
                _note(expectations.note())
    _note_unknown(translator.unknown)
    if options.glossary:
        _note_terms(args.glossary, options.glossary, found)


def _can_read_again(args: argparse.Namespace) -> bool:
    """Return whether all inputs are regular files, so that the command can be resumed."""
    inputs = [args.input, *_parallel_files(args).values()]
    return all(name and Path(name).is_file() for name in inputs)


def _progress_bar(args: argparse.Namespace, total: int | None, finished: int) -> TerminalBar:
    """Return a bar of lines, hidden in a terminal where a person types or reads the lines."""
    from nmt.cli.input import is_interactive
    from nmt.runtime.progress import TerminalBar

    shown = args.output is None and sys.stdout is not None and sys.stdout.isatty()
    # smoothing=0: long lines come first, so only the mean rate predicts the time left
    options: dict[str, Any] = {"total": total, "initial": finished, "smoothing": 0}
    show = not (shown or is_interactive(args.input))
    return TerminalBar(show, leave=True, unit=" lines", **options)


def _load(args: argparse.Namespace) -> Translator:
    from nmt.decoding.translator import Translator

    return Translator.load(
        args.run,
        args.device,
        args.precision,
        args.workers,
        args.reverse,
        args.engine,
        args.quantization,
    )


def _engine(
    args: argparse.Namespace, translator: Translator, options: SearchOptions
) -> dict[str, str]:
    """Return the engine of a search, and why it is torch, for --json; --verbose prints them."""
    name, why = translator.engine_for(options).name, translator.why_torch(options)
    if args.verbose:
        _note(f"engine {name}" + f", because {why}" * bool(why))
    return {"engine": name} | ({"why_torch": why} if why else {})


def _expectations(
    args: argparse.Namespace, translator: Translator, options: SearchOptions
) -> Expectations | None:
    """Return what computes the expected chrF, None without --confidence."""
    if not args.confidence:
        return None
    from nmt.decoding.confidence import Expectations, read_calibration, search_settings

    calibration = read_calibration(args.run, translator.info.weights_hash)
    precision = translator.engine_for(options).precision
    before, now = calibration.search, search_settings(options, precision)
    changed = [
        f"{name}={before.get(name)} (now {now.get(name)})"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if changed:
        _note(f"the confidence was calibrated with {', '.join(changed)}, and may be wrong now")
    return Expectations(calibration)


def _write(
    translations: Iterable[list[Translation]], write: Write, format_line: Format, finished: int
) -> list[str]:
    """Write the translations of each line, from line ``finished`` on; return notes about them."""
    from nmt.cli.line_checks import named_lines
    from nmt.decoding.codec import BLANK

    translated, cut, short = 0, 0, []
    for number, candidates in enumerate(translations, finished):
        write("".join(f"{format_line(number, t)}\n" for t in candidates).encode())
        translated += candidates[0] != BLANK
        cut += not candidates[0].finished
        if candidates[0].short:
            short.append(number + 1)
    notes = []
    if cut:
        many = quantity(translated, "translation")
        notes.append(f"the length limit (--max-len-offset) cut {cut:,} of {many}")
    if short:
        notes.append(
            f"{quantity(len(short), 'translation')} too short for the source, so text is "
            f"missing: {named_lines(short)}"
        )
    return notes


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _note_tags(translator: Translator, options: SearchOptions) -> None:
    """Print that a model which always saw a tag gets input without one."""
    if options.tag is None and translator.codec.directions.always_tagged:
        tags = ", ".join(f'"{tag}"' for tag in translator.codec.vocab.tags)
        _note(
            "all training data of this model had a tag before the source, and this input has "
            f"none; choose one with --tag: {tags}"
        )


def _note_unknown(unknown: UnknownPieces) -> None:
    """Print how much of the source the model does not know, if it is much."""
    from nmt.cli.line_checks import named_lines

    if unknown.share > MAX_UNKNOWN:
        _note(
            f"{unknown.share:.1%} of the source subwords are unknown to the model, in "
            f"{unknown.lines_with_unknown:,} of {quantity(unknown.lines, 'line')}; check the "
            "language and script of the input"
        )
    if unknown.lines_all_unknown:
        lines = named_lines(unknown.first, unknown.lines_all_unknown)
        _note(f"all subwords of {lines} are unknown to the model; do not rely on the translation")


def _count_terms(lines: Iterable[str], glossary: Glossary, found: Counter[str]) -> Iterator[str]:
    for line in lines:
        found.update(glossary.find(line).keys())
        yield line


def _note_terms(file: str, terms: Sequence[Term], found: Counter[str]) -> None:
    """Print how many terms the input has; none may mean wrong columns, case or endings."""
    count = len({source for source, _ in terms})
    _note(
        f"{file}: {len(found):,} of {quantity(count, 'term')} occur in the input; "
        f"{quantity(found.total(), 'translation')} of them required"
    )


# ---------------------------------------------------------------- output formats

Format: TypeAlias = "Callable[[int, Translation], str]"  # input line from 0 -> line of output
JSON_KEYS = (  # of a translation
    "text", "log_prob", "score", "finished", "short", "pieces", "token_log_probs", "eos",
    "alignment",
)  # fmt: skip


def _output_format(
    args: argparse.Namespace,
    options: SearchOptions,
    expectations: Expectations | None,
    engine: dict[str, str],
) -> tuple[Format, LineNumber | None]:
    """Return what makes a line of output, and what returns its input line for ``--resume``.

    The latter is None if each input line has one line of output.
    """
    several = options.n_best > 1
    if options.token_scores or args.json:
        as_json = functools.partial(_json, expectations=expectations, engine=engine)
        return as_json, (lambda line: int(json.loads(line)["line"])) if several else None
    if args.targets is not None:
        template = "{t.log_prob:.4f}\t{t.score:.4f}"
    elif several:  # as Moses writes n-best lists
        template = "{number} ||| {t.text} ||| {t.log_prob:.4f} ||| {t.score:.4f}"
    else:
        template = "{t.score:.4f}\t{t.text}" if args.scores else "{t.text}"

    def format_line(number: int, t: Translation) -> str:
        line = template.format(number=number, t=t)
        if expectations is not None:
            line = f"{expectations(t):.2f}\t{line}"
        if options.align:  # in Pharaoh's format: 0-0 1-2
            line += f" ||| {' '.join(f'{i}-{j}' for i, j in t.alignment)}"
        return line

    return format_line, (lambda line: int(line.partition(b" ")[0])) if several else None


def _json(
    number: int, t: Translation, expectations: Expectations | None, engine: dict[str, str]
) -> str:
    """Return one JSON object; an infinite score is null, as JSON has no infinity."""
    values: dict[str, Any] = {"line": number} | {name: getattr(t, name) for name in JSON_KEYS}
    values |= engine
    for name in ("log_prob", "score"):
        if not math.isfinite(values[name]):
            values[name] = None
    if expectations is not None:
        values["expected_chrf"] = round(expectations(t), 2)
    return json.dumps(values, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
