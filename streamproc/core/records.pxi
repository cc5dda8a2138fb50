# The words of `records.py` in C: the same names, and the same bytes. `deploy/compiled/build.py` writes WIDTHS, PLACES
# and the constants in capitals.

cimport cython
from cython cimport cclass, ccall, cfunc, final
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.string cimport memcmp, memcpy, memmove, memset

import msgspec

cdef extern from "Python.h":
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(object)
    PyObject** PySequence_Fast_ITEMS(object)
    unsigned long long hash64 "PyLong_AsUnsignedLongLongMask"(object) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef extern from *:
    """
    #include "structmember.h"
    static Py_ssize_t slot_of(PyObject *field) {
        if (Py_TYPE(field) != &PyMemberDescr_Type) return -1;
        return (((PyMemberDescrObject *)field)->d_member->offset - sizeof(PyObject)) / sizeof(PyObject *);
    }
    """
    int __builtin_popcountll(unsigned long long) noexcept
    Py_ssize_t slot_of(object) noexcept

ctypedef unsigned long long u64
ctypedef long long i64
ctypedef double f64
ctypedef unsigned int u32
ctypedef int i32
ctypedef unsigned char flag

cdef enum:
    BUFFER_MAX = 1 << 17  # bytes; parts have caps, and no packed one is larger than 65 535


cdef inline void move(char* to, const char* source, Py_ssize_t size) noexcept:
    """Copy a few bytes: a call of memcpy takes longer than the copy. The last bytes may be copied twice."""
    cdef Py_ssize_t at = 0
    if size > 128:
        memcpy(to, source, size)
    elif size >= 16:
        while at <= size - 16:
            memcpy(to + at, source + at, 16)
            at += 16
        memcpy(to + size - 16, source + size - 16, 16)
    elif size >= 8:
        memcpy(to, source, 8)
        memcpy(to + size - 8, source + size - 8, 8)
    elif size >= 4:
        memcpy(to, source, 4)
        memcpy(to + size - 4, source + size - 4, 4)
    else:
        while at < size:
            to[at] = source[at]
            at += 1


cdef i64 GROWN = 0  # bytes by which records have grown, at most: what was dropped is not subtracted

cdef inline void grow(Py_ssize_t size) noexcept:
    """Count bytes by which a record grows."""
    global GROWN
    if size > 0:
        GROWN += size


cdef inline i64 grown() noexcept:
    """Return how many there were so far, in all records of this process."""
    return GROWN


def check_places():
    """Compare the places of the fields of wire structs with those that this module was built for."""
    from streamproc.model import wire

    for name, fields in PLACES.items():
        if [slot_of(getattr(getattr(wire, name), field, None)) for field in fields] != list(range(len(fields))):
            what = f"msgspec {msgspec.__version__} keeps the fields of {name} in other places"
            raise ImportError(what, name=__name__)


check_places()


class StateError(msgspec.DecodeError):
    """These bytes are not the state of a run."""


# What reads or writes a part is told where it begins and where all ends, and returns where the next part begins: the
# processor keeps both in registers. For each record, `deploy/compiled/storing.py` writes out which parts it has.

ctypedef const char* (*ReadParts)(PyObject**, const char*, const char*) except NULL
ctypedef char* (*WriteParts)(PyObject**, char*, char*) except NULL


cdef inline const char* taken(const char* at, const char* stop, void* to, Py_ssize_t size) except NULL:
    """Copy so many bytes of a state."""
    if size > stop - at:
        raise StateError("cut short")
    move(<char*>to, at, size)
    return at + size


cdef inline const char* taken_few(const char* at, const char* stop, void* to, Py_ssize_t size) except NULL:
    """The same if `to` has room for 16 bytes: mostly fewer are needed, and copying all takes no decisions."""
    if size <= 16 <= stop - at:
        memcpy(to, at, 16)
        return at + size
    return taken(at, stop, to, size)


cdef inline const char* taken_all(const char* at, const char* stop, void* to, Py_ssize_t size) except NULL:
    """The same for a size that the C compiler knows."""
    if size > stop - at:
        raise StateError("cut short")
    memcpy(to, at, size)
    return at + size


cdef inline u32 counted(const char* at, const char* stop, u32 cap) except? 0xFFFF:
    """Return the count that is here, one byte."""
    if at >= stop or <unsigned char>at[0] > cap:
        raise StateError("a count out of bounds")
    return <unsigned char>at[0]


