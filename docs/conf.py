"""Settings of the documentation site. `make docs` builds it: `docs/build_site.py` first gathers the pages."""

import sys
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import site_math  # noqa: E402

import counterpoint  # noqa: E402

for public in counterpoint.__all__:
    getattr(counterpoint, public)  # loads what is deferred, before a sub-package of the same name could hide it

project = "Counterpoint"
author = "the authors of Counterpoint"
release = version = counterpoint.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["sphinx_gallery.gen_gallery"]
exclude_patterns = ["files"]
nitpicky = True
# Types of other packages have no page here, and those of ours have one where a user meets them.
nitpick_ignore_regex = [("py:(class|obj|data|exc)", ".*"), ("py:(func|meth|mod)", r"(?!counterpoint).*")]

myst_heading_anchors = 6  # links to headings, as on GitHub
myst_enable_extensions = ["attrs_inline"]

napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True  # attributes stand in the docstring of their class, and there only
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": ".*",  # every example is executed
    "ignore_pattern": "__init__",
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "plot_gallery": True,
    "image_scrapers": ("matplotlib",),
    "image_srcset": ["2x"],
    "default_thumb_file": str(HERE / "report.png"),
}

html_theme = "furo"
html_title = f"Counterpoint {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = False
html_copy_source = False
html_math_renderer = "drawn"
templates_path: list[str] = []
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"


def join_sources(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    """Indented lines after `Source: ...` continue with it; to docutils they would define a term."""
    is_source = False
    for number, line in enumerate(lines):
        is_source = line.startswith("Source:") or (is_source and line.startswith("    "))
        lines[number] = line.lstrip() if is_source else line


def setup(app: Sphinx) -> None:
    """Draw formulas while building, as a page loads nothing."""
    import_module("matplotlib").use("agg")
    site_math.add_to(app)
    app.connect("autodoc-process-docstring", join_sources, priority=400)  # before napoleon
