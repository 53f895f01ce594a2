"""Hooks of mkdocs (mkdocs.yml): the fences named mermaid are diagrams; links that leave docs/ have no page on the site,
so only their text is left."""

import posixpath
import re

from pymdownx.superfences import fence_code_format

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config):
    """Make a fence named mermaid a diagram, which the theme draws."""
    fences = [{"name": "mermaid", "class": "mermaid", "format": fence_code_format}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def on_page_markdown(markdown, page, **_):
    """Return the page's text without links to files of the repository that are not below docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(found):
        text, target = found[1], found[2]
        outside = posixpath.normpath(posixpath.join(folder, target)).startswith("..")
        return text if outside and "://" not in target else found[0]

    return LINK.sub(link, markdown)
