"""Turn the parts of the core into the source of one C module, so that one signal may call another in C.

The files are taken as they are, but for what is no C: imports of each other, constants, which become numbers, and
annotations of fields, which become declarations. Lines keep their places, so a traceback names the right line.
"""

from __future__ import annotations

import ast
import io
import tokenize
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from struct import calcsize
from typing import get_type_hints

from storing import functions

from streamproc.core.compiled import PARTS
from streamproc.core.packing import CODES

NUMBERS = frozenset(CODES)
RECORDS = "streamproc.core.records"
WIRE = "streamproc.model.wire"
WIRE_STRUCTS = ("Content", "Call", "Tests", "Errors", "Usage", "Event", "Turn")  # each after the one it is derived from


def constants() -> dict[str, int]:
    """Return the numbers in capitals of all parts, also those that they import."""
    found: dict[str, int] = {}
    for part in PARTS:
        for name, value in vars(import_module(part)).items():
            if name.isupper() and type(value) is int and found.setdefault(name, value) != value:
                raise SystemExit(f"compile: {name} is {found[name]} in one part of the core and {value} in {part}")
    kinds = import_module("streamproc.core.kind")
    found |= {f"kind.{name}": value for name, value in vars(kinds).items() if name.isupper() and type(value) is int}
    return found


def records(parts: dict[str, ast.Module]) -> dict[str, ast.ClassDef]:
    """Return the classes that become C structs, by name."""
    found: dict[str, ast.ClassDef] = {}
    for tree in parts.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(one) == "cclass" for one in node.decorator_list):
                if node.name in found:
                    raise SystemExit(f"compile: two records are named {node.name}")
                found[node.name] = node
    return found


def width(record: ast.ClassDef) -> int:
    """Return the bytes of a record's numbers. They come first and without gaps: one copy moves them all."""
    codes = [CODES.get(ast.unparse(field.annotation), "") for field in record.body if isinstance(field, ast.AnnAssign)]
    if any(calcsize(f"={after}") > calcsize(f"={before}") for before, after in pairwise(codes)):
        raise SystemExit(f"compile: {record.name}: put the widest numbers first, then the others, then everything else")
    key = "Q" if {"Row", "Sparse"} & {ast.unparse(base) for base in record.bases} else ""
    return calcsize(f"={key}{''.join(codes)}")


def wire_structs() -> list[str]:
    """Return declarations of the wire structs that each turn is read from, so that their fields are read in C.

    msgspec keeps each field in a slot, and Python orders the slots that a class adds by name. The module compares this
    with the types that it finds when it is loaded.
    """
    wire = import_module(WIRE)
    places: dict[str, list[str]] = {}
    structs, classes = [], []
    for name in WIRE_STRUCTS:
        kind = getattr(wire, name)
        base = kind.__base__.__name__ if kind.__base__.__name__ in places else ""
        before = places.get(base, [])
        own = sorted(set(kind.__struct_fields__) - set(before))
        places[name] = [*before, *own]
        head = f"{base}Fields __pyx_base;" if base else "PyObject_HEAD"
        structs.append(f"    typedef struct {{ {head} PyObject {', '.join(f'*{one}' for one in own)}; }} {name}Fields;")
        derived = f"({base})" if base else ""
        classes.append(f"    ctypedef class {WIRE}.{name}{derived} [object {name}Fields, check_size ignore]:")
        hints = get_type_hints(kind)
        classes += [f"        cdef {'str' if hints[one] is str else 'object'} {one}" for one in own]
    return ["cdef extern from *:", '    """', *structs, '    """', *classes, f"cdef dict PLACES = {places!r}"]


