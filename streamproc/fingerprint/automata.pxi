"""Automata, and what the masks ask beyond them. Included by `scan.pyx`."""

include "tables.pxi"

cdef struct Automaton:
    const unsigned short *next
    unsigned int classes
    unsigned char kind[128]
    unsigned char beyond[4]
    int named
    Py_UCS4 names[NAMED_MAX]
    unsigned char kind_of_name[NAMED_MAX]
    unsigned char begins[128]
    unsigned char follows[128]
    unsigned char follows_beyond[4]
    bint starts_text
    int only  # the one character that it begins with; -1 if there are several
    int aheads
    Automaton *ahead[AHEAD_MAX]

cdef Automaton ansi, temporary, json, date, process, token, number, time_key, setting, decimals
cdef Automaton looks_ahead[AHEAD_MAX]
cdef unsigned char FLAGS[256]
cdef unsigned char TWO[128 * 128]  # the same for two characters, of which the first may begin a pattern
cdef unsigned char ALNUM[256]  # letters and digits of ASCII
cdef unsigned char WORD[256]  # and the underscore
cdef Py_ssize_t key_max = KEY_MAX, id_length = ID_LENGTH, masked_max = MASKED_MAX
cdef Py_ssize_t size_min = SIZE_MIN, end_max = END_MAX, features_max = FEATURES_MAX, page_min = PAGE_MIN
cdef Py_ssize_t words_min = WORDS_MIN

cdef struct Literal:
    Text text
    Py_ssize_t size
    Py_ssize_t colon  # where its colon is

cdef Literal literals[LITERALS_MAX]
cdef int literal_count = 0
cdef list _kept = []  # what the structs point into


cdef int fill(Automaton *a, dict made) except -1:
    cdef bytes table = made["next"]
    cdef int k
    _kept.append(table)
    a.next = <const unsigned short *><const char *>table
    a.classes = made["classes"]
    a.named = len(made["named"])
    if a.named > NAMED_MAX:
        raise ImportError("more named characters than scan.pyx has places for")
    for k in range(a.named):
        a.names[k], a.kind_of_name[k] = made["named"][k]
    for k in range(4):
        a.beyond[k] = made["beyond"][k]
    for k in range(128):
        a.kind[k] = made["kind"][k]
    a.aheads = 0
    if "begins" not in made:
        return 0
    a.starts_text = made["starts_text"]
    for k in range(4):
        a.follows_beyond[k] = made["follows_beyond"][k]
    for k in range(128):
        a.begins[k], a.follows[k] = made["begins"][k], made["follows"][k]
    a.only = made["begins"].index(1) if sum(made["begins"]) == 1 else -1
    a.aheads = len(made["ahead"])
    if a.aheads and (a is not &token or a.aheads > AHEAD_MAX):
        raise ImportError("more looks ahead than scan.pyx has places for")
    for k in range(a.aheads):
        fill(&looks_ahead[k], made["ahead"][k])
        a.ahead[k] = &looks_ahead[k]
    return 0


cdef int goes_on(Automaton *a, int c, int d) noexcept:
    """Return whether a match that begins with these two characters, or with the first of them alone, may exist."""
    cdef unsigned int value = a.next[a.classes + a.kind[c]]
    return value & 1 or (value > 1 and a.next[(value >> 1) * a.classes + a.kind[d]] > 0)


cdef int prepare() except -1:
    global literal_count
    cdef int c, d
    fill(&ansi, AUTOMATA["ansi"])
    fill(&temporary, AUTOMATA["temporary"])
    fill(&json, AUTOMATA["json"])
    fill(&date, AUTOMATA["date"])
    fill(&process, AUTOMATA["process"])
    fill(&token, AUTOMATA["token"])
    fill(&number, AUTOMATA["number"])
    fill(&time_key, TABLES["time_key"])
    fill(&setting, TABLES["setting"])
    fill(&decimals, TABLES["decimals"])
    if len(HARNESS) > LITERALS_MAX:
        raise ImportError("more texts of a harness than scan.pyx has places for")
    for word in HARNESS:
        part = word.encode()
        _kept.append(part)
        literals[literal_count] = Literal(<Text><const char *>part, len(part), part.index(b":"))
        literal_count += 1
    for c in range(256):
        FLAGS[c] = 0
        ALNUM[c] = c < 128 and chr(c).isalnum()
        WORD[c] = ALNUM[c] or c == c'_'
        if c < 128:
            FLAGS[c] = (
                temporary.begins[c] * TEMPORARY | json.begins[c] * JSON | date.begins[c] * DATE
                | process.begins[c] * PROCESS | token.begins[c] * TOKEN | number.begins[c] * NUMBER
                | (c == c':') * FRAME | chr(c).isspace() * SPACE
            )
    for c in range(128):
        for d in range(128):
            TWO[c << 7 | d] = FLAGS[c] & (
                FRAME | SPACE | goes_on(&temporary, c, d) * TEMPORARY | goes_on(&json, c, d) * JSON
                | goes_on(&date, c, d) * DATE | goes_on(&process, c, d) * PROCESS | goes_on(&token, c, d) * TOKEN
                | goes_on(&number, c, d) * NUMBER
            )
    for c in range(0x110000):
        if c > 127 and not 0xD800 <= c < 0xE000 and chr(c).isspace():
            FLAGS[chr(c).encode()[0]] |= SPACE  # perhaps
    return 0


