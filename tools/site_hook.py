"""What mkdocs is told beside mkdocs.yml: pages of the repository that the docs link to, but that stand outside of docs/.

In: links like `../native/README.md` or `../examples/train.py`. Out: a page `project/...` for each, so that the same links
work in the repository and in the site; a link to nothing is an error. Pages that are not in the navigation yet are added
under Guides: whoever writes docs/NAME.md need not know of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

NOT_IN_NAV = InclusionLevel.NOT_IN_NAV
ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file outside of docs/ that a page links to."""
    known = {file.src_uri for file in files}
    for file in [file for file in files if file.is_documentation_page()]:
        text = file.content_string
        for target in {outside(file.src_uri, match[1]) for match in _LINK.finditer(text)} - {None}:
            assert target is not None
            page = page_of(target)
            if page not in known and (ROOT / target).is_file():
                known.add(page)
                files.append(File.generated(config, page, content=shown(target), inclusion=NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turns links to files outside of docs/ into links to their pages."""
    here = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        target = outside(here, match[1])
        if target is None or not (ROOT / target).is_file() or here.startswith("project/"):
            return match[0]
        relative = posixpath.relpath(page_of(target), posixpath.dirname(here) or ".")
        return f"]({relative}{match[2] or ''})"

    return _LINK.sub(link, markdown)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that nobody has put into the navigation stand under Guides."""
    docs = Path(config.docs_dir)
    named = set(re.findall(r"[\w./-]+\.md", str(config.nav)))
    missing = sorted(
        str(path.relative_to(docs)) for path in docs.rglob("*.md") if str(path.relative_to(docs)) not in named
    )
    for section in config.nav or []:
        if "Guides" in section:
            section["Guides"] += missing
    return config


def outside(page: str, target: str) -> str | None:
    """The path in the repository of what a link leads to, if that is not in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith(("docs/", "..")) else path


def page_of(target: str) -> str:
    return f"project/{target if target.endswith('.md') else target + '.md'}"


def shown(target: str) -> str:
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):  # its links are for the repository
        return re.sub(r"\[([^\]]+)\]\((?!\w+:)[^)]*\)", r"\1", text)
    language = {".py": "python", ".sh": "bash", ".yaml": "yaml"}.get(Path(target).suffix, "text")
    return f"# {target}\n\n````{language}\n{text}````\n"