cdef inline char* put(char* at, char* stop, const void* what, Py_ssize_t size) except NULL:
    """Add bytes to a state."""
    if size > stop - at:
        raise StateError("larger than any state may be")
    move(at, <const char*>what, size)
    return at + size


cdef inline char* put_few(char* at, char* stop, const void* what, Py_ssize_t size) except NULL:
    """The same if 16 bytes may be read."""
    if size <= 16 <= stop - at:
        memcpy(at, what, 16)
        return at + size
    return put(at, stop, what, size)


cdef inline char* put_all(char* at, char* stop, const void* what, Py_ssize_t size) except NULL:
    """The same for a size that the C compiler knows."""
    if size > stop - at:
        raise StateError("larger than any state may be")
    memcpy(at, what, size)
    return at + size


cdef inline char* put_count(char* at, char* stop, u32 count) except NULL:
    if at >= stop:
        raise StateError("larger than any state may be")
    at[0] = <char>count
    return at + 1


@final
cdef class Reader:
    """Reads a state. Every count is checked against its cap, and every read against the end."""

    cdef bytes raw
    cdef const char* at
    cdef const char* stop
    cdef bytes known  # the first blob of the state read before: that of the next one is often the same
    cdef bint first  # whether no blob of this state was read

    cpdef begin(self, bytes raw, Py_ssize_t at):
        self.raw = raw
        self.first = True
        self.stop = PyBytes_AS_STRING(raw) + PyBytes_GET_SIZE(raw)
        self.at = PyBytes_AS_STRING(raw) + min(at, PyBytes_GET_SIZE(raw))

    cpdef bytes blob(self):
        cdef unsigned char size[2]
        cdef Py_ssize_t length
        self.at = taken_all(self.at, self.stop, size, 2)
        length = size[0] | size[1] << 8
        if length > self.stop - self.at:
            raise StateError("cut short")
        self.at += length
        if not self.first:
            return PyBytes_FromStringAndSize(self.at - length, length)
        self.first = False
        if (
            self.known is None or PyBytes_GET_SIZE(self.known) != length
            or memcmp(PyBytes_AS_STRING(self.known), self.at - length, length)
        ):
            self.known = PyBytes_FromStringAndSize(self.at - length, length)
        return self.known

    cpdef end(self):
        if self.at != self.stop:
            raise StateError("bytes left over")


@final
cdef class Writer:
    """Writes a state."""

    cdef char raw[BUFFER_MAX]
    cdef char* at
    cdef char* stop

    cpdef begin(self, bytes head):
        self.stop = self.raw + BUFFER_MAX
        self.at = put(self.raw, self.stop, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))

    cpdef blob(self, bytes raw):
        cdef Py_ssize_t length = PyBytes_GET_SIZE(raw)
        cdef unsigned char size[2]
        if length > BLOB_MAX:
            raise StateError("larger than any part of a state may be")
        size[0], size[1] = length & 0xFF, length >> 8
        self.at = put_all(self.at, self.stop, size, 2)
        self.at = put(self.at, self.stop, PyBytes_AS_STRING(raw), length)

    cpdef bytes end(self):
        return PyBytes_FromStringAndSize(self.raw, self.at - self.raw)


cdef class Part:
    """Anything that can be stored."""

    cpdef clear(self):
        """Forget everything."""

    cpdef bint is_blank(self):
        """Whether there is nothing to store; only asked of parts of a `Sparse` record."""
        return False

    cpdef i64 size_bytes(self):
        """Return how many bytes `dump` writes."""
        return 0

    cpdef load(self, Reader reader):
        """Read what `dump` wrote. Raises `StateError` for anything else."""

    cpdef dump(self, Writer writer):
        """Write everything that must be known again."""


