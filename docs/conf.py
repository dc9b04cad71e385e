"""How Sphinx builds the documentation: ``make docs``."""

from __future__ import annotations

import socket

from distsync import __version__

project = "distsync"
author = "The distsync authors"
copyright = "The distsync authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
exclude_patterns = ["performance/*"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": "int, tuple, BaseException"}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_include_special_with_doc = False
napoleon_use_ivar = True
# an annotation says Lock, and three modules have one
suppress_warnings = ["ref.python"]
add_module_names = False
python_maximum_signature_line_length = 88


def has_network() -> bool:
    """Return whether Python's documentation, to which names of the standard library link, can be reached."""
    try:
        socket.create_connection(("docs.python.org", 443), timeout=2).close()
    except OSError:
        return False
    return True


intersphinx_mapping = {"python": ("https://docs.python.org/3", None)} if has_network() else {}

html_theme = "furo"
html_title = "distsync"
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
