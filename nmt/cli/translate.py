"""nmt-translate: text in, text out, one line of output for each line of input."""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nmt.cli.common import run_command
from nmt.cli.parsers import add_output, command_parser, shorten_help
from nmt.cli.search_options import (
    CONSTRAINT_FILES,
    SCORES,
    add_runs,
    add_search_options,
    constraints_of,
    engine_of,
    note,
    open_translator,
    search_options_of,
)
from nmt.errors import UserError
from nmt.runtime.signals import raise_terminated
from nmt.runtime.words import quantity

if TYPE_CHECKING:
    from nmt.decoding.codec import Translation
    from nmt.decoding.confidence import Expectations
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator
    from nmt.store.output import LineNumber, Write

# argument -> options that it excludes, and why
EXCLUDES = {
    "confidence": (("targets", "n_best", "reverse"), "it is calibrated on best translations"),
    "scores": (("token_scores", "targets", "n_best", "json"), "that writes the scores too"),
}
# shown by --help; --help-all shows the others too
OFTEN_USED = (
    "run", "input", "output", "force", "resume", "beam", "n_best", "split", "tag", "targets",
)  # fmt: skip


# ---------------------------------------------------------------- command line


EXAMPLES = """\
examples:
  echo 'Bo día a todos.' | %(prog)s runs/gl-en
  %(prog)s runs/gl-en --input test.gl -o test.en
  %(prog)s runs/gl-en --input test.gl --score-target test.en

nmt-documents translates documents. docs/search-options.md explains the search
options."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-translate."""
    p = command_parser(
        "nmt-translate",
        usage="%(prog)s RUN [RUN ...] [options]",
        description="Translate plain text, line by line, from standard input to standard "
        "output. Blank lines stay blank. Input and output are UTF-8 in any locale.",
        epilog=EXAMPLES,
    )
    add_runs(p)
    files = p.add_argument_group("input and output")
    files.add_argument("--input", metavar="FILE", help="read this file: plain, .gz, .xz or .bz2")
    add_output(
        files,
        "FILE",
        "write this file; its name is FILE.part until it is complete",
        "an existing output",
        resume="continue an interrupted output",
    )
    files.add_argument(
        "--json",
        action="store_true",
        help="write one JSON object per translation, in which any text is unambiguous",
    )
    scores = add_search_options(p)[SCORES]
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
    shorten_help(p, *OFTEN_USED)
    return p


# ---------------------------------------------------------------- translating


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the arguments and files, then translate."""
    from nmt.store.output import locked_output

    chosen = search_options_of(args, EXCLUDES)
    for run in args.run:
        if Path(run).is_file():
            raise UserError(
                "this is a file, not a run folder",
                at=run,
                fix=f"translate text with --input {run}, and documents with nmt-documents",
            )
    if args.resume and not (args.input and args.output and Path(args.input).is_file()):
        raise UserError(
            "--resume requires a regular --input file and --output",
            fix="add them, or leave out --resume",
        )
    inputs = [args.input, *_parallel_files(args), args.glossary]
    # a signal ends the command as an error does, so finished lines are written first
    with raise_terminated(), locked_output(args.output, inputs, args.resume, args.force):
        _translate(args, chosen)


def _parallel_files(args: argparse.Namespace) -> list[str]:
    """Return the files with one line for each line of the input."""
    files = (getattr(args, name) for name in ("targets", *CONSTRAINT_FILES))
    return [file for file in files if file is not None]


def _translate(args: argparse.Namespace, chosen: SearchOptions) -> None:
    from nmt.cli.input import is_interactive, read_input, read_parallel
    from nmt.cli.line_checks import LineChecks, TermCounts, line_bar, note_unknown
    from nmt.store.output import open_output

    lines, total, ready = read_input(args.input)
    targets = None if args.targets is None else read_parallel(args.targets, total)
    constraints = constraints_of(args, total)
    translator, options = open_translator(args, chosen)
    expectations = _expectations(args, translator, options)
    engine = engine_of(translator, options)
    format_line, line_number = _output_format(args, options, expectations, engine)
    terms = TermCounts(translator, options) if options.glossary else None
    lines = lines if terms is None else terms.see(lines)
    inputs = [args.input, *_parallel_files(args)]
    are_files = all(name and Path(name).is_file() for name in inputs)
    again = total if are_files else None  # a pipe cannot be read again, to resume the command
    opening = open_output(args.output, args.resume, args.force, line_number, again)
    # no bar where a person types or reads the lines in a terminal
    reads = args.output is None and sys.stdout is not None and sys.stdout.isatty()
    show_bar = not (reads or is_interactive(args.input))
    with opening as (write, finished), line_bar(total, finished, show_bar) as bar:
        given: dict[str, Any] = {"checked": options, **constraints}
        given |= {"progress": bar.update, "skip": finished, "ready": ready}
        if targets is None:
            checks = LineChecks(translator, options)
            sources = checks.sources(lines, finished)
            translations = checks.see(translator.stream(sources, **given))
            notes = _write(translations, write, format_line, finished) + checks.notes()
        else:
            scored = ([one] for one in translator.score_stream(lines, targets, **given))
            notes = _write(scored, write, format_line, finished)
        for text in notes:
            note(text)
        if expectations is not None:
            note(expectations.note())
    note_unknown(translator.unknown)
    if terms is not None:
        terms.note(args.glossary)


def _expectations(
    args: argparse.Namespace, translator: Translator, options: SearchOptions
) -> Expectations | None:
    """Return the function that computes the expected chrF, None without --confidence."""
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
        note(f"the confidence was calibrated with {', '.join(changed)}, and may be wrong now")
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
