"""The documents as their readers have them: links, anchors, and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CODE_BLOCK = re.compile(r"\{code-block\} (\w+)")
MENTION = "a sentence"
"""Language of a command that a sentence names, perhaps without its arguments."""

CAPTION = re.compile(r":caption: (\S+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code.

    Attributes:
        page: File that has it.
        line: Line where it begins.
        language: Language, or the name of a directive.
        text: Content.
        file: File that the reader saves it as; empty: none.
    """

    page: Path
    line: int
    language: str
    text: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def pages() -> list[Path]:
    """All documents: those of Sphinx, and the READMEs and other pages of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    for folder in (
        "arena",
        "populations",
        "tools",
        "examples",
        "experiments",
        "tests",
        "docs",
        ".github",
    ):
        found += (ROOT / folder).rglob("*.md")
    built = (DOCS / "_build", DOCS / "benchmarks")
    return sorted(
        path for path in found if not (path.name != "index.md" and path.is_relative_to(built[1]))
        and not path.is_relative_to(built[0])
    )  # fmt: skip


@cache
def tokens(page: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt().enable("table").parse(page.read_text(encoding="utf8")))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of code of a page, and the commands in its sentences."""
    for token in tokens(page):
        if token.type == "fence" and token.map is not None:
            text, file = token.content, ""
            language = token.info.split()[0] if token.info else ""
            if made := CODE_BLOCK.match(token.info):
                language = made[1]
                if caption := CAPTION.match(text):
                    file, text = caption[1], text[caption.end() :].lstrip("\n")
            yield Block(page=page, line=token.map[0] + 1, language=language, text=text, file=file)
        elif token.type == "code_block" and token.map is not None:
            yield Block(page=page, line=token.map[0] + 1, language="", text=token.content)
        elif token.type == "inline" and token.map is not None:
            for child in token.children or ():
                if child.type == "code_inline" and child.content.startswith("arena "):
                    yield Block(
                        page=page, line=token.map[0] + 1, language=MENTION, text=child.content
                    )


def all_blocks(language: str) -> list[Block]:
    """Return the blocks of all pages that say their language."""
    # Every worker collects all tests, and parsing takes long, so pages without a block are left
    # out.
    says = re.compile(rf"```(\{{code-block\}} )?{language}\b")
    found = (page for page in pages() if says.search(page.read_text(encoding="utf8")))
    return [one for page in found for one in blocks(page) if one.language == language]


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links and pictures that lead to files of the repository."""
    for token in tokens(page):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield target


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    found, inner = set(), tokens(page)
    for token, after in pairwise(inner):
        if token.type == "heading_open":
            text = "".join(child.content for child in after.children or ())
            found.add(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    return found


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a block: lines after ``$``, or all of a shell's."""
    lines = block.text.replace("\\\n", " ").splitlines()
    for line in lines:
        if block.language == "console" and line.startswith("$ "):
            yield line[2:]
        elif block.language in ("sh", "", MENTION) and re.match(r"\s*(\S*/)?arena ", line):
            # A remark may follow after at least two blanks.
            yield re.split(r" {2,}", line.strip())[0]