prepare()


cdef inline Py_UCS4 decoded(Text s, int *size) noexcept:
    """Return the character that starts here, which is beyond ASCII, and how many bytes it has."""
    if s[0] >= 0xF0:
        size[0] = 4
        return (s[0] & 7) << 18 | (s[1] & 63) << 12 | (s[2] & 63) << 6 | (s[3] & 63)
    if s[0] >= 0xE0:
        size[0] = 3
        return (s[0] & 15) << 12 | (s[1] & 63) << 6 | (s[2] & 63)
    size[0] = 2
    return (s[0] & 31) << 6 | (s[1] & 63)


cdef inline Py_ssize_t back(Text s, Py_ssize_t i) noexcept:
    """Return where the character before i starts."""
    i -= 1
    while i > 0 and s[i] & 0xC0 == 0x80:
        i -= 1
    return i


cdef inline int beyond(Py_UCS4 c) noexcept:
    """Return the class of a character beyond ASCII, as `tables.BEYOND` numbers them."""
    if Py_UNICODE_ISDECIMAL(c):
        return 0
    if Py_UNICODE_ISALNUM(c):
        return 1
    return 2 if Py_UNICODE_ISSPACE(c) else 3


cdef inline int word_at(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return how many bytes the character of a word (`\\w`) has that starts here; 0 if there is none."""
    cdef int size
    if i >= end:
        return 0
    if s[i] < 128:
        return WORD[s[i]]
    return size if Py_UNICODE_ISALNUM(decoded(s + i, &size)) else 0


cdef inline int space_at(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    cdef int size
    if i >= end or not FLAGS[s[i]] & SPACE:
        return 0
    if s[i] < 128:
        return 1
    return size if Py_UNICODE_ISSPACE(decoded(s + i, &size)) else 0


cdef inline Py_ssize_t find(Automaton *a, Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return where the match that begins at i ends; -1 if there is none."""
    cdef unsigned int state = 1, value
    cdef Py_ssize_t last = -1
    cdef int size, k, kind
    cdef Py_UCS4 c
    while i < end:
        size = 1
        if s[i] < 128:
            kind = a.kind[s[i]]
        else:
            c = decoded(s + i, &size)
            kind = -1
            for k in range(a.named):
                if a.names[k] == c:
                    kind = a.kind_of_name[k]
            if kind < 0:
                kind = a.beyond[beyond(c)]
        value = a.next[state * a.classes + <unsigned int>kind]
        if value & 1:
            last = i
        state = value >> 1
        if not state:
            return last
        i += size
    return i if a.next[state * a.classes + a.classes - 1] & 1 else last


cdef inline Py_ssize_t match(Automaton *a, Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return the same, where also what comes before i, and what must follow, allows a match."""
    cdef int size, k
    if s[i] >= 128 or not a.begins[s[i]]:
        return -1
    if i == 0:
        if not a.starts_text:
            return -1
    elif s[i - 1] < 128:
        if not a.follows[s[i - 1]]:
            return -1
    elif not a.follows_beyond[beyond(decoded(s + back(s, i), &size))]:
        return -1
    for k in range(a.aheads):
        if find(a.ahead[k], s, i + 1, end) < 0:
            return -1
    return find(a, s, i, end)


cdef bint kept(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return whether a match of the pattern of numbers stays as it is (`mask._number`)."""
    cdef Py_ssize_t k = i, count = 0
    cdef bint letters = True, lower = False, upper = False, plain = True
    cdef int size
    cdef unsigned int c
    while k < end:
        size = 1
        c = s[k]
        if c >= 128:
            c = decoded(s + k, &size)
        letters = letters and c'a' <= (c | 32) <= c'z'
        plain = plain and Py_UNICODE_ISALNUM(c)
        lower = lower or Py_UNICODE_ISLOWER(c)
        upper = upper or Py_UNICODE_ISUPPER(c) or Py_UNICODE_ISTITLE(c)
        count += 1
        k += size
    if letters:
        return True
    if i and s[i - 1] == c'.':
        k = i - 1
        if k > 0:
            k = back(s, k)
            c = s[k] if s[k] < 128 else decoded(s + k, &size)
            if Py_UNICODE_ISDECIMAL(c) and find(&decimals, s, i, end) >= 0:
                return True
    return count == id_length and plain and (upper or not lower or (i > 0 and s[i - 1] == c'#'))


cdef bint identifies(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return whether a match of the pattern of numbers is an id or a number in hex (`mask._IDENTIFIES`)."""
    cdef Py_ssize_t k
    cdef bint lettered = False
    for k in range(i, end):
        if c'a' <= (s[k] | 32) <= c'f' or s[k] == c'x':
            lettered = True
        elif not (c'0' <= s[k] <= c'9' or s[k] == c'-'):
            return False
    return lettered


cdef bint chosen(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return whether a match of the pattern of numbers is a duration that nobody measured (`mask._chosen`)."""
    cdef Py_ssize_t k
    cdef bint unit = False
    for k in range(i, end):
        if s[k] == c':' or (s[k] == c'.' and not (i >= 1 and (s[i - 1] == c'"' or s[i - 1] == c"'" or s[i - 1] == c'['))):
            return False
        unit = unit or s[k] == c's' or s[k] == c'm' or s[k] == c'h'
    if not unit or (i >= 1 and s[i - 1] == c'('):
        return False
    return not ((i >= 3 and memcmp(s + i - 3, b"in ", 3) == 0) or (i >= 5 and memcmp(s + i - 5, b"took ", 5) == 0))


cdef bint made_up(Text s, Py_ssize_t begin, Py_ssize_t end) noexcept:
    """Return whether a part of a temporary path is another one each time (`mask._MADE_UP`)."""
    cdef Py_ssize_t k
    cdef int digits = 0
    cdef bint lower = False, upper = False, hexed = True
    if end - begin > 3 and memcmp(s + begin, b"tmp", 3) == 0:
        return True
    if end - begin >= 7 and memcmp(s + begin, b"pytest-", 7) == 0:
        return True
    for k in range(begin, end):
        if c'0' <= s[k] <= c'9':
            digits += 1
            if digits == 3 or (k + 1 < end and c'a' <= (s[k + 1] | 32) <= c'z'):
                return True
    k = end
    while k > begin and (c'a' <= (s[k - 1] | 32) <= c'z' or c'0' <= s[k - 1] <= c'9'):
        k -= 1
        hexed = hexed and c'a' <= s[k] <= c'f'
        lower = lower or c'a' <= s[k] <= c'z'
        upper = upper or (c'A' <= s[k] <= c'Z' and k > begin and s[k - 1] != c'.' and s[k - 1] != c'_' and s[k - 1] != c'-')
    if k == begin or end - k < 6 or not (s[k - 1] == c'.' or s[k - 1] == c'_' or s[k - 1] == c'-'):
        return False
    return hexed or (lower and upper)


cdef bint timed(Text s, Py_ssize_t i) noexcept:
    """Return whether the number after this `":` is a measured time (`mask._json_number`)."""
    cdef Py_ssize_t start = i, count = 0, before
    while start > 0 and count < key_max:
        before = back(s, start)
        if s[before] == c'"':
            break
        start = before
        count += 1
    return find(&time_key, s, start, i) >= 0 and find(&setting, s, start, i) < 0


cdef bint framed(Text s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """Return whether this colon is part of what a harness says."""
    cdef int k
    cdef Literal *one
    for k in range(literal_count):
        one = &literals[k]
        if i >= one.colon and i - one.colon + one.size <= end and memcmp(s + i - one.colon, one.text, one.size) == 0:
            return True
    return False


cdef bint rare(Text s, Py_ssize_t i, Py_ssize_t end, int wanted) noexcept:
    """Return whether a pattern whose bit is in `wanted`, and which comes before that of numbers, matches here."""
    wanted &= FLAGS[s[i]]
    return (
        (wanted & DATE and match(&date, s, i, end) >= 0)
        or (wanted & PROCESS and match(&process, s, i, end) >= 0)
        or (wanted & TOKEN and match(&token, s, i, end) >= 0)
        or (wanted & TEMPORARY and match(&temporary, s, i, end) >= 0)
        or (wanted & JSON and match(&json, s, i, end) >= 0 and timed(s, i))
        or (wanted & FRAME and framed(s, i, end))
    )
