"""Write out, for each record, how its parts are read and written: straight C, without calls that depend on the part.

The C compiler then knows what comes next and how many bytes it has. Asking each part at run time takes several times as
long as copying it.
"""

from __future__ import annotations

import ast

READ = "(PyObject** part, const char* at, const char* stop) except NULL:"
WRITE = "(PyObject** part, char* at, char* stop) except NULL:"


def functions(records: dict[str, ast.ClassDef], widths: dict[str, int]) -> list[str]:
    """Return the functions of all records, and the one that gives a record its own."""
    lines = []
    for name, record in records.items():
        kinds = _parts(record)
        read, write = [f"cdef const char* read_parts_{name}{READ}"], [f"cdef char* write_parts_{name}{WRITE}"]
        if any(ast.unparse(base) == "Sparse" for base in record.bases):
            read += _read_sparse(kinds, records, widths)
            write += _write_sparse(kinds, records, widths)
        else:
            for place, kind in enumerate(kinds):
                read += _read(kind, place, records, widths)
                write += _write(kind, place, records, widths)
        lines += [*read, "    return at", *write, "    return at"]
    lines += ["cdef int choose_storing(Record record, str name) except -1:"]
    for name in records:
        lines += [f"    if name == {name!r}:"]
        lines += [f"        record.read_parts, record.write_parts = read_parts_{name}, write_parts_{name}"]
        lines += ["        return 0"]
    return [*lines, "    raise TypeError(name)"]


def _parts(record: ast.ClassDef) -> list[str]:
    """Return the kinds of a record's parts, in the order in which they are stored."""
    kinds = {
        field.target.id: ast.unparse(field.annotation)
        for field in record.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    for call in ast.walk(record):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
            return [kinds[ast.unparse(part).removeprefix("self.")] for part in call.args]
    return []


def _read(kind: str, place: int, records: dict[str, ast.ClassDef], widths: dict[str, int]) -> list[str]:
    if kind not in records:
        return [f"    at = read_{kind.lower()}(part[{place}], at, stop)"]
    numbers = [f"    at = taken_all(at, stop, numbers_of(part[{place}]), {widths[kind]})"] * bool(widths[kind])
    parts = [f"    at = read_parts_{kind}((<Record>part[{place}]).part, at, stop)"] * bool(_parts(records[kind]))
    return numbers + parts


def _write(kind: str, place: int, records: dict[str, ast.ClassDef], widths: dict[str, int]) -> list[str]:
    if kind not in records:
        return [f"    at = write_{kind.lower()}(part[{place}], at, stop)"]
    numbers = [f"    at = put_all(at, stop, numbers_of(part[{place}]), {widths[kind]})"] * bool(widths[kind])
    parts = [f"    at = write_parts_{kind}((<Record>part[{place}]).part, at, stop)"] * bool(_parts(records[kind]))
    return numbers + parts


def _read_sparse(kinds: list[str], records: dict[str, ast.ClassDef], widths: dict[str, int]) -> list[str]:
    lines = [
        "    cdef unsigned char raw[2]",
        "    cdef u32 used",
        "    at = taken_all(at, stop, raw, 2)",
        "    used = raw[0] | raw[1] << 8",
        f"    if used >> {len(kinds)}:",
        '        raise StateError("a part that does not exist")',
    ]
    for place, kind in enumerate(kinds):
        lines += [f"    if used & {1 << place}:", *_deeper(_read(kind, place, records, widths))]
        lines += ["    else:", f"        (<{kind}>part[{place}]).clear()"]
    return lines


def _write_sparse(kinds: list[str], records: dict[str, ast.ClassDef], widths: dict[str, int]) -> list[str]:
    lines = [
        "    cdef unsigned char raw[2]",
        "    cdef u32 used = 0",
        "    cdef char* first = at",
        "    at = put_all(at, stop, raw, 2)",
    ]
    for place, kind in enumerate(kinds):
        lines += [f"    if not (<{kind}>part[{place}]).is_blank():", f"        used |= {1 << place}"]
        lines += _deeper(_write(kind, place, records, widths))
    return [*lines, "    first[0], first[1] = used & 0xFF, used >> 8"]


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
