"""XXH3-64 of up to 240 bytes (seed 0), after https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.

A SimHash hashes thousands of word pairs: calling the package `xxhash` for each would be most of its time.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef uint64_t P1 = 0x9E3779B185EBCA87ULL
cdef uint64_t P2 = 0xC2B2AE3D27D4EB4FULL
cdef uint64_t P3 = 0x165667B19E3779F9ULL

cdef bytes _SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
cdef const unsigned char *SECRET = _SECRET

cdef enum:
    XXH3_LIMIT = 240  # bytes that `xxh3_short` hashes


cdef inline uint64_t read64(const unsigned char *s) noexcept nogil:
    cdef uint64_t found
    memcpy(&found, s, 8)
    return found


cdef inline uint64_t read32(const unsigned char *s) noexcept nogil:
    cdef uint32_t found
    memcpy(&found, s, 4)
    return found


cdef inline uint64_t rotated(uint64_t x, int by) noexcept nogil:
    return x << by | x >> (64 - by)


cdef inline uint64_t swapped(uint64_t x) noexcept nogil:
    x = (x & 0x00FF00FF00FF00FFULL) << 8 | (x >> 8) & 0x00FF00FF00FF00FFULL
    x = (x & 0x0000FFFF0000FFFFULL) << 16 | (x >> 16) & 0x0000FFFF0000FFFFULL
    return x << 32 | x >> 32


cdef inline uint64_t folded(uint64_t a, uint64_t b) noexcept nogil:
    """Return the halves of the 128-bit product, xored."""
    cdef uint64_t low = (a & 0xFFFFFFFFULL) * (b & 0xFFFFFFFFULL)
    cdef uint64_t mid = (a >> 32) * (b & 0xFFFFFFFFULL)
    cdef uint64_t other = (a & 0xFFFFFFFFULL) * (b >> 32)
    cdef uint64_t cross = (low >> 32) + (mid & 0xFFFFFFFFULL) + other
    return ((mid >> 32) + (cross >> 32) + (a >> 32) * (b >> 32)) ^ (cross << 32 | low & 0xFFFFFFFFULL)


cdef inline uint64_t mixed(const unsigned char *s, int secret) noexcept nogil:
    return folded(read64(s) ^ read64(SECRET + secret), read64(s + 8) ^ read64(SECRET + secret + 8))


cdef inline uint64_t spread(uint64_t h) noexcept nogil:
    h = (h ^ h >> 37) * 0x165667919E3779F9ULL
    return h ^ h >> 32


cdef inline uint64_t spread64(uint64_t h) noexcept nogil:
    h = (h ^ h >> 33) * P2
    h = (h ^ h >> 29) * P3
    return h ^ h >> 32


cdef uint64_t xxh3_short(const unsigned char *s, Py_ssize_t n) noexcept nogil:
    """Return the hash of up to 240 bytes."""
    cdef uint64_t h, low, high
    cdef Py_ssize_t i
    if n > 128:
        h = <uint64_t>n * P1
        for i in range(8):
            h += mixed(s + 16 * i, 16 * <int>i)
        h = spread(h)
        for i in range(8, n // 16):
            h += mixed(s + 16 * i, 16 * (<int>i - 8) + 3)
        return spread(h + mixed(s + n - 16, 119))
    if n > 16:
        h = <uint64_t>n * P1
        if n > 96:
            h += mixed(s + 48, 96) + mixed(s + n - 64, 112)
        if n > 64:
            h += mixed(s + 32, 64) + mixed(s + n - 48, 80)
        if n > 32:
            h += mixed(s + 16, 32) + mixed(s + n - 32, 48)
        return spread(h + mixed(s, 0) + mixed(s + n - 16, 16))
    if n > 8:
        low = read64(s) ^ read64(SECRET + 24) ^ read64(SECRET + 32)
        high = read64(s + n - 8) ^ read64(SECRET + 40) ^ read64(SECRET + 48)
        return spread(<uint64_t>n + swapped(low) + high + folded(low, high))
    if n > 3:
        h = (read32(s + n - 4) + (read32(s) << 32)) ^ read64(SECRET + 8) ^ read64(SECRET + 16)
        h ^= rotated(h, 49) ^ rotated(h, 24)
        h *= 0x9FB21C651E98DF25ULL
        h ^= (h >> 35) + <uint64_t>n
        h *= 0x9FB21C651E98DF25ULL
        return h ^ h >> 28
    if n:
        h = <uint64_t>s[0] << 16 | <uint64_t>s[n >> 1] << 24 | s[n - 1] | <uint64_t>n << 8
        return spread64(h ^ read32(SECRET) ^ read32(SECRET + 4))
    return spread64(read64(SECRET + 56) ^ read64(SECRET + 64))
