"""The memory layout of msgspec structs under this Python and this msgspec."""

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t slot_offset(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    """
    Py_ssize_t slot_offset(object descriptor)


def slot_offsets(kind):
    """Return the offset in bytes of each field within an instance; -1 for a field that is not a slot."""
    return {name: slot_offset(getattr(kind, name)) for name in kind.__struct_fields__}