cdef class Record(Part):
    """Annotated numbers, and its parts."""

    cdef readonly tuple parts
    cdef PyObject** part  # the same, to be read without counting references
    cdef ReadParts read_parts
    cdef WriteParts write_parts
    cdef Py_ssize_t width  # bytes of the numbers, which lie behind this field without gaps

    def __cinit__(self, *_):
        self.parts = ()
        self.width = WIDTHS.get(type(self).__name__, 0)
        choose_storing(self, type(self).__name__)

    def __init__(self, *parts):
        if self.parts:
            raise TypeError("a record is made once")
        self.parts = parts
        self.part = PySequence_Fast_ITEMS(self.parts)
        self.clear()

    cpdef clear(self):
        cdef Py_ssize_t i
        memset(numbers_of(<PyObject*>self), 0, self.width)
        for i in range(PyTuple_GET_SIZE(self.parts)):
            (<Part>self.part[i]).clear()

    cpdef i64 size_bytes(self):
        cdef Py_ssize_t i
        cdef i64 size = self.width
        for i in range(PyTuple_GET_SIZE(self.parts)):
            size += (<Part>self.part[i]).size_bytes()
        return size

    cpdef load(self, Reader reader):
        reader.at = taken(reader.at, reader.stop, numbers_of(<PyObject*>self), self.width)
        self.load_parts(reader)

    cpdef dump(self, Writer writer):
        writer.at = put(writer.at, writer.stop, numbers_of(<PyObject*>self), self.width)
        self.dump_parts(writer)

    cpdef load_parts(self, Reader reader):
        """Read the parts. Only a record on its own may do this in another way, not one within another."""
        reader.at = self.read_parts(self.part, reader.at, reader.stop)

    cpdef dump_parts(self, Writer writer):
        """Write the parts; as `load_parts`."""
        writer.at = self.write_parts(self.part, writer.at, writer.stop)


cdef Py_ssize_t FIRST = Record.__basicsize__  # where the numbers of a record begin

cdef inline char* numbers_of(PyObject* record) noexcept:
    return <char*>record + FIRST


cdef class Row(Record):
    """A record of a table, found by its key."""

    cdef public u64 key


cdef class Sparse(Row):
    """A row with many parts, at most 16, of which few are in use: only those are stored."""

    cpdef i64 size_bytes(self):
        cdef Py_ssize_t i
        cdef i64 size = self.width + 2
        cdef Part part
        for i in range(PyTuple_GET_SIZE(self.parts)):
            part = <Part>self.part[i]
            if not part.is_blank():
                size += part.size_bytes()
        return size


@final
@cython.no_gc_clear
cdef class Table(Part):
    """At most `cap` rows of one kind by key, the least recently added or touched first."""

    cdef tuple kept  # all rows, made once
    cdef PyObject** order  # those in use, oldest first, then the others
    cdef Py_ssize_t size  # how many are in use
    cdef Py_ssize_t width  # bytes of the numbers of a row
    cdef Py_ssize_t blank  # bytes that a new row adds
    cdef bint flat  # whether the rows have no parts
    cdef readonly Py_ssize_t cap

    def __init__(self, kind, cap):
        cdef Py_ssize_t i
        cdef Record row
        if self.order is not NULL:
            raise TypeError("a table is made once")
        self.kept, self.cap = tuple([kind() for _ in range(cap)]), cap
        self.order = <PyObject**>PyMem_Malloc(max(1, self.cap) * sizeof(PyObject*))
        if self.order is NULL:
            raise MemoryError
        for i in range(self.cap):
            self.order[i] = PyTuple_GET_ITEM(self.kept, i)
        if self.cap:
            row = self.kept[0]
            self.width, self.flat, self.blank = row.width, not row.parts, 1 + row.size_bytes()

    def __dealloc__(self):
        PyMem_Free(self.order)

    def __len__(self):
        return self.size

    def __contains__(self, key):
        return self.place(key) >= 0

    @property
    def rows(self):
        """All rows, oldest first."""
        cdef Py_ssize_t i
        cdef list rows = PyList_New(self.size)
        for i in range(self.size):
            Py_INCREF(<object>self.order[i])
            PyList_SET_ITEM(rows, i, <object>self.order[i])
        return rows

    cdef inline Py_ssize_t place(self, u64 key) noexcept:
        cdef Py_ssize_t i
        for i in range(self.size):
            if (<Row>self.order[i]).key == key:
                return i
        return -1

    cdef inline Row move_last(self, Py_ssize_t place):
        """Make a row the youngest of those in use."""
        cdef PyObject* row = self.order[place]
        memmove(self.order + place, self.order + place + 1, (self.size - place - 1) * sizeof(PyObject*))
        self.order[self.size - 1] = row
        return <Row>row

    cpdef bint full(self):
        return self.size >= self.cap

    cpdef youngest(self):
        return <object>self.order[self.size - 1] if self.size else None

    cpdef find(self, u64 key):
        cdef Py_ssize_t place = self.place(key)
        return None if place < 0 else <object>self.order[place]

    cpdef touch(self, u64 key):
        cdef Py_ssize_t place = self.place(key)
        return None if place < 0 else self.move_last(place)

    cpdef add(self, u64 key):
        cdef Row row
        if self.size >= self.cap:
            row = self.move_last(0)
        else:
            self.size += 1
            row = <Row>self.order[self.size - 1]
            grow(self.blank)
        row.clear()
        row.key = key
        return row

    cpdef forget(self, u64 key):
        cdef Py_ssize_t place = self.place(key)
        if place >= 0:
            self.move_last(place)
            self.size -= 1

    cpdef rekey(self, u64 old, u64 new):
        cdef Py_ssize_t place = self.place(old)
        if place < 0:
            raise KeyError(old)
        self.move_last(place).key = new

    cpdef keep_last(self, Py_ssize_t count):
        while self.size > count:
            self.move_last(0)
            self.size -= 1

    cpdef clear(self):
        self.size = 0

    cpdef bint is_blank(self):
        return not self.size

    cpdef load(self, Reader reader):
        reader.at = read_table(<PyObject*>self, reader.at, reader.stop)

    cpdef dump(self, Writer writer):
        writer.at = write_table(<PyObject*>self, writer.at, writer.stop)

    cpdef i64 size_bytes(self):
        cdef Py_ssize_t i
        cdef i64 size = 1
        if self.flat:
            size += self.size * self.width
        else:
            for i in range(self.size):
                size += (<Part>self.order[i]).size_bytes()
        return size


