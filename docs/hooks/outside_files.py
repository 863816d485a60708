"""Hook of mkdocs: a file outside docs/ that a page links to is a part of the site, in project/.

Pages link to files of the repository as GitHub shows them: ``../README.md`` from a page of docs/,
``docs/faq.md`` from README.md. The site has the same files, so both kinds of link work in both.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
OUTSIDE = "project/"


def _in_repository(src_uri: str) -> str:
    """Return the path in the repository of a file of the site."""
    return src_uri[len(OUTSIDE) :] if src_uri.startswith(OUTSIDE) else f"docs/{src_uri}"


def _in_site(path: str) -> str:
    """Return the path in the site's sources of a file of the repository."""
    return path[len("docs/") :] if path.startswith("docs/") else OUTSIDE + path


def _targets(src_uri: str, text: str) -> list[str]:
    """Return the paths in the repository that the links of a page lead to."""
    folder = posixpath.dirname(_in_repository(src_uri))
    links = [link for _, link, _, _ in LINK.findall(text) if "://" not in link]
    return [posixpath.normpath(posixpath.join(folder, link)) for link in links]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to, and those that these link to."""
    root = Path(config.docs_dir).parent
    pages = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    while pages:
        src_uri, text = pages.pop()
        for path in _targets(src_uri, text):
            if path.startswith(("docs/", "../")) or not (root / path).is_file():
                continue  # a broken link stays as it is, and --strict reports it
            if files.get_file_from_path(_in_site(path)) is None:
                file = File.generated(config, _in_site(path), abs_src_path=str(root / path))
                files.append(file)
                if file.is_documentation_page():
                    pages.append((file.src_uri, file.content_string))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links between docs/ and the other files to paths in the site."""
    src_uri = page.file.src_uri
    here, folder = posixpath.dirname(src_uri), posixpath.dirname(_in_repository(src_uri))

    def change(match: re.Match[str]) -> str:
        opening, link, anchor, closing = match.groups("")
        target = _in_site(posixpath.normpath(posixpath.join(folder, link)))
        if "://" in link or files.get_file_from_path(target) is None:
            return match[0]
        return f"{opening}{posixpath.relpath(target, here or '.')}{anchor}{closing}"

    return LINK.sub(change, markdown)
