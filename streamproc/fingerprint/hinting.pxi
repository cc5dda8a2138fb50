"""Whether a call may have marks: most have none, and then `marks.py` need not be asked. Included by `scan.pyx`."""

cdef enum:
    HINTS_MAX = 32
    SEARCHED_MAX = 1 << 12  # bytes of an answer that are searched: `marks.SEARCHED` characters

cdef struct Hint:
    Text text
    Py_ssize_t size
    Py_ssize_t anchor  # where its rarest character is
    int next  # the next one with this character; -1 if there is none

cdef Hint hints[HINTS_MAX]
cdef int hint_of[256]  # by the rarest character, in lower case
cdef unsigned char LOWER[256]
cdef Py_ssize_t searched = SEARCHED, write_min = WRITE_MIN
cdef frozenset told_names = HANDLES | WRITTEN
cdef str RARE = "zqxjkv_:bpygfwmucldrhsnioate "


cdef int prepare_hints() except -1:
    cdef int c, count = 0
    for c in range(256):
        hint_of[c] = -1
        LOWER[c] = c + 32 if c'A' <= c <= c'Z' else c
    if len(STATE_WORDS) + len(LAST_WORDS) > HINTS_MAX or SEARCHED * 4 > SEARCHED_MAX:
        raise ImportError("more words of a state than scan.pyx has places for")
    for word in (*STATE_WORDS, *LAST_WORDS):
        rarest = min(word, key=RARE.index)
        part = word.encode("ascii")
        _kept.append(part)
        hints[count] = Hint(<Text><const char *>part, len(part), word.index(rarest), hint_of[<int>ord(rarest)])
        hint_of[<int>ord(rarest)] = count
        count += 1
    return 0


prepare_hints()


cdef bint hinted(Text s, Py_ssize_t end) noexcept:
    """Return whether one of the words is in a text, in any case of its letters."""
    cdef Py_ssize_t i, k, start
    cdef int one
    for i in range(end):
        one = hint_of[LOWER[s[i]]]
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
        return hinted(start, size)
    if not answer.isascii():
        return True
    start = start_of(read, &size)
    memcpy(ends, start, half)
    memcpy(ends + half, start + size - half, half)
    return hinted(ends, 2 * half)
