"""Sphinx settings of the manual: ``make docs`` builds it offline and runs its notebooks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import daco

# Notebooks call ``daco`` as a terminal would.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

project = "daco"
author = "The daco developers"
copyright = author
version = release = daco.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
    "command_help",
    "notebook",
    "rooms",
]
exclude_patterns = ["_build"]
highlight_language = "text"
default_role = "py:obj"

nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # as in the source: values may tell of the computer, as os.environ
autodoc_typehints = "none"  # the docstrings tell types in words, shorter than the annotations do
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_maximum_signature_line_length = 88

html_theme = "pydata_sphinx_theme"
html_title = f"daco {release}"
html_static_path = ["_static"]
html_css_files = ["daco.css"]
html_copy_source = False
html_show_sourcelink = False
# Pages that no others are below need no navigation at their side.
html_sidebars = {page.stem: [] for page in Path(__file__).parent.glob("*.md")}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navigation_with_keys": False,
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
