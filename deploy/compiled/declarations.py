"""Declarations for Cython, generated from the sources: which names have C types.

The types come from mypy. A msgspec struct is declared by its memory layout (an object header, then one pointer for each
field: first those of its base, both in alphabetical order), which makes reading a field a single load.
`streamproc.core.compiled` compares this with the real layout before it imports anything compiled. Numbers stay Python
integers of any size.
"""

from __future__ import annotations

import ast
from pathlib import Path

import mypy.build
import mypy.modulefinder
import mypy.nodes
import mypy.options
import mypy.types
from sources import Source, direct, has_functions, methods

EXACT = ("list", "dict", "str")  # built-in classes that Cython knows


class Types:
    """The types that mypy infers for the sources."""

    def __init__(self, sources: list[Source], structs: list[Source]) -> None:
        options = mypy.options.Options()
        options.follow_imports = "skip"
        options.preserve_asts = True
        options.export_types = True
        options.cache_dir = "/dev/null"
        files = [mypy.modulefinder.BuildSource(str(one.path), one.name, None) for one in (*sources, *structs)]
        built = mypy.build.build(files, options)
        self._files, self._types = built.files, built.types
        self.structs = {
            f"{one.name}.{node.name}": self._fields(one, node)
            for one in structs
            for node in one.tree.body
            if isinstance(node, ast.ClassDef) and self._is_struct(one, node)
        }
        self.classes = {f"{one.name}.{node.name}" for one in sources for node in one.classes()}

    def bound_methods(self) -> set[str]:
        """Return methods that are passed as values, as `module.Class.name`: these must stay Python methods."""
        called = {id(node.callee) for node in self._types if isinstance(node, mypy.nodes.CallExpr)}
        found = set()
        for node in self._types:
            if isinstance(node, mypy.nodes.MemberExpr) and id(node) not in called:
                owner = mypy.types.get_proper_type(self._types.get(node.expr))
                if isinstance(owner, mypy.types.Instance):
                    found.add(f"{owner.type.fullname}.{node.name}")
        return found

    def info(self, module: str, name: str) -> mypy.nodes.TypeInfo:
        node = self._files[module].names[name].node
        assert isinstance(node, mypy.nodes.TypeInfo)
        return node

    def function(self, module: str, name: str) -> mypy.nodes.FuncDef:
        node = self._files[module].names[name].node
        assert isinstance(node, mypy.nodes.FuncDef)
        return node

    def of(self, kind: mypy.types.Type | None) -> str:
        """Return the Cython name of a type: a declared class (by its dotted name), a built-in class, or `object`."""
        if kind is None:
            return "object"
        kind = mypy.types.get_proper_type(kind)
        if isinstance(kind, mypy.types.UnionType):
            some = [one for one in kind.items if not isinstance(mypy.types.get_proper_type(one), mypy.types.NoneType)]
            found = self.of(some[0]) if len(some) == 1 else "object"
            return "object" if found == "bint" else found
        if isinstance(kind, mypy.types.TupleType):
            return "tuple" if kind.partial_fallback.type.fullname == "builtins.tuple" else "object"
        if not isinstance(kind, mypy.types.Instance):
            return "object"
        name = kind.type.fullname
        if name in self.structs or name in self.classes:
            return name
        if name == "builtins.bool":
            return "bint"
        plain = name.removeprefix("builtins.")
        return plain if plain in (*EXACT, "tuple") else "object"

    def base(self, struct: str) -> str | None:
        """Return the struct that this one extends, if any."""
        module, _, name = struct.rpartition(".")
        found = [base.type.fullname for base in self.info(module, name).bases]
        return next((base for base in found if base in self.structs), None)

    def field(self, struct: str, name: str) -> str:
        module, _, kind = struct.rpartition(".")
        node = self.info(module, kind).get(name)
        assert node is not None
        assert isinstance(node.node, mypy.nodes.Var)
        found = self.of(node.node.type)
        return "object" if found == "bint" else found

    def _is_struct(self, source: Source, node: ast.ClassDef) -> bool:
        """Whether a class is a msgspec struct, directly or through a base: mypy does not follow msgspec here."""
        bases = {ast.unparse(base) for base in node.bases}
        return "msgspec.Struct" in bases or any(
            self._is_struct(source, other)
            for other in source.tree.body
            if isinstance(other, ast.ClassDef) and other.name in bases
        )

    def _fields(self, source: Source, node: ast.ClassDef) -> list[str]:
        """Return the fields in memory order: those of the base, then its own."""
        bases = {ast.unparse(base) for base in node.bases}
        found: list[str] = []
        for other in source.tree.body:
            if isinstance(other, ast.ClassDef) and other.name in bases and self._is_struct(source, other):
                found = self._fields(source, other)
        own = {
            inner.target.id
            for inner in node.body
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
            and not ast.unparse(inner.annotation).startswith("ClassVar")
        }  # fmt: skip
        return [*found, *sorted(own - set(found))]


