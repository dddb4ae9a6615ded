"""Builds the documentation site: python docs/build_site.py [FOLDER]; warnings are errors, nothing is downloaded.

The pages lie where GitHub readers look for them: in docs/, beside each paper's code, at the root. They are gathered in
FOLDER-source (build/docs-source) under the names that they have in the site. Links between them are rewritten on the
way; a linked file that is not a page is copied, so that it can be downloaded. The pages of the API are written from
`__all__`, those of verbs, settings, losses and metrics from their records (`verb_pages`, `catalogue_pages`), those of
notebooks by running them (`notebook_pages`). A page that is new in docs/ needs no line here: it is a guide.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType

from catalogue_pages import catalogue_pages
from notebook_pages import notebook_pages
from sphinx.cmd.build import main as sphinx_build
from verb_pages import verb_pages

import counterpoint
from counterpoint.losses import CATALOGUE

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"

# Where a page is in the site, if not below reference/ (docs/*-reference.md), below guides/ (each other docs/*.md)
# or at its place below docs/.
PLACES: Mapping[str, str] = {
    "docs/index.md": "index.md",
    "docs/quick-start.md": "quick-start.md",
    "docs/installation.md": "installation.md",
    "docs/theory.md": "explanation/theory.md",
    "docs/curvature.md": "explanation/curvature.md",
    "docs/patterns.md": "explanation/patterns.md",
    "docs/release-0.3.0.md": "project/release-0.3.0.md",
    "docs/errata.md": "papers/errata.md",
    "docs/papers/README.md": "papers/index.md",
    "docs/architecture.md": "project/architecture.md",
    "docs/decisions.md": "project/decisions.md",
    "docs/benchmarks.md": "project/benchmarks.md",
    "docs/promises.md": "project/promises.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "README.md": "project/readme.md",
}
FOLDERS: Mapping[str, str] = {  # links to a folder, and the page that says what is in it
    "examples": "gallery/index.rst",
    "docs/notebooks": "index.md",
    "docs/papers": "papers/index.md",
    "docs/recipes": "recipes/index.md",
    "reproductions": "papers/index.md",
}
CODE = re.compile(r"(^[ ]*```.*?^[ ]*```|`[^`\n]+`)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]+)?\)")  # its text may be code, which is another part

# Pages of the API: title, modules, and which of their public names (all that no other page has, where none is named).
FUNCTIONS = ["train", "resume", "load", "evaluate", "evaluate_seeds", "compare", "diagnose", "hessian_spectrum"]
FUNCTIONS += ["fine_tune", "embed", "report", "preview", "verify"]
MEASUREMENTS = ["spectra", "alignment", "crowding", "class_geometry", "concepts"]
API: Mapping[str, tuple[str, list[str], list[str]]] = {
    "functions": ("Python functions", ["counterpoint"], FUNCTIONS),
    "estimator": ("The scikit-learn estimator", ["counterpoint"], ["ContrastiveEncoder"]),
    "records": ("Records and errors", ["counterpoint"], []),
    "losses": ("Building blocks of losses", ["counterpoint.losses"], []),
    "theory": ("Functions of theory", ["counterpoint.theory"], []),
    "measurements": ("Measurements of features", [f"counterpoint.diagnostics.{name}" for name in MEASUREMENTS], []),
}


def pages() -> dict[Path, PurePosixPath]:
    """Each page of the repository, and its place in the site."""
    places = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        below = name.removeprefix("docs/")
        room = "reference" if below.endswith("-reference.md") else "guides"
        places[path] = PurePosixPath(PLACES.get(name, below if "/" in below else f"{room}/{below}"))
    places |= {ROOT / name: PurePosixPath(place) for name, place in PLACES.items() if "/" not in name}
    for path in sorted((ROOT / "reproductions").glob("*/README.md")):
        places[path] = PurePosixPath("papers", f"{path.parent.name}-claims.md")
    return places


def with_links(page: Path, places: Mapping[Path, PurePosixPath], source: Path) -> str:
    """A page whose links lead to the same things from its place in the site; code stays as it is."""
    here = places[page].parent

    def moved(link: re.Match[str]) -> str:
        opening, target, anchor = link[1], link[2], link[3] or ""
        path = (page.parent / target).resolve()
        if "://" in target or not path.exists():  # a dead link stays, and Sphinx names it
            return link[0]
        place = places.get(path) or place_of_other(path, source)
        return f"{opening}{Path(os.path.relpath(place, here)).as_posix()}{anchor})"

    parts = CODE.split(page.read_text(encoding="utf-8"))
    return "".join(part if place % 2 else LINK.sub(moved, part) for place, part in enumerate(parts))


def place_of_other(path: Path, source: Path) -> PurePosixPath:
    """Place of a folder in the site, or of a file that is not a page: it is copied."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return PurePosixPath(FOLDERS[name])
    put(source / "files" / name, path.read_bytes())
    return PurePosixPath("files", name)


