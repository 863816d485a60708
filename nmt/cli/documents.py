"""nmt-documents: translate documents, and keep their formatting."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import run_command
from nmt.cli.parsers import add_output, command_parser, shorten_help
from nmt.cli.search_options import add_search_options, open_translator, search_options_of
from nmt.errors import MachineError, NmtError, UserError
from nmt.runtime.files import AGAIN, disk_errors, write_atomic
from nmt.runtime.signals import raise_terminated
from nmt.runtime.words import quantity

if TYPE_CHECKING:
    from nmt.apps.documents.job import Reading, Report
    from nmt.apps.documents.journal import Journal
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator

REPORT = ".report.tsv"  # after the name of a document
NOT_OF_RESULT = {"force", "resume", "debug"}  # options of the same command
MAX_SHOWN = 10  # places of a document that are printed
# search options of lines; a document needs the alignment anyway, and sets prefixes itself
OF_LINES = ("n_best", "token_scores", "align", "prefix", "require")
# shown by --help; --help-all shows the others too
OFTEN_USED = (
    "run", "files", "output", "force", "resume", "retranslate", "encoding", "keys", "skip_keys",
    "tag", "glossary",
)  # fmt: skip
EXAMPLES = """\
examples:
  %(prog)s runs/gl-en letter.docx app.po -o english/
  %(prog)s runs/gl-en film.srt -o subtitles --encoding windows-1252
  %(prog)s runs/gl-en labels.json -o labels --keys '*.title'

