"""Pages of the reference that are made from settings: one per verb, and one of all settings of training."""

import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic.fields import FieldInfo

import counterpoint
from counterpoint.cli.arguments import build_parser, read_words
from counterpoint.cli.parsers import VERBS, load_verb
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import expectation, leaf_fields, section_of
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.active_settings import idle_settings

OTHER_NAMES = {"spectrum": "hessian_spectrum"}  # of a verb's function, where it is not that of the verb
NO_FUNCTION = {
    "geometry": "In Python this is {py:func}`counterpoint.theory.optimal_geometry` with "
    "{py:func}`~counterpoint.theory.collapse_threshold`, {py:func}`~counterpoint.theory.rebalance` and "
    "{py:func}`~counterpoint.theory.phase_diagram`.",
    "demo": "It calls {py:func}`~counterpoint.train`, {py:func}`~counterpoint.evaluate`, "
    "{py:func}`~counterpoint.diagnose` and {py:func}`~counterpoint.report` one after the other.",
}
SUBJECTS = ("subject", "run", "runs", "data", "queries")  # flags whose values a function takes by their place
NOT_IN_PYTHON = {"as_json", "json_file", "quiet"}
COMMON = ("quiet", "as_json")


def cell(text: str) -> str:
    """Text that fits in a cell of a table, with commands and flags set as code."""
    return with_flags(" ".join(text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").split()))


def with_flags(text: str) -> str:
    """Text whose flags are set as code: two hyphens would become a dash."""
    return re.sub(r"(?<![`\w-])(--[a-z][\w.-]*\w)", r"`\1`", text)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; on a narrow screen each of its rows is a block (`static/site.css`)."""
    heads, lines = list(heads), [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        ["```{container} records", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *lines, "```", ""]
    )


def code(text: str) -> str:
    """A name, command or value, as a cell of a table holds it."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def takes(field: FieldInfo) -> str:
    """Values that a field takes, in words."""
    return {"true or false": "switch"}.get(words := expectation(field), words)


def default(field: FieldInfo) -> str:
    """The default of a field; empty if leaving it out is its default."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    words = "off" if value is False else "on" if value is True else str(value)
    return "" if value is None or value in ((), "", {}) else code(words)


def teaching(verb: str) -> tuple[str, list[str], str]:
    """Parts of the help of a verb: what it does, its examples, what else there is to know."""
    words, _, rest = re.sub(r"\nexamples?:\n", "\0", str(load_verb(verb).__doc__)).partition("\0")
    examples, _, after = rest.partition("\n\n")
    return with_flags(words.strip()), [line.strip() for line in examples.splitlines()], with_flags(after.strip())


def flag_rows(verb: str) -> Iterator[list[str]]:
    """A row for each argument and flag of a verb that is not a setting of training."""
    parser, model = build_parser(verb), get_type_hints(load_verb(verb).run)["flags"]
    fields: Mapping[str, FieldInfo] = model.model_fields
    # First what is given by its place, last what every verb has.
    for action in sorted(parser._actions, key=lambda each: (bool(each.option_strings), each.dest in COMMON)):
        field = fields.get(action.dest)
        if field is None:
            continue
        names = ", ".join(code(name) for name in action.option_strings) or code(str(action.metavar))
        kind = "names, separated by commas" if "a list of names" in takes(field) else takes(field)
        # `--no-cache` is described by what it leaves out.
        words = str(action.help).replace("%%", "%") if field.default is True else str(field.description)
        default_text = "" if field.default is True or field.default is False else default(field)
        yield [names, cell(kind), default_text, cell(words)]
    for name in parser.settable:
        if name in fields:  # it has no flag of its own
            field = fields[name]
            flag = f"--{name.replace('_', '-')}"
            yield [
                code(flag),
                cell(takes(field)),
                default(field),
                cell(f"by `--set` or for short: {field.description}"),
            ]


def verb_page(verb: str) -> str:
    """Page of a verb: what it does, usage, examples, flags, the function of Python."""
    words, examples, after = teaching(verb)
    parser = build_parser(verb)
    parts = [f"# counterpoint {verb}", words, f"```text\n{parser.usage}\n```"]
    parts += ["## Examples", "```sh\n" + "\n".join(examples) + "\n```", after]
    parts += ["## Arguments and flags", table(["flag", "takes", "default", "meaning"], flag_rows(verb))]
    if parser.settable:
        fields = dict(leaf_fields(TrainSettings))
        parts += ["## Settings of training", settable_words(verb, [path for path in parser.settable if path in fields])]
    return "\n\n".join([*parts, "## In Python", python_words(verb, examples[0])]) + "\n"


def settable_words(verb: str, paths: Iterable[str]) -> str:
    """Words on the settings of training that a verb takes, and on how they are given."""
    paths, by_section = list(paths), dict[str, list[str]]()
    for path in paths:
        by_section.setdefault(path.rpartition(".")[0], []).append(path)
    all_paths = {path for path, _ in leaf_fields(TrainSettings)}
    lines = [
        f"- all of `{section}`"
        if section and set(section_paths) == {path for path in all_paths if path.startswith(f"{section}.")}
        else "- " + ", ".join(map(code, section_paths))
        for section, section_paths in by_section.items()
    ]
    how = f"Each is given as `--NAME VALUE`, such as `--{paths[-1].replace('_', '-')} VALUE`, or by `--set NAME=VALUE`."
    return f"`{verb}` takes these of the [settings](../settings.md). {how}\n\n" + "\n".join(lines)


def function_of(verb: str) -> Callable[..., Any] | None:
    """The function of Python that does what a verb does."""
    name = OTHER_NAMES.get(verb, verb.replace("-", "_"))
    # Not by getattr: a package of the same name, once imported, would be found in place of the function.
    return counterpoint.__getattr__(name) if name in counterpoint.__all__ else None


def python_words(verb: str, example: str) -> str:
    """The function of a verb, with the first example as a call of it."""
    function = function_of(verb)
    if function is None:
        return NO_FUNCTION.get(verb, "This verb has no function in Python: it prints what the folders and lists hold.")
    name = OTHER_NAMES.get(verb, verb.replace("-", "_"))
    call, arguments, named = call_of(verb, example)
    inspect.signature(function).bind(*arguments, **named)  # a call that the function would not take fails the build
    json = " `--json` prints what the record holds." if build_parser(verb)._option_string_actions.get("--json") else ""
    return (
        f"{{py:func}}`counterpoint.{name}` takes the same, with `_` for `-` in names; what a flag writes or prints is "
        f"in the record that it returns.{json}\n\n```python\nimport counterpoint as cp\n\ncp.{name}({call})\n```"
    )


def call_of(verb: str, example: str) -> tuple[str, list[Any], dict[str, Any]]:
    """A command as arguments of a function: as code, by place, by name."""
    flags, *settings = read_words(verb, shlex.split(example)[2:])
    arguments = {name: getattr(flags, name) for name in flags.model_fields_set - NOT_IN_PYTHON}
    arguments |= settings[0] if settings else {}
    parameters = inspect.signature(function_of(verb) or print).parameters
    if "out" not in parameters and verb != "train":  # Python returns what these flags write
        arguments.pop("out", None)
    placed = [plain(arguments.pop(name)) for name in SUBJECTS if name in arguments]
    named = {name: plain(value) for name, value in arguments.items()}
    words = ", ".join([*map(repr, placed), *(f"{name}={value!r}" for name, value in named.items())])
    return words.replace("'", '"'), placed, named


def plain(value: Any) -> Any:
    """Several names as a list, one as itself."""
    names = [str(name) for name in value] if isinstance(value, tuple) else value
    return names[0] if isinstance(names, list) and len(names) == 1 else str(names) if isinstance(names, str) else names


@cache
def readers() -> Mapping[str, list[str]]:
    """Verbs that read each setting of training, by its path."""
    verbs: dict[str, list[str]] = {path: [] for path, _ in leaf_fields(TrainSettings)}
    for verb in VERBS:
        for path in verbs.keys() & set(build_parser(verb).settable):
            verbs[path].append(verb)
    return verbs


@cache
def idle_by_method() -> Mapping[str, Mapping[str, str]]:
    """Settings without effect for each method, where all others have their defaults."""
    return {name: idle_settings(TrainSettings(method=name)) for name in METHODS}


def where(path: str) -> str:
    """Words on where a setting has an effect; empty if it has one everywhere."""
    owners = [name for name, idle in idle_by_method().items() if path not in idle]
    if len(owners) == len(METHODS):
        return ""
    if owners:
        return f" (methods {', '.join(owners)})"
    why = next(iter(idle_by_method().values()))[path]
    condition = re.fullmatch(r"(\S+) is .+; it is for (.+)", why)
    return f" (only where `{condition[1]}` is {condition[2].replace(' and ', ' or ')})" if condition else ""


def settings_page() -> str:
    """Page of every setting of training, grouped by section."""
    parts = [
        "# All settings",
        "Each setting is given on the command line (`--optim.name sgd`), in a file (`train --config run.yaml`) or in "
        'Python (`cp.train(..., optim={"name": "sgd"})`). What is `auto` is chosen when the data and the method are '
        "known; the choice and its reason are in `RUN/resolved.yaml`. A setting that has no effect in a run is refused "
        "with one line that says why.",
    ]
    sections: dict[str, list[tuple[str, FieldInfo]]] = {}
    for path, field in leaf_fields(TrainSettings):
        sections.setdefault(path.rpartition(".")[0], []).append((path, field))
    for section, fields in sections.items():
        record = section_of(TrainSettings.model_fields[section]) if section else None
        about = inspect.getdoc(record) if record else "What is trained on what, and for how long."
        rows = [
            [code(path), cell(takes(field)), default(field),
             cell(f"{field.description}{where(path)}"), ", ".join(readers()[path])]
            for path, field in fields
        ]  # fmt: skip
        parts += [
            f"## {section or 'The run'}",
            str(about),
            table(["name", "takes", "default", "meaning", "verbs"], rows),
        ]
    return "\n\n".join(parts) + "\n"


def verb_pages() -> Iterator[tuple[str, str]]:
    """The name and text of each page."""
    rows = [[f"[`{verb}`]({verb}.md)", cell(summary)] for verb, summary in VERBS.items()]
    about = "Each verb has a page with its flags. `counterpoint VERB --help` prints the same."
    listed = "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(VERBS) + "\n```\n"
    yield "verbs/index.md", "\n\n".join(["# Commands", about, table(["verb", "what it does"], rows), listed])
    for verb in VERBS:
        yield f"verbs/{verb}.md", verb_page(verb)
    yield "settings.md", settings_page()
