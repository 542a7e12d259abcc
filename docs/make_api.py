"""Writes docs/api/*.md from the signatures and docstrings of the public names: `make api`.

The source is read, not imported: what decorators do to a function cannot change its page.
"""

import ast
import pathlib
import re
import textwrap
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = {  # page -> (package, how its names are written, what it is)
    "attnjax": ("attnjax", "aj.", "Patterns, the steps of the formula, and attention: `import attnjax as aj`."),
    "nn": ("attnjax.nn", "nn.", "Modules for flax nnx: `from attnjax import nn`."),
    "models": ("attnjax.models", "models.", "Language models: `from attnjax import models`."),
    "show": ("attnjax.show", "show.", "Pictures of patterns, plans, heads and runs: `from attnjax import show`."),
    "page": ("attnjax.show.page", "page.", "The five figures as a file: `from attnjax.show import page`."),
    "heads": ("attnjax.heads", "heads.", "What heads do, measured and named: `from attnjax import heads`."),
}
HEADINGS = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises", "Example": "Example"}
WIDTH = 100  # signatures longer than this take a line for each parameter

Function = ast.FunctionDef
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign


def parsed(module: str) -> ast.Module:
    """The syntax tree of a module of the package."""
    path = ROOT / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def public(module: str) -> list[tuple[str, Definition]]:
    """(name, definition) of every name that the package exports, in its own order."""
    return [
        (alias.name, definition(node.module or "", alias.name))
        for node in parsed(module).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def definition(module: str, name: str) -> Definition:
    """Where a name is defined, also behind re-exports."""
    for node in parsed(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and name in [t.id for t in node.targets if isinstance(t, ast.Name)]:
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return definition(node.module or "", name)
    raise LookupError(f"{module} defines no {name}")


def aliases() -> dict[str, str]:
    """The names of array types in signatures, written out: Queries -> Float[Array, '*B T N H']."""
    found = {}
    for node in parsed("attnjax.shapes").body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = ast.unparse(node.value)
    return found


def signature(call: str, node: Function, drop_first: bool) -> str:
    """The call as text, with array types written out; a long one has a line for each parameter."""
    parts = list(parameters(node.args))[1 if drop_first else 0 :]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    text = f"{call}({', '.join(parts)}){returns}"
    if len(text) > WIDTH:
        text = "\n".join([f"{call}(", *(f"    {part}," for part in parts), f"){returns}"])
    for short, long in aliases().items():
        text = re.sub(rf"\b{short}\b", long, text)
    return text.replace("'", '"')


def parameters(args: ast.arguments) -> Iterator[str]:
    """Each parameter as text, and the bare star."""
    plain = args.posonlyargs + args.args
    yield from map(parameter, plain, [None] * (len(plain) - len(args.defaults)) + list(args.defaults))
    if args.vararg or args.kwonlyargs:
        yield "*" if args.vararg is None else f"*{args.vararg.arg}"
    yield from map(parameter, args.kwonlyargs, args.kw_defaults)
    if args.kwarg:
        yield f"**{parameter(args.kwarg, None)}"


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = arg.arg if arg.annotation is None else f"{arg.arg}: {ast.unparse(arg.annotation)}"
    equals = "=" if arg.annotation is None else " = "
    return text if default is None else f"{text}{equals}{ast.unparse(default)}"


def sections(docstring: str) -> Iterator[tuple[str, str]]:
    """(heading, text) of a Google docstring; the first heading is empty."""
    heads = "|".join(HEADINGS)
    parts = re.split(rf"^({heads}):\n", docstring, flags=re.M)
    yield "", parts[0].strip()
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        yield heading, textwrap.dedent(text).strip("\n")


def markdown(docstring: str) -> Iterator[str]:
    """The docstring as paragraphs of Markdown."""
    for heading, text in sections(docstring):
        if heading:
            yield f"**{HEADINGS[heading]}**"
        if heading == "Example":
            yield f"```pycon\n{text}\n```"
        elif heading in ("Args", "Raises"):
            items = re.split(r"\n(?=\S)", text)
            yield "\n".join("- " + _item(item) for item in items)
        elif text:
            yield text


def _item(text: str) -> str:
    """`name: what it is` as one line of a list."""
    names, colon, rest = " ".join(line.strip() for line in text.splitlines()).partition(": ")
    code = ", ".join(f"`{name}`" for name in names.split(", "))
    return f"{code}: {rest}" if colon else names


def entry(prefix: str, name: str, node: Definition) -> Iterator[str]:
    """Heading, signature, docstring; of a class also its public methods and properties."""
    yield f"## {prefix}{name}"
    if isinstance(node, ast.Assign):
        made = f"{ast.unparse(node.value.func)}(...)" if isinstance(node.value, ast.Call) else ast.unparse(node.value)
        yield f"```python\n{prefix}{name} = {made}\n```"
    elif isinstance(node, ast.FunctionDef):
        yield f"```python\n{signature(prefix + name, node, False)}\n```"
        yield from markdown(ast.get_docstring(node) or "")
    else:
        yield from class_entry(prefix + name, node)


def class_entry(name: str, node: ast.ClassDef) -> Iterator[str]:
    """How it is made, its docstring, its members that have one."""
    methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    fields = [ast.unparse(n).replace("'", '"') for n in node.body if isinstance(n, ast.AnnAssign)]
    fields = [text for text in fields if "ClassVar" not in text and "init=False" not in text]
    values = [ast.unparse(n) for n in node.body if isinstance(n, ast.Assign)]
    if "__init__" in methods:
        yield f"```python\n{signature(name, methods['__init__'], True)}\n```"
    elif fields:
        yield "\n".join([f"```python\n{name}(", *(f"    {text}," for text in fields), ")\n```"])
    elif values:
        yield "\n".join(["```python", *(f"{name}.{text}" for text in values if text[0] != "_"), "```"])
    yield from markdown(ast.get_docstring(node) or "")
    for method in methods.values():
        if ast.get_docstring(method) and (not method.name.startswith("_") or method.name == "__call__"):
            yield from member(name, method)


def member(owner: str, node: Function) -> Iterator[str]:
    """One method or property of a class."""
    decorators = {ast.unparse(d) for d in node.decorator_list}
    call = f"{owner}(...)" if node.name == "__call__" else f"{owner}.{node.name}"
    if "property" in decorators:
        yield f"### {call}"
        yield f"```python\n{call}{f' -> {ast.unparse(node.returns)}' if node.returns else ''}\n```"
    else:
        yield f"### {call}(...)"
        yield f"```python\n{signature(call, node, 'staticmethod' not in decorators)}\n```"
    yield from markdown(ast.get_docstring(node) or "")


def page(title: str) -> str:
    """The text of one page."""
    package, prefix, about = PAGES[title]
    names = public(package)
    parts = [f"# {package}", "Made by `make api` from the docstrings; every example runs in the tests.", about]
    anchors: list[str] = []
    for name, _ in names:
        anchor = _anchor(prefix + name)
        anchors.append(anchor if anchor not in anchors else f"{anchor}-1")  # as GitHub does: names differ in case only
    parts.append(", ".join(f"[{name}](#{anchor})" for (name, _), anchor in zip(names, anchors, strict=True)))
    for name, node in names:
        parts.extend(entry(prefix, name, node))
    return "\n\n".join(parts) + "\n"


def _anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> None:
    (ROOT / "docs" / "api").mkdir(exist_ok=True)
    for title in PAGES:
        (ROOT / "docs" / "api" / f"{title}.md").write_text(page(title))


if __name__ == "__main__":
    main()
