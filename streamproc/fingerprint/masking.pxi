"""Masking. Included by `scan.pyx`."""


cdef class Work:
    """Memory for one text at a time."""

    cdef unsigned char *out
    cdef unsigned char *other
    cdef uint64_t *features
    cdef Py_ssize_t out_room, other_room, features_room
    cdef bint produced  # an agent has chosen the words of the text
    cdef bint artifact  # it is a file or a patch

    def __dealloc__(self):
        free(self.out)
        free(self.other)
        free(self.features)

    cdef int need(self, Py_ssize_t size) except -1:
        """Make room for a masked text of `size` bytes: the shortest match, ``1s``, becomes ``<…>``."""
        size = 3 * size + 64
        if self.out_room < size:
            free(self.out)
            self.out_room = 0
            self.out = <unsigned char *>malloc(size)
            if self.out == NULL:
                raise MemoryError
            self.out_room = size
        return 0

    cdef Text swap(self) noexcept:
        """Return what was written, and let the next text be written elsewhere."""
        cdef unsigned char *written = self.out
        self.out, self.other = self.other, written
        self.out_room, self.other_room = self.other_room, self.out_room
        return written

    cdef Py_ssize_t replaced(self, Automaton *a, Text s, Py_ssize_t end, bytes mark) except -2:
        """Write the text with all matches replaced, and return its length; -1 if there is none."""
        cdef Py_ssize_t i = 0, done = 0, n = 0, stop
        cdef Py_ssize_t size = len(mark)
        cdef Text new = <Text><const char *>mark
        cdef bint some = False
        self.need(end)
        cdef const unsigned char *begin
        while i < end:
            if a.only >= 0:
                begin = <const unsigned char *>memchr(s + i, a.only, end - i)
                if begin == NULL:
                    break
                i = begin - s
            elif s[i] >= 128 or not a.begins[s[i]]:
                i += 1
                continue
            stop = match(a, s, i, end)
            if stop < 0 or (a is &json and not timed(s, i)):
                i += 1
                continue
            if a is &json:  # the colon stays, and a space after it
                i += 3 if s[i + 2] == c' ' else 2
            memcpy(self.out + n, s + done, i - done)
            n += i - done
            memcpy(self.out + n, new, size)
            n += size
            i = done = stop
            some = True
        if not some:
            return -1
        memcpy(self.out + n, s + done, end - done)
        return n + end - done

    cdef Py_ssize_t renamed(self, Text s, Py_ssize_t end) except -2:
        """Write the text with the made up parts of temporary paths masked, and return its length; -1 if there is none."""
        cdef Py_ssize_t i = 0, done = 0, n = 0, stop, begin
        cdef bint some = False
        self.need(end)
        while i < end:
            stop = match(&temporary, s, i, end) if s[i] == c'/' else -1
            if stop < 0:
                i += 1
                continue
            begin = i
            while i <= stop:
                if i < stop and s[i] != c'/':
                    i += 1
                    continue
                if made_up(s, begin, i):
                    memcpy(self.out + n, s + done, begin - done)
                    n += begin - done
                    memcpy(self.out + n, b"<\xe2\x80\xa6>", 5)
                    n += 5
                    done = i
                    some = True
                i += 1
                begin = i
            i = stop
        if not some:
            return -1
        memcpy(self.out + n, s + done, end - done)
        return n + end - done

    cdef Py_ssize_t counted(self, Text s, Py_ssize_t end, int wanted) except -2:
        """Write the text with numbers masked and white space folded, and return its length.

        Give up and return -1 where a pattern of `wanted` matches: those come first.
        """
        cdef Py_ssize_t i = 0, done, n = 0, stop, k, until = 0
        cdef int flags, size
        cdef unsigned char *out
        self.need(end)
        out = self.out
        size = space_at(s, i, end)
        while size:
            i += size
            size = space_at(s, i, end)
        done = i
        while i < end:
            flags = FLAGS[s[i]]
            if ALNUM[s[i]]:
                if flags and i + 1 < end and s[i + 1] < 128:
                    flags &= TWO[s[i] << 7 | s[i + 1]]
                if flags & wanted and rare(s, i, end, wanted):
                    return -1
                if flags & NUMBER and i >= until:
                    stop = match(&number, s, i, end)
                    if stop > 0:
                        if wanted:
                            for k in range(i + 1, stop):
                                if FLAGS[s[k]] & wanted and rare(s, k, end, wanted):
                                    return -1
                        if self.produced and chosen(s, i, stop):
                            until, stop = stop, i  # white space in it is folded, too
                            while stop < end and ALNUM[s[stop]]:
                                stop += 1
                        elif not (self.artifact and identifies(s, i, stop)) and not kept(s, i, stop):
                            memcpy(out + n, s + done, i - done)
                            n += i - done
                            memcpy(out + n, b"<\xe2\x80\xa6>", 5)
                            n += 5
                            done = stop
                        i = stop
                        continue
                while i < end and ALNUM[s[i]]:  # no pattern begins within a word
                    i += 1
                continue
            if not flags:
                i += 1
                continue
            if flags & wanted and rare(s, i, end, wanted):
                return -1
            size = space_at(s, i, end)
            if not size or (s[i] == c' ' and i + 1 < end and not FLAGS[s[i + 1]] & SPACE):
                i += 1
                continue
            stop = i
            while size:
                stop += size
                size = space_at(s, stop, end)
            memcpy(out + n, s + done, i - done)
            n += i - done
            if stop < end:
                out[n] = c' '
                n += 1
            i = done = stop
        memcpy(out + n, s + done, end - done)
        return n + end - done

    cdef Py_ssize_t mask(self, Text s, Py_ssize_t end) except -2:
        """Write the masked text to `out`, and return its length."""
        cdef Py_ssize_t n
        cdef bytes text
        cdef int wanted = TEMPORARY | JSON | FRAME | DATE | PROCESS | TOKEN
        if end and memchr(s, 0x1B, end) != NULL:
            n = self.replaced(&ansi, s, end, b"")
            if n >= 0:
                s, end = self.swap(), n
        n = self.counted(s, end, wanted)
        if n >= 0:
            return n
        n = self.renamed(s, end)
        if n >= 0:
            s, end = self.swap(), n
        n = self.replaced(&json, s, end, "…".encode())
        if n >= 0:
            s, end = self.swap(), n
        n = 0
        while n < end and not (s[n] == c':' and framed(s, n, end)):
            n += 1
        if n < end:
            text = without_harness((<const char *>s)[:end].decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
            end = len(text)
            self.need(end)
            memcpy(self.out, <const char *>text, end)
            s = self.swap()
        n = self.replaced(&date, s, end, "<…>".encode())
        if n >= 0:
            s, end = self.swap(), n
        n = self.replaced(&process, s, end, b"<pid>")
        if n >= 0:
            s, end = self.swap(), n
        n = self.replaced(&token, s, end, "_<…>".encode())
        if n >= 0:
            s, end = self.swap(), n
        return self.counted(s, end, 0)


cdef Work idle = Work()


cdef Work taken():
    """Return memory that is not in use: Python code runs in between, so other texts may come meanwhile."""
    global idle
    cdef Work work = idle
    idle = None
    return Work() if work is None else work


cdef void give_back(Work work):
    global idle
    if work.out_room <= KEPT_MAX and work.other_room <= KEPT_MAX and work.features_room <= KEPT_MAX:
        idle = work
