# The checksum of Kafka's batches, by the processor's own instruction, as `kafka/checksums.py` has it.

cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    static int has_crc32c(void) { return __builtin_cpu_supports("sse4.2"); }
    __attribute__((target("sse4.2")))
    static unsigned int crc32c_of(const unsigned char *at, Py_ssize_t left) {
        unsigned long long found = 0xFFFFFFFFu, word;
        for (; left >= 8; at += 8, left -= 8) {
            memcpy(&word, at, 8);
            found = __builtin_ia32_crc32di(found, word);
        }
        for (; left > 0; at++, left--) found = __builtin_ia32_crc32qi((unsigned int) found, *at);
        return (unsigned int) found ^ 0xFFFFFFFFu;
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static int has_crc32c(void) { return 1; }
    static unsigned int crc32c_of(const unsigned char *at, Py_ssize_t left) {
        unsigned int found = 0xFFFFFFFFu;
        unsigned long long word;
        for (; left >= 8; at += 8, left -= 8) {
            memcpy(&word, at, 8);
            found = __crc32cd(found, word);
        }
        for (; left > 0; at++, left--) found = __crc32cb(found, *at);
        return found ^ 0xFFFFFFFFu;
    }
    #else
    static int has_crc32c(void) { return 0; }
    static unsigned int crc32c_of(const unsigned char *at, Py_ssize_t left) { return 0; }
    #endif
    """
    bint has_crc32c() noexcept
    unsigned int crc32c_of(const unsigned char *at, Py_ssize_t left) noexcept


def knows_crc32c():
    """Return whether this processor has the instruction."""
    return has_crc32c()


def crc32c(bytes data, Py_ssize_t begin, Py_ssize_t end):
    """Return the checksum of a part of some bytes."""
    if not 0 <= begin <= end <= len(data):
        raise IndexError(end)
    return crc32c_of(<Text> data + begin, end - begin)
