# Kafka's hash of a record's key: Austin Appleby's MurmurHash2, with the seed of Kafka's Java client.

def murmur2(bytes key):
    """Return the 32-bit murmur2 of a key, unsigned."""
    cdef Text at = <Text> key
    cdef Py_ssize_t left = len(key)
    cdef unsigned int word, found = 0x9747B28Cu ^ <unsigned int> left
    while left >= 4:
        memcpy(&word, at, 4)
        word *= 0x5BD1E995u
        word ^= word >> 24
        word *= 0x5BD1E995u
        found *= 0x5BD1E995u
        found ^= word
        at += 4
        left -= 4
    if left > 2:
        found ^= <unsigned int> at[2] << 16
    if left > 1:
        found ^= <unsigned int> at[1] << 8
    if left > 0:
        found ^= at[0]
        found *= 0x5BD1E995u
    found ^= found >> 13
    found *= 0x5BD1E995u
    found ^= found >> 15
    return found