class Locals:
    """The types of a function's local names."""

    def __init__(self, function: mypy.nodes.FuncDef) -> None:
        self.types: dict[str, mypy.types.Type | None] = {}
        self._block(function.body)

    def _target(self, node: mypy.nodes.Node) -> None:
        if isinstance(node, mypy.nodes.TupleExpr | mypy.nodes.ListExpr):
            for item in node.items:
                self._target(item)
        elif isinstance(node, mypy.nodes.NameExpr) and isinstance(node.node, mypy.nodes.Var):
            self.types[node.name] = node.node.type

    def _walrus_targets(self, node: mypy.nodes.Node | None) -> None:
        if isinstance(node, mypy.nodes.AssignmentExpr):
            self._target(node.target)
        elif isinstance(node, mypy.nodes.OpExpr):
            self._walrus_targets(node.left)
            self._walrus_targets(node.right)
        elif isinstance(node, mypy.nodes.ComparisonExpr):
            for operand in node.operands:
                self._walrus_targets(operand)

    def _block(self, block: mypy.nodes.Block | None) -> None:
        for statement in block.body if block is not None else ():
            self._statement(statement)

    def _statement(self, node: mypy.nodes.Statement) -> None:
        if isinstance(node, mypy.nodes.AssignmentStmt):
            for target in node.lvalues:
                self._target(target)
        elif isinstance(node, mypy.nodes.ForStmt):
            self._target(node.index)
            self._block(node.body)
            self._block(node.else_body)
        elif isinstance(node, mypy.nodes.WhileStmt):
            self._walrus_targets(node.expr)
            self._block(node.body)
        elif isinstance(node, mypy.nodes.IfStmt):
            for expression in node.expr:
                self._walrus_targets(expression)
            for block in (*node.body, node.else_body):
                self._block(block)
        elif isinstance(node, mypy.nodes.TryStmt):
            for block in (node.body, *node.handlers, node.else_body, node.finally_body):
                self._block(block)


def short(name: str) -> str:
    return name.rpartition(".")[2]


def _cimports(module: str, used: set[str]) -> list[str]:
    found = sorted(name for name in used if name.rpartition(".")[0] != module)
    return [f"from {name.rpartition('.')[0]} cimport {short(name)}" for name in found]


def of_structs(module: str, types: Types) -> str:
    """Return the declarations of the msgspec structs of a module."""
    lines: list[str] = []
    used: set[str] = set()
    for struct, fields in types.structs.items():
        if struct.rpartition(".")[0] != module:
            continue
        name, base = short(struct), types.base(struct)
        own = [field for field in fields if base is None or field not in types.structs[base]]
        kinds = {field: types.field(struct, field) for field in own}
        used |= {kind for kind in kinds.values() if "." in kind}
        head = f"Streamproc{short(base)} __pyx_base;" if base else "PyObject_HEAD"
        c_fields = [
            f"{f'struct Streamproc{short(kind)}' if '.' in kind else 'PyObject'} *f_{field};"
            for field, kind in kinds.items()
        ]
        lines += [
            "cdef extern from *:",
            '    """',
            f"    typedef struct Streamproc{name} {{ {' '.join([head, *c_fields])} }} Streamproc{name};",
            '    """',
            f"    ctypedef class {struct}{f'({short(base)})' if base else ''} "
            f"[object Streamproc{name}, check_size error]:",
            *(f'        cdef {short(kind)} {field} "f_{field}"' for field, kind in kinds.items()),
            *(() if own else ("        pass",)),
        ]
    return "\n".join([*_cimports(module, used), *lines, ""])


