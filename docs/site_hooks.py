"""What the site needs beside its pages: formulas as MathML, doctests as code blocks.

Read by mkdocs (`hooks`) and by mkdocstrings (`extensions`), both named in mkdocs.yml. Formulas are
written as `$...$`; pymdownx.arithmatex finds them, and here they become MathML, which browsers draw
without a script. Doctests in docstrings would be quotations in Markdown.
"""

import re
from html import unescape
from typing import Any

import griffe
from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL | re.MULTILINE
)


def on_page_content(html: str, **_: Any) -> str:
    """The page with its formulas as MathML."""

    def drawn(found: re.Match[str]) -> str:
        display = "inline" if found[1] == "span" else "block"
        return convert(unescape(found[2]), display=display)

    return _FORMULA.sub(drawn, html)


def fenced(text: str) -> str:
    r"""A docstring with a fence around each doctest, up to the next empty line.

    >>> print(fenced("Sum:\n\n>>> 1 + 1\n2"))
    Sum:
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    lines, inside = [], False
    for line in [*text.splitlines(), ""]:
        if not inside and line.lstrip().startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])


class FencedDoctests(griffe.Extension):
    """Puts fences around the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring before it is parsed into sections."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