def of_module() -> str:
    """Return the source of the module."""
    known = constants()
    files = {part: Path(str(import_module(part).__file__)) for part in PARTS if part != RECORDS}
    trees = {part: ast.parse(file.read_text(encoding="utf-8")) for part, file in files.items()}
    structs = records(trees)
    _refuse_twins(trees)
    types = {
        *structs,
        *WIRE_STRUCTS,
        "Part",
        "Record",
        "Row",
        "Sparse",
        "Table",
        "Trail",
        "Tags",
        "Values",
        "Name",
        "Reader",
        "Writer",
    }
    prelude = Path(str(import_module(RECORDS).__file__)).with_suffix(".pxi").read_text(encoding="utf-8")
    plain = {name: value for name, value in known.items() if "." not in name}
    widths = {name: width(one) for name, one in structs.items()}
    head = [
        "# cython: language_level=3, cdivision=True, annotation_typing=True, binding=False",
        "cimport cython",
        f"globals().update({plain!r})",
        f"cdef dict WIDTHS = {widths | {'Row': 8, 'Sparse': 8}!r}",
        *(f"cdef class {name}" for name in structs),
        *wire_structs(),
        in_numbers(prelude, known),
    ]
    for part, file in files.items():
        head += [f"# {part}", rewritten(file.read_text(encoding="utf-8"), trees[part], known, types)]
    return "\n".join([*head, "# How records are stored", *functions(structs, widths)]) + "\n"


def _refuse_twins(trees: dict[str, ast.Module]) -> None:
    """Refuse two functions or classes of one name: they would share one module."""
    known: dict[str, str] = {}
    for part, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and known.setdefault(node.name, part) != part:
                raise SystemExit(f"compile: {node.name} is defined in {known[node.name]} and in {part}")


def rewritten(source: str, tree: ast.Module, known: dict[str, int], types: set[str]) -> str:
    """Return a part without imports of others and constants, and with declared fields."""
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            ours = node.module == "__future__" or node.module in PARTS
            names = [name for name in node.names if name.name not in known and name.name not in WIRE_STRUCTS]
            kept = "" if ours or not names else f"from {node.module} import {', '.join(map(ast.unparse, names))}"
        elif (
            (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in known)
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        ):
            kept = ""
        else:
            if isinstance(node, ast.ClassDef) and node.name in types:
                _declare(node, lines, types)
            _type(node, lines)
            continue
        assert node.end_lineno is not None
        lines[node.lineno - 1 : node.end_lineno] = [kept] + [""] * (node.end_lineno - node.lineno)
    return in_numbers("\n".join(lines), known)


def _declare(record: ast.ClassDef, lines: list[str], types: set[str]) -> None:
    """Declare the fields of a record, visible from Python."""
    for field in record.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            word = ast.unparse(field.annotation).removesuffix(" | None")
            kind = word if word in NUMBERS or word in types else "object"
            assert field.end_lineno == field.lineno
            lines[field.lineno - 1] = f'    {field.target.id} = cython.declare({kind}, visibility="public")'


def _type(node: ast.stmt, lines: list[str]) -> None:
    """Make truth values C integers, in functions that become C."""
    for function in ast.walk(node):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not {"cfunc", "ccall"} & {ast.unparse(one) for one in function.decorator_list}:
            continue
        marked = [one.annotation for one in function.args.args]
        marked += [one.annotation for one in ast.walk(function) if isinstance(one, ast.AnnAssign)]
        truths = [one for one in (*marked, function.returns) if isinstance(one, ast.Name) and one.id == "bool"]
        for one in sorted(truths, key=lambda one: -one.col_offset):
            line = lines[one.lineno - 1]
            lines[one.lineno - 1] = f"{line[: one.col_offset]}cython.bint{line[one.end_col_offset :]}"


def in_numbers(source: str, known: dict[str, int]) -> str:
    """Return source code with numbers in place of constants; strings and comments stay."""
    lines = source.splitlines(keepends=True)
    found = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, dot, after in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        name = f"kind.{after.string}" if token.string == "kind" and dot.string == "." else token.string
        if token.type == tokenize.NAME and before.string != "." and name in known:
            end = after.end if "." in name else token.end
            found.append((token.start, end, known[name]))
    for (row, start), (_, end), value in reversed(found):
        text = lines[row - 1]
        lines[row - 1] = f"{text[:start]}{_literal(value)}{text[end:]}"
    return "".join(lines)


def _literal(value: int) -> str:
    return f"{value}ULL" if value >= 1 << 63 else f"({value})" if value < 0 else str(value)
