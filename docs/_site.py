"""Hooks of MkDocs: they make the reference and the project's pages, and turn links to code."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from astra.devtools.code_map import anchor
from astra.devtools.reference import pages

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {f"reference/{name}.md": text for name, text in pages(ROOT).items()}
    made |= {place: relinked((ROOT / name).read_text("utf-8")) for name, place in PROJECT.items()}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to source files, which are not on the site, lead to their places on the code's map."""

    def mapped(link: re.Match[str]) -> str:
        return f"](reference/modules.md#{anchor(Path(link.group(1)))})"

    return re.sub(r"\]\(\.\./(?:src/astra/)?([\w/]+\.py)\)", mapped, text)


def relinked(text: str) -> str:
    """Links of a file at the repository's root, as seen from project/."""

    def moved(link: re.Match[str]) -> str:
        target, fragment = link.group(1), link.group(2) or ""
        if target in PROJECT:
            return f"]({Path(PROJECT[target]).name}{fragment})"
        if target.startswith("docs/"):
            return f"](../{target.removeprefix('docs/')}{fragment})"
        if target.endswith(".py"):
            place = anchor(Path(target.removeprefix("src/astra/")))
            return f"](../reference/modules.md#{place})"
        return link.group(0)

    return re.sub(r"\]\(([^)#]+)(#[^)]*)?\)", moved, text)