cdef inline const char* read_table(PyObject* part, const char* at, const char* stop) except NULL:
    cdef Py_ssize_t i
    cdef PyObject* row
    cdef Py_ssize_t size = counted(at, stop, (<Table>part).cap)
    at += 1
    (<Table>part).size = size
    for i in range(size):
        row = (<Table>part).order[i]
        at = taken(at, stop, numbers_of(row), (<Table>part).width)
        if not (<Table>part).flat:
            at = (<Record>row).read_parts((<Record>row).part, at, stop)
    return at


cdef inline char* write_table(PyObject* part, char* at, char* stop) except NULL:
    cdef Py_ssize_t i
    cdef PyObject* row
    at = put_count(at, stop, (<Table>part).size)
    for i in range((<Table>part).size):
        row = (<Table>part).order[i]
        at = put(at, stop, numbers_of(row), (<Table>part).width)
        if not (<Table>part).flat:
            at = (<Record>row).write_parts((<Record>row).part, at, stop)
    return at


cdef inline int close_gap(u32* values, u32 place, u32 size) noexcept:
    memmove(values + place, values + place + 1, (size - place - 1) * sizeof(u32))
    return 0


@final
cdef class Trail(Part):
    """The last few numbers, at most 16, and the turn of each."""

    cdef readonly u32 size
    cdef u32 cap
    cdef u32 numbers_[TRAIL_MAX]
    cdef u32 turns_[TRAIL_MAX]

    def __init__(self, cap):
        self.cap = cap

    @property
    def numbers(self):
        return self.last_numbers(self.size)

    @property
    def turns(self):
        return self.last_turns(self.size)

    cpdef push(self, u32 number, u32 turn):
        if self.size == self.cap:
            close_gap(self.numbers_, 0, self.size)
            close_gap(self.turns_, 0, self.size)
            self.size -= 1
        else:
            grow(9)
        self.numbers_[self.size] = number
        self.turns_[self.size] = turn
        self.size += 1

    cpdef u32 ago(self, u32 count):
        if not 0 < count <= self.size:
            raise IndexError(count)
        return self.numbers_[self.size - count]

    cpdef i32 turn_ago(self, u32 count):
        if not 0 < count <= self.size:
            raise IndexError(count)
        return self.turns_[self.size - count]

    cpdef bint has(self, u32 number):
        cdef u32 i
        for i in range(self.size):
            if self.numbers_[i] == number:
                return True
        return False

    cpdef u32 next_age(self, u32 number, u32 age):
        cdef u32 i
        for i in range(age + 1, self.size + 1):
            if self.numbers_[self.size - i] == number:
                return i
        return 0

    cpdef list last_numbers(self, u32 count):
        cdef u32 i
        return [self.numbers_[i] for i in range(self.size - min(count, self.size), self.size)]

    cpdef list last_turns(self, u32 count):
        cdef u32 i
        return [self.turns_[i] for i in range(self.size - min(count, self.size), self.size)]

    cpdef keep_last(self, u32 count):
        if self.size > count:
            memmove(self.numbers_, self.numbers_ + self.size - count, count * sizeof(u32))
            memmove(self.turns_, self.turns_ + self.size - count, count * sizeof(u32))
            self.size = count

    cpdef clear(self):
        self.size = 0

    cpdef bint is_blank(self):
        return not self.size

    cpdef load(self, Reader reader):
        reader.at = read_trail(<PyObject*>self, reader.at, reader.stop)

    cpdef dump(self, Writer writer):
        writer.at = write_trail(<PyObject*>self, writer.at, writer.stop)

    cpdef i64 size_bytes(self):
        return 1 + 8 * self.size


