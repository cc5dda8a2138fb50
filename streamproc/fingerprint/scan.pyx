# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Masks, hashes and compares texts in one compiled module: what `mask`, `hash` and `similarity` do, in a tenth of the
time and with the same results.

The patterns of `mask.py` are the one definition of what is masked. `tables.pxi`, which `deploy/compiled/build.py` has
`tables.py` write, holds their automata. Texts are read as UTF-8, where halves of surrogate pairs are three bytes, too.
Functions of CPython classify what is beyond ASCII, as they do for `re`.

Every search begins where a pattern may begin, and ends where its automaton ends; a search that fails never reads what
another one has read, but for a few characters, so time grows with the length of the text only.
"""

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

import sys

from xxhash import xxh3_64_intdigest

from streamproc.fingerprint.marks import HANDLES, LAST_WORDS, SEARCHED, STATE_WORDS, WRITE_MIN, WRITTEN
from streamproc.fingerprint.mask import END_MAX as MASKED_MAX, HARNESS, ID_LENGTH, KEY_MAX, without_harness
from streamproc.fingerprint.passed import END as PASSED_END, PASSED_WORDS
from streamproc.fingerprint.similarity import END_MAX, FEATURES_MAX, PAGE_MIN, SIZE_MIN, WORDS_MIN

if sys.byteorder != "little":
    raise ImportError("scan needs a little-endian machine")

cdef extern from "Python.h":
    bint Py_UNICODE_ISALNUM(Py_UCS4)
    bint Py_UNICODE_ISDECIMAL(Py_UCS4)
    bint Py_UNICODE_ISSPACE(Py_UCS4)
    bint Py_UNICODE_ISLOWER(Py_UCS4)
    bint Py_UNICODE_ISUPPER(Py_UCS4)
    bint Py_UNICODE_ISTITLE(Py_UCS4)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

ctypedef const unsigned char *Text

cdef enum:
    NAMED_MAX = 8
    AHEAD_MAX = 2
    LITERALS_MAX = 4
    KEPT_MAX = 1 << 20  # bytes of memory that is kept for the next text

# Bits of FLAGS: what may begin with a character.
cdef enum:
    TEMPORARY = 1
    JSON = 2
    DATE = 4
    PROCESS = 8
    TOKEN = 16
    NUMBER = 32
    FRAME = 64  # a text of a harness, in which this is the colon
    SPACE = 128

include "xxh3.pxi"
include "automata.pxi"
include "masking.pxi"
include "murmur2.pxi"
include "crc32c.pxi"


cdef inline object in_utf8(str text):
    """Return the text itself if it is ASCII, else its bytes."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass")


cdef inline Text start_of(object text, Py_ssize_t *size) except NULL:
    if isinstance(text, str):
        return <Text>PyUnicode_AsUTF8AndSize(text, size)
    size[0] = len(<bytes>text)
    return <Text><const char *><bytes>text


def mask(str text not None, *, bint produced=False, bint artifact=False):
    """Return what `mask._mask` returns."""
    cdef Work work = taken()
    work.produced, work.artifact = produced, artifact
    cdef Py_ssize_t size
    cdef object read = in_utf8(text)
    cdef Text start = start_of(read, &size)
    size = work.mask(start, size)
    found = (<const char *>work.out)[:size].decode("utf-8", "surrogatepass")
    give_back(work)
    return found


cdef uint64_t digest(Text s, Py_ssize_t size) except? 0:
    if size <= XXH3_LIMIT:
        return xxh3_short(s, size)
    return xxh3_64_intdigest(PyMemoryView_FromMemory(<char *>s, size, PyBUF_READ))


cdef uint64_t h64(str text) except? 0:
    cdef Py_ssize_t size
    cdef object read = in_utf8(text)
    cdef Text start = start_of(read, &size)
    return digest(start, size)


def hash64(bytes text not None):
    """Return the xxh3-64 of bytes."""
    return digest(<Text><const char *>text, len(text))


include "comparing.pxi"
include "hinting.pxi"


cdef tuple numbers(str text, bint speech, bint produced, bint artifact):
    cdef Work work = taken()
    work.produced, work.artifact = produced, artifact
    cdef Py_ssize_t size, length = len(text)
    cdef uint64_t exact, norm, sim, subjects = 0
    cdef object read = in_utf8(text)
    cdef Text start = start_of(read, &size)
    exact = digest(start, size)
    if length > 2 * masked_max:
        tail = hash64(mask(text[-masked_max:], produced=produced, artifact=artifact).encode("utf-8", "surrogatepass"))
        middle = h64(text[masked_max:-masked_max])
        read = in_utf8(text[:masked_max])
        start = start_of(read, &size)
        size = work.mask(start, size)
        norm = h64(f"{digest(work.out, size)}|{middle}|{tail}")
    else:
        size = work.mask(start, size)
        norm = digest(work.out, size)
    sim = voted(work.features, sampled(work, work.out, size))
    if speech:
        if not sim:
            sim = short_similar(work, work.out, size)
        subjects = about(work, work.out, size)
        give_back(work)
        return exact, norm, sim, length, subjects
    give_back(work)
    return exact, norm, sim, length


def content(str text not None):
    """Return the exact and the normalised hash, the SimHash and the size of a text: what `hash.content` returns."""
    return numbers(text, False, True, False)


def artifact(str text not None):
    """Return the same of a file or a patch: what `hash.artifact` returns."""
    return numbers(text, False, True, True)


def answer(str text not None):
    """Return the same of what a program has answered: `hash.compared` returns its first three."""
    return numbers(text, False, False, False)


def words(str text not None):
    """Return the same for speech, and the hash of its subjects: what `hash.words` returns."""
    return numbers(text, True, True, False)


def features(str text not None):
    """Return the hashes of which `similarity.simhash` makes its bits."""
    cdef Work work = taken()
    cdef Py_ssize_t size, i
    cdef object read = in_utf8(text)
    cdef Text start = start_of(read, &size)
    size = sampled(work, start, size)
    found = [work.features[i] for i in range(size)]
    give_back(work)
    return found