def put(path: Path, content: bytes) -> Path:
    """Write a file if it changed, so that Sphinx reads again only what did."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    return path


def api_pages() -> Iterator[tuple[str, str]]:
    """The name and text of each page of the API."""
    listed = {name for _, _, names in API.values() for name in names}
    with_own_page = {build.__name__ for build in CATALOGUE.values()}
    for page, (title, modules, names) in API.items():
        parts = [title, "=" * len(title), ""]
        for module in map(import_module, modules):
            parts += heading(module) if len(modules) > 1 else []
            parts += [f".. currentmodule:: {module.__name__}", ""]
            public = names or [name for name in public_names(module) if name not in listed | with_own_page]
            parts += [line for name in public for line in entry(module, name)]
        yield f"{page}.rst", "\n".join(parts)


def heading(module: ModuleType) -> list[str]:
    """Lines that begin the section on a module: its name, then its first paragraph."""
    name = f"``{module.__name__}``"
    return [name, "-" * len(name), "", (module.__doc__ or "").partition("\n\n")[0], ""]


def public_names(module: ModuleType) -> list[str]:
    """Public names of a module: its ``__all__``, or the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [name for name, value in vars(module).items() if is_own(module, name, value)]


def is_own(module: ModuleType, name: str, value: object) -> bool:
    """Tell whether a name is public and its value defined in this module."""
    return not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module.__name__


def entry(module: ModuleType, name: str) -> list[str]:
    """The lines that document one name; modules have pages of their own, plain values none."""
    value = getattr(module, name)
    if isinstance(value, type):
        return [f".. autoclass:: {name}", "   :members:", "   :show-inheritance:", ""]
    is_function = callable(value)
    return [f".. autofunction:: {name}", ""] if is_function else []


def gather(source: Path) -> None:
    """Write the sources of the site; remove files that were pages and are none any more."""
    places = pages()
    written = {put(source / place, with_links(page, places, source).encode()) for page, place in places.items()}
    written |= {put(source / "api" / name, text.encode()) for name, text in api_pages()}
    made = (("reference", verb_pages()), ("reference", catalogue_pages()), ("notebooks", notebook_pages()))
    for folder, contents in made:
        for name, content in contents:
            written.add(put(source / folder / name, content.encode() if isinstance(content, str) else content))
    programs = {path.stem for path in (ROOT / "examples").glob("*.py")} | {"index"}
    for path in source.rglob("*.*"):
        room, name = path.relative_to(source).parts[0], path.name.partition(".")[0]
        is_kept = (
            path in written or room == "files" or (room == "gallery" and ("images" in path.parts or name in programs))
        )
        if path.is_file() and not is_kept:
            path.unlink()


def build(site: Path) -> int:
    """Gather the pages and build the site; return an exit code, not 0 if there was a warning."""
    source = site.with_name(f"{site.name}-source")
    gather(source)
    if (site / ".buildinfo").exists():  # an earlier site, perhaps with pages that are none any more
        shutil.rmtree(site)
    flags = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--jobs", "1"]
    code = sphinx_build([*flags, "-c", str(ROOT / "docs"), str(source), str(site)])
    if code == 0:
        shutil.rmtree(site / ".doctrees", ignore_errors=True)
        num_pages = len(list(site.rglob("*.html")))
        print(f"counterpoint {counterpoint.__version__}: {num_pages} pages, start with {site}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else SITE))