cdef inline const char* read_trail(PyObject* part, const char* at, const char* stop) except NULL:
    cdef u32 size = counted(at, stop, (<Trail>part).cap)
    (<Trail>part).size = size
    at = taken_few(at + 1, stop, (<Trail>part).numbers_, size * sizeof(u32))
    return taken_few(at, stop, (<Trail>part).turns_, size * sizeof(u32))


cdef inline char* write_trail(PyObject* part, char* at, char* stop) except NULL:
    cdef u32 size = (<Trail>part).size
    at = put_count(at, stop, size)
    at = put_few(at, stop, (<Trail>part).numbers_, size * sizeof(u32))
    return put_few(at, stop, (<Trail>part).turns_, size * sizeof(u32))


@final
cdef class Tags(Part):
    """A set of at most 96 tags; the one not met for the longest time is dropped first."""

    cdef u32 size
    cdef u32 cap
    cdef u32 values[TAGS_MAX]

    def __init__(self, cap):
        self.cap = cap

    def __len__(self):
        return self.size

    def __contains__(self, tag):
        return self.place(tag) >= 0

    def __iter__(self):
        cdef u32 i
        return iter([self.values[i] for i in range(self.size)])

    cdef inline int place(self, u32 tag) noexcept:
        cdef u32 i
        for i in range(self.size):
            if self.values[i] == tag:
                return i
        return -1

    cpdef bint add(self, u32 tag):
        cdef int place = self.place(tag)
        if place >= 0:
            close_gap(self.values, place, self.size)
            self.values[self.size - 1] = tag
            return False
        if self.size == self.cap:
            close_gap(self.values, 0, self.size)
            self.size -= 1
        else:
            grow(4)
        self.values[self.size] = tag
        self.size += 1
        return True

    cpdef bint has(self, u32 tag):
        return self.place(tag) >= 0

    cpdef bint full(self):
        return self.size >= self.cap

    cpdef keep_last(self, u32 count):
        if self.size > count:
            memmove(self.values, self.values + self.size - count, count * sizeof(u32))
            self.size = count

    cpdef clear(self):
        self.size = 0

    cpdef load(self, Reader reader):
        reader.at = read_tags(<PyObject*>self, reader.at, reader.stop)

    cpdef dump(self, Writer writer):
        writer.at = write_tags(<PyObject*>self, writer.at, writer.stop)

    cpdef i64 size_bytes(self):
        return 1 + 4 * self.size


cdef inline const char* read_tags(PyObject* part, const char* at, const char* stop) except NULL:
    cdef u32 size = counted(at, stop, (<Tags>part).cap)
    (<Tags>part).size = size
    return taken_few(at + 1, stop, (<Tags>part).values, size * sizeof(u32))


cdef inline char* write_tags(PyObject* part, char* at, char* stop) except NULL:
    cdef u32 size = (<Tags>part).size
    at = put_count(at, stop, size)
    return put_few(at, stop, (<Tags>part).values, size * sizeof(u32))


