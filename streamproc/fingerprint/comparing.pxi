"""SimHash and subjects, as `similarity.py` makes them. Included by `scan.pyx`."""


cdef Py_ssize_t characters(Text s, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i, n = 0
    for i in range(size):
        n += s[i] & 0xC0 != 0x80
    return n


cdef Py_ssize_t paired(Work work, Text s, Py_ssize_t end, bint single) except -1:
    """Hash the pairs of a text's words into `features`, and `single` words, too; return how many there are."""
    cdef Py_ssize_t i = 0, start, n = 0, words = 0, before = 0, before_end = 0
    cdef int size
    if work.features_room < 8 * (end + 2):
        free(work.features)
        work.features_room = 0
        work.features = <uint64_t *>malloc(8 * (end + 2))
        if work.features == NULL:
            raise MemoryError
        work.features_room = 8 * (end + 2)
    while True:
        while i < end and not WORD[s[i]] and (s[i] < 0xC0 or not word_at(s, i, end)):
            i += 1
        if i >= end:
            break
        start = i
        while True:
            while i < end and WORD[s[i]]:
                i += 1
            if i >= end or s[i] < 128:
                break
            size = word_at(s, i, end)
            if not size:
                break
            i += size
        if words:
            if start == before_end + 1 and s[before_end] == c' ':
                work.features[n] = digest(s + before, i - before)
            else:
                work.features[n] = apart(s, before, before_end, start, i, end)
            n += 1
        if single:
            work.features[n] = digest(s + start, i - start)
            n += 1
        words += 1
        before, before_end = start, i
    return 0 if single and words < words_min else n


cdef uint64_t apart(Text s, Py_ssize_t one, Py_ssize_t end, Py_ssize_t two, Py_ssize_t stop, Py_ssize_t last) except? 0:
    """Hash two words with one space between them. The text ends at `last`."""
    cdef unsigned char pair[256]
    cdef Py_ssize_t size = end - one + 1 + stop - two
    if end - one <= 16 and stop - two <= 16 and two + 16 <= last:  # copies of a fixed size are far faster
        memcpy(pair, s + one, 16)
        pair[end - one] = c' '
        memcpy(pair + (end - one + 1), s + two, 16)
        return xxh3_short(pair, size)
    if size > 256:
        return h64(f"{(<const char *>s)[one:end].decode('utf-8', 'surrogatepass')} "
                   f"{(<const char *>s)[two:stop].decode('utf-8', 'surrogatepass')}")
    memcpy(pair, s + one, end - one)
    pair[end - one] = c' '
    memcpy(pair + end - one + 1, s + two, stop - two)
    return digest(pair, size)


cdef uint64_t voted(uint64_t *features, Py_ssize_t n) noexcept:
    """Return the bits that most features have. Eight counters of eight bits share a number: each has a byte of it."""
    cdef Py_ssize_t counts[64]
    cdef uint64_t sums[8]
    cdef uint64_t value = 0
    cdef Py_ssize_t i = 0, stop
    cdef int bit
    for bit in range(64):
        counts[bit] = 0
    while i < n:
        stop = min(n, i + 255)
        for bit in range(8):
            sums[bit] = 0
        while i < stop:
            for bit in range(8):
                sums[bit] += features[i] >> bit & 0x0101010101010101ULL
            i += 1
        for bit in range(64):
            counts[bit] += sums[bit & 7] >> (bit & 56) & 255
    for bit in range(64):
        if 2 * counts[bit] > n:
            value |= <uint64_t>1 << bit
    return value


cdef Py_ssize_t sampled(Work work, Text s, Py_ssize_t size) except -1:
    """Hash a sample of the pairs of a text's words (`similarity.simhash`); return how many there are."""
    cdef Py_ssize_t length = characters(s, size), head, tail, n, i, kept_n = 0
    cdef uint64_t chosen
    cdef bytes ends
    if length < size_min:
        return 0
    if length > 2 * end_max:
        head, tail, i = 0, size, 0
        if length == size:  # all of it is ASCII
            head, tail, i = end_max, size - end_max, end_max
        while i < end_max:
            head += 1
            while s[head] & 0xC0 == 0x80:
                head += 1
            tail = back(s, tail)
            i += 1
        ends = (<const char *>s)[:head] + (<const char *>s)[tail:size]
        n = paired(work, <Text><const char *>ends, len(ends), False)
    else:
        n = paired(work, s, size, False)
    if n <= features_max:
        return n
    i = n // features_max
    chosen = 1
    while i:
        chosen <<= 1
        i >>= 1
    chosen -= 1
    for i in range(n):
        if not work.features[i] >> 7 & chosen:
            work.features[kept_n] = work.features[i]
            kept_n += 1
    if not kept_n:
        return features_max
    return kept_n


cdef uint64_t short_similar(Work work, Text s, Py_ssize_t size) except? 0:
    """Return what `similarity.short_simhash` returns."""
    cdef bytes lowered
    if characters(s, size) >= size_min:
        return 0
    lowered = (<const char *>s)[:size].decode("utf-8", "surrogatepass").lower().encode("utf-8", "surrogatepass")
    return voted(work.features, paired(work, <Text><const char *>lowered, len(lowered), True))


cdef inline bint is_tick(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return whether one of ✓ ✔ ☑ ✅ starts here."""
    if s[i] != 0xE2 or i + 2 >= end:
        return False
    return (s[i + 1] == 0x9C and s[i + 2] in (0x93, 0x94, 0x85)) or (s[i + 1] == 0x98 and s[i + 2] == 0x91)


cdef inline bint is_sign(unsigned char c) noexcept:
    return c in (c'.', c'_', c'/', c'@', c':', c'#', c'-')


cdef uint64_t about(Work work, Text s, Py_ssize_t end) except? 0:
    """Return what `similarity.subjects` returns. The text is in `out`; what is found is written to `other`."""
    cdef Py_ssize_t i = 0, stop, k, n = 0, last
    cdef int size, following
    cdef bint before
    if characters(s, end) >= page_min:
        return 0
    work.swap()
    work.need(end)
    while i < end:
        size = space_at(s, i, end)
        if size:
            i += size
            continue
        stop, last, before = i, -1, False  # the word's end, and its last digit or sign between two letters
        while stop < end and not space_at(s, stop, end):
            size = 1
            if s[stop] >= 128:
                if Py_UNICODE_ISDECIMAL(decoded(s + stop, &size)):
                    last = stop
            elif c'0' <= s[stop] <= c'9':
                last = stop
            following = word_at(s, stop, end)
            if following and stop + following + 1 < end and is_sign(s[stop + following]):
                if word_at(s, stop + following + 1, end):
                    last = stop
            stop += size
        while i < stop:
            k = i
            if s[i] == c'[' and i + 2 < stop and s[i + 1] | 32 == c'x' and s[i + 2] == c']':
                k = i + 3
            elif is_tick(s, i, stop):
                k = i + 3
            elif last >= i:
                k = stop
            elif c'A' <= s[i] <= c'Z' and i > 1 and s[i - 1] == c' ' and word_at(s, i + 1, end):
                k = back(s, i - 1)
                if s[k] == c',' or word_at(s, k, end):
                    k = i + 1
                    while word_at(s, k, stop):
                        k += word_at(s, k, stop)
                else:
                    k = i
            if k == i:
                i += 1
                while i < stop and s[i] & 0xC0 == 0x80:
                    i += 1
                continue
            if n:
                work.out[n] = c' '
                n += 1
            memcpy(work.out + n, s + i, k - i)
            n += k - i
            i = k
    return digest(work.out, n) & 0xFFFFFFFF if n else 0
