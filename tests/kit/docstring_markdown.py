"""A Google-style docstring in Markdown: sections as lists, names in single back quotes."""

from __future__ import annotations

import re
import textwrap

_LISTS = ("Args", "Attributes", "Raises", "Reading raises")
_TEXTS = ("Returns", "Yields", "Cost", "Source")
_SECTION = re.compile(
    rf"^({'|'.join((*_LISTS, *_TEXTS))}):(?: |\n)((?:.*\n)(?:(?: .*)?\n)*)", re.MULTILINE
)
_ENTRY = re.compile(r"^(\*{0,2}\w+): ?((?:.|\n(?= |\n))*)", re.MULTILINE)


def markdown(doc: str, root: str) -> str:
    """Return a docstring as Markdown.

    Args:
        doc: The docstring without indentation, as of ``inspect.getdoc``.
        root: The path of the repository from the page's folder, such as ``../..``; paths of
            documents, such as ``docs/doctor.md``, become links.
    """
    text = _SECTION.sub(lambda found: _section(*found.groups()), f"{doc}\n").replace("``", "`")
    text = re.sub(r"`?\bdocs/((?:[\w-]+/)*[\w-]+\.md)\b`?", rf"[docs/\1]({root}/docs/\1)", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _section(name: str, body: str) -> str:
    """Return a section with its name in bold; entries as a list."""
    # A text may begin on the section's own line, before its indented ones.
    first, _, rest = body.partition("\n")
    text = textwrap.dedent(body) if first[:1] == " " else f"{first}\n{textwrap.dedent(rest)}"
    if name in _LISTS:
        entries = _ENTRY.findall(text)
        assert entries, f"{name} without entries: {body}"
        listed = "\n".join(f"- `{entry}`: {_entry(told)}" for entry, told in entries)
        return f"\n**{'Parameters' if name == 'Args' else name}**\n\n{listed}\n\n"
    return f"\n**{name}**: {text.strip()}\n\n"


def _entry(text: str) -> str:
    """Return an entry's first paragraph as one line, with what follows indented below it."""
    first, _, rest = text.strip().partition("\n\n")
    below = textwrap.indent(f"\n\n{textwrap.dedent(rest)}", "  ") if rest else ""
    return " ".join(first.split()) + below
