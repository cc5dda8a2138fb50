"""The modules to compile, and the small edits that their copies need."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Edit = tuple[int, int, int, str]
"""A line (from 1), the byte range to replace, and the replacement."""


@dataclass
class Source:
    """The source of a module."""

    name: str
    path: Path
    text: str = field(init=False)
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @property
    def imported(self) -> dict[str, str]:
        """Return imported names as `module.name`."""
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @property
    def defines_structs(self) -> bool:
        """Whether it declares msgspec structs. These modules are not compiled; their structs are declared by layout."""
        return any(
            isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases)
            for node in self.tree.body
        )

    @property
    def needed(self) -> set[str]:
        """Return the modules that it imports at the top."""
        return {f"{node.module}" for node in self.tree.body if isinstance(node, ast.ImportFrom)}

    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]

    def classes(self) -> list[ast.ClassDef]:
        """Return the classes that can be extension types: without bases and decorators, and with methods."""
        return [
            node for node in self.tree.body
            if isinstance(node, ast.ClassDef) and not node.bases and not node.decorator_list and methods(node)
        ]  # fmt: skip


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]


LOADER = Path("core/compiled.py")  # finds the compiled modules, so it cannot be one of them


def read(package: Path) -> tuple[list[Source], list[Source]]:
    """Return the modules to compile, and those that declare the structs they use."""
    found = [
        Source(".".join(("streamproc", *path.relative_to(package).with_suffix("").parts)), path)
        for folder in ("core", "detectors")
        for path in sorted((package / folder).rglob("*.py"))
        if path.stem != "__init__" and path != package / LOADER
    ]
    compiled = [one for one in found if not one.defines_structs]
    names = {one.name for one in compiled}
    # Struct modules that import compiled ones are neither: layouts are checked before anything compiled is imported.
    structs = [one for one in found if one.defines_structs and not names.intersection(one.needed)]
    return compiled, [Source("streamproc.model.wire", package / "model" / "wire.py"), *structs]


COLLECTING = {"tuple", "list", "set", "frozenset", "dict", "sorted", "sum", "min", "max"}


def collected(tree: ast.AST) -> list[tuple[ast.Call, ast.GeneratorExp]]:
    """Return generator expressions that are consumed at once: a list is equivalent and needs no closure."""
    return [
        (node, node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.GeneratorExp)
        and isinstance(node.func, ast.Name) and node.func.id in COLLECTING
    ]  # fmt: skip


def has_functions(node: ast.FunctionDef) -> bool:
    """Whether a function contains others (generators count): C functions have no closures."""
    lists = {id(generator) for _, generator in collected(node)}
    inner = (ast.Lambda, ast.FunctionDef, ast.GeneratorExp, ast.Yield, ast.YieldFrom)
    return any(isinstance(part, inner) and id(part) not in lists for part in ast.walk(node) if part is not node)


def direct(node: ast.FunctionDef) -> bool:
    """Whether a function can become a C function: without decorators, star arguments and inner functions."""
    args = node.args
    return not (node.decorator_list or args.vararg or args.kwarg or node.name.startswith("__") or has_functions(node))


def constants(module: Any, source: Source) -> dict[str, int]:
    """Return the `Final` integers of a module and of its classes without bases, by their dotted names."""
    found = {}
    for node in source.tree.body:
        if _final(node) and type(getattr(module, node.target.id)) is int:  # type: ignore[attr-defined]
            found[f"{source.name}.{node.target.id}"] = getattr(module, node.target.id)  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef) and not node.bases:
            for inner in filter(_final, node.body):
                name = inner.target.id  # type: ignore[attr-defined]
                value = getattr(getattr(module, node.name), name)
                if type(value) is int:
                    found[f"{source.name}.{node.name}.{name}"] = value
    return found


def _final(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation) == "Final"
    )


def rewritten(source: Source, known: dict[str, int], typed: dict[int, str]) -> str:
    """Return the source, edited line by line: constants become numbers, keyword-only arguments become positional (C
    functions have no others), and the empty line before a method that stays Python declares the types of its names."""
    lines = source.text.splitlines(keepends=True)
    names = source.imported
    edits: list[Edit] = []
    for node in ast.walk(source.tree):
        value = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            value = known.get(names.get(node.id, f"{source.name}.{node.id}"))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            value = known.get(f"{names.get(node.value.id, f'{source.name}.{node.value.id}')}.{node.attr}")
        if value is not None and node.end_col_offset is not None:
            edits.append((node.lineno, node.col_offset, node.end_col_offset, f"({value})"))
        if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs and direct(node):
            edits.append(_star(node, lines))
    for call, generator in collected(source.tree):
        assert generator.end_lineno is not None
        assert generator.end_col_offset is not None
        alone = generator.col_offset == call.func.end_col_offset and generator.lineno == call.func.end_lineno
        edits.append((generator.lineno, generator.col_offset, generator.col_offset + 1, "([" if alone else "["))
        end = generator.end_col_offset
        edits.append((generator.end_lineno, end - 1, end, "])" if alone else "]"))
    for number, start, end, new in sorted(edits, reverse=True):
        line = lines[number - 1].encode()
        lines[number - 1] = (line[:start] + new.encode() + line[end:]).decode()
    for number, types in typed.items():
        before = lines[number - 2]
        if not before.strip():
            lines[number - 2] = " " * (len(lines[number - 1]) - len(lines[number - 1].lstrip())) + types + "\n"
    future = next(number for number, line in enumerate(lines) if line.startswith("from __future__"))
    lines[future + 1] = "import cython\n"
    return "".join(lines)


def _star(node: ast.FunctionDef, lines: list[str]) -> Edit:
    """Return the edit that removes the star before keyword-only arguments."""
    first = node.args.kwonlyargs[0]
    for number in range(first.lineno, node.lineno - 1, -1):
        line = lines[number - 1]
        place = line.rfind("*,", 0, first.col_offset if number == first.lineno else len(line))
        if place >= 0:
            return number, place, place + 2, ""
    raise ValueError(f"{node.name}: no star before its keyword-only arguments")
