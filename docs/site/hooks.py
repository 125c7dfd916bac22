"""What the site needs beside mkdocs and its plugins: formulas, figures, and links to files outside of `docs/`.

Pages are written for GitHub, with relative links such as `../examples/quickstart.py`. In the site, such a file becomes
a page of its own.
"""

import re
from html import unescape
from pathlib import Path

import latex2mathml.converter
from mkdocs.structure.files import File, InclusionLevel


ROOT = Path(__file__).parents[2]
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages at the top of the repository, and what they are in the site."""

OUTSIDE = re.compile(r"(?<=\]\()\.\./(?P<path>[^)#\s]+)")
"""A link from a page in `docs/` to a file outside of it."""

FROM_TOP = re.compile(r"(?<=\]\()(?:docs/)?(?P<path>(?!https?:)[^)#\s]+)")
"""A link from a page at the top of the repository."""

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)
NAME = re.compile(
    r"(?P<skip><(?P<tag>a|autoref|h\d|pre)\b.*?</(?P=tag)>)|<code>(?P<name>plastax(?:_\w+)?(?:\.\w+)+)</code>",
    re.DOTALL,
)
"""A public name in code font, outside of links, headings and programs."""

FIGURE = re.compile(r'<img [^>]*src="(?P<source>[^"]+)"[^>]*>')


def on_files(files, config):
    """Adds the pages at the top of the repository, and one for each file outside of `docs/` that a page links to."""
    for path in ("CONTRIBUTING.md", "CHANGELOG.md"):
        content = FROM_TOP.sub(lambda match: TOP.get(match["path"], match["path"]), (ROOT / path).read_text())
        files.append(File.generated(config, TOP[path], content=content))
    pages = [file for file in files.documentation_pages() if "/" not in file.src_uri]
    linked = {path for file in pages for path in OUTSIDE.findall(file.content_string)} - TOP.keys()
    for path in sorted(linked):
        if (ROOT / path).is_file():  # Otherwise mkdocs warns of a broken link.
            content = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n```python\n{(ROOT / path).read_text()}```\n"
            files.append(
                File.generated(config, source_page(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV)
            )
    return files


def source_page(path: str) -> str:
    """The page of the site that shows a file of the repository."""
    return f"source/{path.removesuffix('.py')}.md"


def on_page_markdown(markdown, page, config, files):
    """Points links to files outside of `docs/` to their pages. A menu with one entry is hidden."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    if "/" in page.file.src_uri:
        return markdown
    return OUTSIDE.sub(lambda match: TOP.get(match["path"]) or source_page(match["path"]), markdown)


def on_page_content(html, page, config, files):
    """Makes formulas MathML, which browsers show without scripts, and figures and names links."""
    html = FORMULA.sub(lambda match: mathml(unescape(match["tex"]), match["tag"]), html)
    html = NAME.sub(lambda match: match["skip"] or reference(match["name"]), html)
    return FIGURE.sub(lambda match: f'<a class="figure" href="{match["source"]}">{match[0]}</a>', html)


def reference(name: str) -> str:
    """A link to the name in the API pages, if it is there."""
    return f'<autoref optional identifier="{name}"><code>{name}</code></autoref>'


def mathml(tex: str, tag: str) -> str:
    """A formula in a line of text (a span) or on its own (a div)."""
    return latex2mathml.converter.convert(tex, display="inline" if tag == "span" else "block")
