"""Phrases that plain technical English does without, and the prose in which they are looked for.

``PYTHONPATH=tests python -m helpers.phrases README.md docs`` prints them, docstrings of a Python file included.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path

PHRASES = [
    # a relative clause without a noun: write the waiter, the holder, the caller, the cached lock
    r"(?:^|[.;:(] |, and |, or |\bthan |\bto |\bby |\bof |\bfor |\bfrom |\bwith )who(?:ever)?\b(?! |\?$)",
    r"(?:^|[.;:(] )[Ww]ho(?:ever)? (?![^.]*\?)",
    r"\b(?:and|or|but|if|that|than|to|by|of|for|from|with|between|only|all|nobody|somebody|everybody) who\b(?![^.]*\?)",
    r"\bwhoever\b",
    r"\bwhom\b",
    r"(?:^|[.;:(] )What (?:is|was|are|were|has|had|nobody|somebody|stays|waits|comes|remains|counts) (?![^.]*\?)",
    # a machine that is taken for a person: a process exits, a session ends, a callback is called
    r"\b(?:he|him|his|himself|she|mourn\w*|heirs?|dies|died|farewells?)\b",
    r"\b(?:is|are|was|were|be|been) told\b",
    # archaisms, and German word for word
    r"\banew\b",
    r"\bfor ever\b",
    r"\bso many\b",
    r"\bso long as\b",
    r"\bas (?:many|much|long|often) as may be\b",
    r"\bmay be had\b|\bto be had\b",
    r"\bby hand\b",
    r"\bstands? (?:in|there|for itself|alone|still|on|under|beside|behind)\b|\bstood\b",
    r"\bsome(?:body|one) else\b|\bsomebody\b|\beverybody\b",
    r"\bmeanwhile\b",
    r"[;:] else\b",
    r"\bgoes (?:to|at once|on|back|by|with|away)\b|\bgo on\b",
    r"\blet go\b|\blets go\b",
    r"\bat last\b|\bby now\b|\bever so\b",
    r"\bthe way past\b|\bput by\b|\blaser beams?\b|\bby halves\b",
]
PATTERN = re.compile("|".join(PHRASES), re.MULTILINE)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a Markdown file, or the prose of a Python file, with their line numbers."""
    text = path.read_text()
    if path.suffix == ".md":
        yield from paragraphs(text, 1)
        return
    for line, prose in [*docstrings_and_messages(text), *comments(text), *test_names(text)]:
        yield from paragraphs(prose, line)


def docstrings_and_messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, and all other strings of at least three words: messages of errors and logs, help texts."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    having = [node for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node) is not None]
    docstrings = {id(node.body[0].value): node for node in having}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node_of := docstrings.get(id(node)):
                yield node.lineno, ast.get_docstring(node_of) or ""
            elif len(node.value.split()) > 2 and not looks_like_code(node.value):
                yield node.lineno, textwrap.dedent(node.value)


def looks_like_code(text: str) -> bool:
    """Return whether a string is a program, for a test to run."""
    return bool(re.search(r"^\s*(import|from \S+ import|def|class|async def|with|return|\w+ = ) ?", text, re.MULTILINE))


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, those of consecutive lines as one."""
    block: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != first + len(block):
                yield first, "\n".join(block)
                block = []
            first = first if block else token.start[0]
            block.append(token.string.lstrip("#: "))
    if block:
        yield first, "\n".join(block)


def test_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names of tests as sentences."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


def paragraphs(text: str, first_line: int) -> Iterator[tuple[int, str]]:
    """Yield paragraphs without code: no blocks, no spans, no doctests, no links' addresses."""
    without_blocks = re.sub(r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    line = first_line
    for paragraph in without_blocks.split("\n\n"):
        kept = "\n".join(each for each in paragraph.split("\n") if not re.match(r"\s*(>>>|\.\.\. |    \S.*::)", each))
        kept = re.sub(r"``[^`]+``|`[^`]+`", "X", kept)
        kept = re.sub(r"\]\([^)]*\)", "]", kept)
        yield line, " ".join(kept.split())
        line += paragraph.count("\n") + 2


def findings(path: Path) -> Iterator[str]:
    """Yield each phrase of a file, with its line and its surroundings."""
    for line, paragraph in prose_of(path):
        for found in PATTERN.finditer(paragraph):
            start = max(0, found.start() - 30)
            yield f"{path}:{line}: {found[0].strip()!r} in ...{paragraph[start : found.end() + 30]}..."


def files_of(path: Path) -> list[Path]:
    """Return the Markdown and Python files of a path."""
    return [path] if path.is_file() else sorted([*path.rglob("*.md"), *path.rglob("*.py")])


def main(paths: list[str]) -> None:
    """Print what is found in ``paths``."""
    for path in paths:
        for file in files_of(Path(path)):
            for finding in findings(file):
                print(finding)


if __name__ == "__main__":
    main(sys.argv[1:])
