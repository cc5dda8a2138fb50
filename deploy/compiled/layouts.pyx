"""Where the fields of a msgspec type lie, as this Python and this msgspec have laid them out."""

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
    """The bytes from an instance's beginning to each of its fields; -1 for one that is no slot."""
    return {name: slot_offset(getattr(kind, name)) for name in kind.__struct_fields__}