class Declarations:
    """Declarations of the compiled modules."""

    def __init__(self, sources: list[Source], types: Types) -> None:
        self._types = types
        self._bound = types.bound_methods()
        self._functions = {f"{one.name}.{node.name}" for one in sources for node in one.functions() if direct(node)}

    def of(self, source: Source) -> str:
        """Return the declarations of one module."""
        used: set[str] = set()
        lines: list[str] = []
        for node in source.functions():
            if direct(node):
                found = self._types.function(source.name, node.name)
                lines += self._function(node, found, used, method=False)
        for kind in source.classes():
            lines += self._class(source, kind, used)
        known = self._functions | self._types.classes | self._types.structs.keys()
        used |= {name for name in source.imported.values() if name in known}
        return "\n".join(["cimport cython", *_cimports(source.name, used), *lines, ""])

    def _class(self, source: Source, node: ast.ClassDef, used: set[str]) -> list[str]:
        info = self._types.info(source.name, node.name)
        shared = {  # class attributes are not fields
            target.id
            for inner in node.body
            if (isinstance(inner, ast.AnnAssign) and inner.value is not None) or isinstance(inner, ast.Assign)
            for target in (inner.targets if isinstance(inner, ast.Assign) else [inner.target])
            if isinstance(target, ast.Name)
        }
        lines = []
        for name, symbol in info.names.items():
            if isinstance(symbol.node, mypy.nodes.Var) and name not in shared:
                kind = self._types.of(symbol.node.type)
                kind = "object" if kind in ("bint", "tuple") else kind
                used |= {kind} if "." in kind else set()
                lines.append(f"cdef public {short(kind)} {name}")
        for inner in methods(node):
            found = info.names[inner.name].node
            if isinstance(found, mypy.nodes.FuncDef) and self._called(source, node, inner):
                lines += self._function(inner, found, used, method=True)
        return [f"cdef class {node.name}:", *(f"    {line}" for line in lines or ["pass"])]

    def _called(self, source: Source, kind: ast.ClassDef, node: ast.FunctionDef) -> bool:
        return direct(node) and f"{source.name}.{kind.name}.{node.name}" not in self._bound

    def of_others(self, source: Source) -> dict[int, str]:
        """Return, by line, the types for methods that stay Python methods: passed as values, or special."""
        found: dict[int, str] = {}
        for kind in source.classes():
            names = self._types.info(source.name, kind.name).names
            for node in methods(kind):
                known = names[node.name].node
                if isinstance(known, mypy.nodes.FuncDef) and not (
                    self._called(source, kind, node) or has_functions(node)
                ):
                    typed = self._typed(known, set(), arguments=True)
                    found |= {node.lineno: typed} if typed else {}
        return found

    def _c_name(self, kind: mypy.types.Type | None, used: set[str]) -> str:
        c_type = self._types.of(kind)
        used.update({c_type} if "." in c_type else ())
        return "" if c_type == "object" else short(c_type)

    def _typed(self, found: mypy.nodes.FuncDef, used: set[str], *, arguments: bool) -> str:
        """Return the decorator that declares the types of a function's local names."""
        given = {one.variable.name: one.variable.type for one in found.arguments if one.variable.name != "self"}
        own = Locals(found).types
        names = given | own if arguments else {name: own[name] for name in own.keys() - given.keys()}
        words = {name: self._c_name(kind, used) for name, kind in sorted(names.items())}
        typed = ", ".join(f"{name}={word}" for name, word in words.items() if word)
        return f"@cython.locals({typed})" if typed else ""

    def _function(self, node: ast.FunctionDef, found: mypy.nodes.FuncDef, used: set[str], *, method: bool) -> list[str]:
        kinds = {argument.variable.name: argument.variable.type for argument in found.arguments}
        optional = {one.arg for one in node.args.args[len(node.args.args) - len(node.args.defaults) :]}
        optional |= {
            one.arg for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default
        }
        signature = []
        for place, one in enumerate([*node.args.args, *node.args.kwonlyargs]):
            kind = (
                "" if method and not place else self._c_name(kinds[one.arg], used) or "object"
            )  # always name the type: `signed` alone would be one
            signature.append(f"{kind} {one.arg}".strip() + ("=*" if one.arg in optional else ""))
        assert isinstance(found.type, mypy.types.CallableType)
        returns = self._c_name(found.type.ret_type, used)
        typed = self._typed(found, used, arguments=False)
        return [*([typed] if typed else []), " ".join(f"cpdef {returns} {node.name}({', '.join(signature)})".split())]


def write(path: Path, text: str) -> None:
    """Write a file only if its content changes, so that its outputs are not rebuilt needlessly."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