@final
cdef class Values(Part):
    """The last few 64-bit numbers, at most 24, oldest first."""

    cdef readonly u32 size
    cdef u32 cap
    cdef u64 values_[VALUES_MAX]

    def __init__(self, cap):
        self.cap = cap

    cpdef push(self, u64 value):
        if self.size == self.cap:
            memmove(self.values_, self.values_ + 1, (self.size - 1) * sizeof(u64))
            self.size -= 1
        else:
            grow(9)
        self.values_[self.size] = value
        self.size += 1

    cpdef bint full(self):
        return self.size >= self.cap

    cpdef u64 at(self, u32 place):
        if place >= self.size:
            raise IndexError(place)
        return self.values_[place]

    cpdef bint has(self, u64 value):
        cdef u32 i
        for i in range(self.size):
            if self.values_[i] == value:
                return True
        return False

    cpdef drop_last(self):
        if self.size:
            self.size -= 1

    cpdef keep_last(self, u32 count):
        if self.size > count:
            memmove(self.values_, self.values_ + self.size - count, count * sizeof(u64))
            self.size = count

    cpdef list listed(self):
        cdef u32 i
        return [self.values_[i] for i in range(self.size)]

    cpdef clear(self):
        self.size = 0

    cpdef bint is_blank(self):
        return not self.size

    cpdef load(self, Reader reader):
        reader.at = read_values(<PyObject*>self, reader.at, reader.stop)

    cpdef dump(self, Writer writer):
        writer.at = write_values(<PyObject*>self, writer.at, writer.stop)

    cpdef i64 size_bytes(self):
        return 1 + 8 * self.size


cdef inline const char* read_values(PyObject* part, const char* at, const char* stop) except NULL:
    cdef u32 size = counted(at, stop, (<Values>part).cap)
    (<Values>part).size = size
    return taken_few(at + 1, stop, (<Values>part).values_, size * sizeof(u64))


cdef inline char* write_values(PyObject* part, char* at, char* stop) except NULL:
    cdef u32 size = (<Values>part).size
    at = put_count(at, stop, size)
    return put_few(at, stop, (<Values>part).values_, size * sizeof(u64))


@final
cdef class Name(Part):
    """The beginning of a name, for messages."""

    cdef u32 size
    cdef char raw[4 * NAME_CHARS]

    cpdef set(self, str text):
        cdef bytes raw = text[:NAME_CHARS].encode("utf-8", "surrogatepass")
        grow(PyBytes_GET_SIZE(raw) - <Py_ssize_t>self.size)
        self.size = PyBytes_GET_SIZE(raw)
        memcpy(self.raw, PyBytes_AS_STRING(raw), self.size)

    cpdef str get(self):
        return PyBytes_FromStringAndSize(self.raw, self.size).decode("utf-8", "surrogatepass")

    cpdef clear(self):
        self.size = 0

    cpdef load(self, Reader reader):
        reader.at = read_name(<PyObject*>self, reader.at, reader.stop)

    cpdef dump(self, Writer writer):
        writer.at = write_name(<PyObject*>self, writer.at, writer.stop)

    cpdef i64 size_bytes(self):
        return 1 + self.size


cdef inline const char* read_name(PyObject* part, const char* at, const char* stop) except NULL:
    cdef u32 i
    cdef u32 size = counted(at, stop, 4 * NAME_CHARS)
    cdef char bits = 0
    (<Name>part).size = size
    at = taken_few(at + 1, stop, (<Name>part).raw, size)
    for i in range(size):
        bits |= (<Name>part).raw[i]
    if bits & 0x80:  # not ASCII
        try:
            (<Name>part).get()
        except UnicodeDecodeError:
            raise StateError("a name that is no UTF-8") from None
    return at


cdef inline char* write_name(PyObject* part, char* at, char* stop) except NULL:
    cdef u32 size = (<Name>part).size
    at = put_count(at, stop, size)
    return put_few(at, stop, (<Name>part).raw, size)


cdef inline bint is_utf8(str text, object raw) except -1:
    cdef Py_ssize_t size
    cdef const char* at = PyUnicode_AsUTF8AndSize(text, &size)
    return type(raw) is bytes and PyBytes_GET_SIZE(raw) == size and not memcmp(PyBytes_AS_STRING(raw), at, size)


cdef inline u32 tag32(u64 value) noexcept:
    return <u32>value


cdef inline u64 mixed(u64 value) noexcept:
    return value * <u64>MIX


cdef inline int distance(u64 one, u64 other) noexcept:
    return __builtin_popcountll(one ^ other)


cdef inline int bits_of(u64 value) noexcept:
    return __builtin_popcountll(value)
