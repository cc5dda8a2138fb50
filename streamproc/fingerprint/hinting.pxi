"""Whether a call may have marks: most have none, and then `marks.py` and `passed.py` need not be asked. Included by
`scan.pyx`."""

cdef enum:
    HINTS_MAX = 64
    STATES = 0  # the words of a state
    PASSES = 256  # those of a check that may have passed
    SEARCHED_MAX = 1 << 12  # bytes of an answer that are searched: `marks.SEARCHED` characters

cdef struct Hint:
    Text text
    Py_ssize_t size
    Py_ssize_t anchor  # where its rarest character is
    int next  # the next one with this character; -1 if there is none

cdef Hint hints[HINTS_MAX]
cdef int hint_of[512]  # by the set of words and the rarest character, in lower case
cdef unsigned char LOWER[256]
cdef Py_ssize_t searched = SEARCHED, write_min = WRITE_MIN, passed_end = PASSED_END
cdef frozenset told_names = HANDLES | WRITTEN
cdef str RARE = "10zqxjkv_:bpygfwmucldrhsnioate "


cdef int prepare_hints() except -1:
    cdef int c, place, count = 0
    for c in range(256):
        hint_of[STATES + c] = hint_of[PASSES + c] = -1
        LOWER[c] = c + 32 if c'A' <= c <= c'Z' else c
    words = [(STATES, word) for word in (*STATE_WORDS, *LAST_WORDS)] + [(PASSES, word) for word in PASSED_WORDS]
    if len(words) > HINTS_MAX or SEARCHED * 4 > SEARCHED_MAX:
        raise ImportError("more words than scan.pyx has places for")
    for kind, word in words:
        rarest = min(word, key=RARE.index)
        part = word.encode("ascii")
        _kept.append(part)
        place = kind + ord(rarest)
        hints[count] = Hint(<Text><const char *>part, len(part), word.index(rarest), hint_of[place])
        hint_of[place] = count
        count += 1
    return 0


prepare_hints()


cdef bint hinted(Text s, Py_ssize_t end, int kind) noexcept:
    """Return whether one of the words of a set is in a text, in any case of its letters."""
    cdef Py_ssize_t i, k, start
    cdef int one
    for i in range(end):
        one = hint_of[kind + LOWER[s[i]]]
        while one >= 0:
            start = i - hints[one].anchor
            if start >= 0 and start + hints[one].size <= end:
                k = 0
                while k < hints[one].size and LOWER[s[start + k]] == hints[one].text[k]:
                    k += 1
                if k == hints[one].size:
                    return True
            one = hints[one].next
    return False


cdef bint may_matter(dict args) except -1:
    """Return whether the arguments may make a poll, or a call that writes or edits."""
    cdef bint command
    for name, value in args.items():
        if name in told_names:
            return True
        command = name == "command" or name == "cmd"
        if type(value) is str:
            if (command or len(<str>value) >= write_min) and "<<" in <str>value:
                return True
            if command and ((<str>value).startswith("sleep ") or "sed " in <str>value):
                return True
            if (<str>value).startswith("*** Begin Patch"):
                return True
        elif (command and value is not None) or isinstance(value, str):
            return True
    return False


def may_have_marks(object args, str answer not None):
    """Return False if `marks.marks_of` returns 0 for a call; True if it may return something else."""
    cdef unsigned char ends[SEARCHED_MAX]
    cdef Py_ssize_t size, half = searched // 2
    cdef object read
    cdef Text start
    if type(args) is dict:
        if may_matter(<dict>args):
            return True
    elif isinstance(args, str | dict):
        return True
    read = in_utf8(answer)
    if len(answer) <= searched:
        start = start_of(read, &size)
        return hinted(start, size, STATES)
    if not answer.isascii():
        return True
    start = start_of(read, &size)
    memcpy(ends, start, half)
    memcpy(ends + half, start + size - half, half)
    return hinted(ends, 2 * half, STATES)


def may_say_passed(str answer not None):
    """Return False if none of `passed.PASSED_WORDS` is at the end of an answer; True if one may be."""
    cdef Py_ssize_t size, first
    cdef Text start
    if not answer.isascii():
        return True
    start = start_of(answer, &size)
    first = max(0, size - passed_end)
    return hinted(start + first, size - first, PASSES)