docs/search-options.md explains the search options."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-documents."""
    p = command_parser(
        "nmt-documents",
        usage="%(prog)s RUN [RUN ...] FILE [FILE ...] -o DIR [options]",
        description="Translate documents and keep their formatting: text, Markdown, HTML, Word, "
        "OpenDocument, gettext, XLIFF, TMX, subtitles and JSON.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "run",
        metavar="RUN",
        help="run folder from nmt-train, or model; several with the same vocabulary are an "
        "ensemble",
    )
    p.add_argument(
        "files", nargs="+", metavar="FILE", help="document, or folder for the documents in it"
    )
    documents = p.add_argument_group("documents")
    add_output(
        documents,
        "DIR",
        "write each translation into this folder, with the name of its document",
        "existing translations",
        required=True,
        resume="translate only documents without a translation",
    )
    documents.add_argument(
        "--retranslate",
        action="store_true",
        help="also replace translations that are in a file already (.po, .xliff, .tmx)",
    )
    documents.add_argument(
        "--encoding",
        metavar="NAME",
        help="encoding of text files, such as windows-1250; default: what a file says, or UTF-8",
    )
    documents.add_argument(
        "--keys",
        nargs="+",
        metavar="PATTERN",
        help="of JSON, translate the values with these paths only, such as '*.title'",
    )
    documents.add_argument(
        "--skip-keys",
        nargs="+",
        metavar="PATTERN",
        help="of JSON, do not translate the values with these paths, such as 'meta.*'",
    )
    add_search_options(p, OF_LINES)
    shorten_help(p, *OFTEN_USED)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the arguments and files, then translate."""
    chosen = search_options_of(args)
    documents = documents_of(args)
    with raise_terminated():
        documents.translate(*open_translator(args, chosen))


def documents_of(args: argparse.Namespace) -> Documents:
    """Return the documents of the command line; ``args.run`` becomes the list of the runs.

    Raises:
        UserError: no file is given, two files have the same name, or a translation exists.
    """
    from nmt.apps.documents.job import Reading
    from nmt.data.lines import text_encoding
    from nmt.store.folder import MARKERS

    named = {key: value for key, value in vars(args).items() if key not in NOT_OF_RESULT}
    command = json.dumps(named, sort_keys=True, default=str)
    paths = [Path(name) for name in args.files]
    runs = [path for path in paths if any((path / name).is_file() for name in MARKERS)]
    args.run = [args.run, *map(str, runs)]
    files = [file for path in paths if path not in runs for file in _documents_in(path)]
    if not files:
        fix = f"name them after the run folder: {args.run[0]} FILE... -o {args.output}"
        raise UserError("there is no document to translate", fix=fix)
    folder = Path(args.output)
    if folder.exists() and not folder.is_dir():
        fix = "give --output a folder, which may be new"
        raise UserError("is not a folder", at=args.output, fix=fix)
    names: dict[str, Path] = {}
    for path in files:
        if path.name in names:
            raise UserError(
                f"has the same name as {names[path.name]}, and both would be {folder / path.name}",
                at=str(path),
                fix="translate one of them into another folder",
            )
        names[path.name] = path
    encoding = args.encoding and text_encoding(args.encoding, "--encoding")
    keys, skip_keys = tuple(args.keys or ()), tuple(args.skip_keys or ())
    reading = Reading(args.retranslate, encoding, keys, skip_keys)
    documents = Documents(files, folder, command, args.force, args.resume, reading, args.debug)
    documents.check()
    return documents


def _documents_in(path: Path) -> list[Path]:
    """Return the documents in a folder, without its subfolders; a file is a document itself."""
    from nmt.apps.documents.formats import FORMATS
    from nmt.store.folder import children

    if not path.is_dir():
        return [path]
    files = [file for file in children(path) if file.is_file() and not file.name.startswith(".")]
    documents = [file for file in files if file.suffix.lower() in FORMATS]
    if not documents:
        fix = f"name a folder with files that end in {', '.join(FORMATS)}"
        raise UserError("no document is in this folder", at=str(path), fix=fix)
    return documents


@dataclasses.dataclass
class Documents:
    """The documents that one command translates.

    Attributes:
        command: everything that determines the translations.
        resume: leave out documents that have a translation.
        debug: print where an error was found.
    """

    files: Sequence[Path]
    folder: Path
    command: str
    force: bool
    resume: bool
    reading: Reading
    debug: bool

    def check(self) -> None:
        """Check that the translations can be written, before a model is loaded.

        Raises:
            UserError: a translation exists, or is a document itself.
        """
        from nmt.apps.documents.journal import ELSEWHERE, Journal
        from nmt.store.output import check_output_file

        with disk_errors(self.folder, elsewhere=ELSEWHERE, again=AGAIN):
            self.folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(self.folder, self.command)
        for path in self._unfinished(journal):
            replace = self.force or journal.owns(path)
            for target in (self._target(path), self._report(path)):
                check_output_file(target, replace, [str(file) for file in self.files])

    def _target(self, path: Path) -> Path:
        return self.folder / path.name

    def _report(self, path: Path) -> Path:
        return self.folder / f"{path.name}{REPORT}"

    def _unfinished(self, journal: Journal) -> list[Path]:
        return [
            path
            for path in self.files
            if not (self.resume and self._target(path).exists()) and not journal.has(path)
        ]

    def translate(self, translator: Translator, options: SearchOptions) -> None:
        """Translate the documents, one after the other; a bad one does not stop the others.

        Raises:
            UserError: a document was not translated; its error is printed before.
        """
        from nmt.apps.documents.journal import Journal

        errors = 0
        with Journal(self.folder, self.command) as journal:
            unfinished = self._unfinished(journal)
            if done := len(self.files) - len(unfinished):
                print(f"note: {quantity(done, 'document')} translated before", file=sys.stderr)
            for path in unfinished:
                try:
                    self._translate(path, translator, options, journal)
                except MachineError:
                    raise
                except NmtError as error:
                    errors += 1
                    if self.debug:
                        traceback.print_exception(error)
                    print(f"error: {error}", file=sys.stderr)
            journal.delete()
        if errors:
            raise UserError(
                f"{errors:,} of {quantity(len(self.files), 'document')} not translated",
                fix="correct these files, then run the same command with --resume",
            )

    def _translate(
        self, path: Path, translator: Translator, options: SearchOptions, journal: Journal
    ) -> None:
        from nmt.apps.documents.document import translate_file
        from nmt.apps.documents.model import from_translator
        from nmt.runtime.progress import progress_bar

        langs = translator.codec.langs(options)
        translate = from_translator(translator, options)
        with progress_bar(path.name, "segments") as bar:

            def progress(count: int, total: int) -> None:
                bar.total = total
                bar.update(count)

            draft = journal.draft(path)
            known = tuple(translator.codec.abbreviations(langs[0]))
            reading = dataclasses.replace(self.reading, abbreviations=known)
            report = translate_file(path, draft, langs, translate, reading, progress)
        journal.add(path)
        self._write_report(path, report)
        journal.finish(path)
        self._print(path, report)

    def _write_report(self, path: Path, report: Report) -> None:
        from nmt.apps.documents.journal import ELSEWHERE

        file = self._report(path)
        if not report.remarks:
            file.unlink(missing_ok=True)  # of an earlier translation, which is replaced
            return
        table = io.StringIO()
        writer = csv.writer(table, delimiter="\t", lineterminator="\n")
        writer.writerow(["place", "problem", "note", "source", "translation"])
        for remark in report.remarks:
            writer.writerow([" ".join(cell.split()) for cell in dataclasses.astuple(remark)])
        write_atomic(file, table.getvalue(), ELSEWHERE, AGAIN)

    def _print(self, path: Path, report: Report) -> None:
        counts = [quantity(report.segments, "segment") + " translated"]
        if report.in_parts:
            counts.append(f"{report.in_parts:,} of them in parts")
        if report.same:
            counts.append(f"{report.same:,} of them equal to the source")
        if report.kept:
            counts.append(f"{report.kept:,} kept as they were")
        counts += [f"{count:,} {what}" for what, count in report.others.items()]
        print(f"{self._target(path)}: {', '.join(counts)}", file=sys.stderr)
        for what, places in report.places.items():
            more = report.others[what] - len(places)
            and_more = f" and {more:,} more" if more else ""
            print(f"  {what}: {path}, {'; '.join(places)}{and_more}", file=sys.stderr)
        problems = report.problems
        for remark in problems[:MAX_SHOWN]:
            print(f"  check {path}, {remark.place}: {remark.problem}", file=sys.stderr)
        if len(problems) > MAX_SHOWN:
            print(f"  and {len(problems) - MAX_SHOWN:,} more", file=sys.stderr)
        if report.remarks:
            print(f"  {self._report(path)} lists them", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
