/* share_source.executor.native._drain.Message: a record that a ShareConsumer's poll returns, with the methods of
 * confluent_kafka.Message, and its delivery count. isinstance() counts it as one of that class.
 *
 * It owns copies of what it shows: it keeps no memory of librdkafka's alive. */
#ifndef SHAREGROUP_MESSAGE_H
#define SHAREGROUP_MESSAGE_H

#include "arrow_builder.h"

typedef struct {
    PyObject_HEAD
    PyObject *topic, *key, *value, *headers, *error; /* NULL is None */
    int64_t offset, time_ms;
    int32_t time_kind, partition, delivery_count, leader_epoch;
} Message;

static PyTypeObject *message_type;
static PyObject *confluents_message; /* confluent_kafka.Message */

static PyObject *shown(PyObject *held) {
    PyObject *object = held != NULL ? held : Py_None;
    Py_INCREF(object);
    return object;
}

static void message_dealloc(PyObject *object) {
    Message *self = (Message *)object;
    Py_XDECREF(self->topic);
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    Py_XDECREF(self->headers);
    Py_XDECREF(self->error);
    free_object(object);
}

/* A method that shows what the message holds, and one that replaces it. */
#define SHOWN(name)                                                                                                    \
    static PyObject *message_##name(PyObject *self, PyObject *unused) {                                                \
        (void)unused;                                                                                                  \
        return shown(((Message *)self)->name);                                                                         \
    }
#define REPLACED(name)                                                                                                 \
    static PyObject *message_set_##name(PyObject *self, PyObject *object) {                                            \
        PyObject *before = ((Message *)self)->name;                                                                    \
        Py_INCREF(object);                                                                                             \
        ((Message *)self)->name = object;                                                                              \
        Py_XDECREF(before);                                                                                            \
        Py_RETURN_NONE;                                                                                                \
    }
#define NUMBER(name)                                                                                                   \
    static PyObject *message_##name(PyObject *self, PyObject *unused) {                                                \
        (void)unused;                                                                                                  \
        return PyLong_FromLongLong(((Message *)self)->name);                                                           \
    }

SHOWN(topic) SHOWN(key) SHOWN(value) SHOWN(headers) SHOWN(error)
REPLACED(topic) REPLACED(key) REPLACED(value) REPLACED(headers) REPLACED(error)
NUMBER(partition) NUMBER(offset) NUMBER(delivery_count)

static PyObject *message_timestamp(PyObject *object, PyObject *unused) {
    Message *self = (Message *)object;
    (void)unused;
    return Py_BuildValue("(iL)", (int)self->time_kind, (long long)self->time_ms);
}

static PyObject *message_leader_epoch(PyObject *object, PyObject *unused) {
    Message *self = (Message *)object;
    (void)unused;
    return self->leader_epoch < 0 ? shown(NULL) : PyLong_FromLong(self->leader_epoch);
}

static PyObject *message_latency(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return shown(NULL); /* that of a delivery to a broker */
}

static Py_ssize_t message_length(PyObject *object) {
    Message *self = (Message *)object;
    return self->value == NULL || self->value == Py_None ? 0 : PyObject_Size(self->value);
}

static PyObject *message_repr(PyObject *object) {
    Message *self = (Message *)object;
    return PyUnicode_FromFormat("<Message %S-%d@%lld delivery_count=%d>", self->topic != NULL ? self->topic : Py_None,
                                (int)self->partition, (long long)self->offset, (int)self->delivery_count);
}

/* As a plain message: a confluent_kafka.Message and the delivery count, which a process without compiled code has too. */
static PyObject *message_reduce(PyObject *object, PyObject *unused) {
    Message *self = (Message *)object;
    (void)unused;
    PyObject *module = PyImport_ImportModule("share_consumer.message");
    if (module == NULL)
        return NULL;
    PyObject *plain = PyObject_GetAttrString(module, "Message");
    Py_DECREF(module);
    if (plain == NULL)
        return NULL;
#define OR_NONE(held) ((held) != NULL ? (held) : Py_None)
    PyObject *read = PyObject_CallFunction(
        confluents_message, "OiLOOOO(iL)di", OR_NONE(self->topic), (int)self->partition, (long long)self->offset,
        OR_NONE(self->key), OR_NONE(self->value), OR_NONE(self->headers), OR_NONE(self->error), (int)self->time_kind,
        (long long)self->time_ms, -1.0 /* no latency */, (int)self->leader_epoch);
#undef OR_NONE
    if (read == NULL) {
        Py_DECREF(plain);
        return NULL;
    }
    return Py_BuildValue("(N(Ni))", plain, read, (int)self->delivery_count);
}

static PyObject *message_class(PyObject *self, void *unused) {
    (void)self, (void)unused;
    return shown(confluents_message);
}

PyDoc_STRVAR(delivery_count_doc, "delivery_count()\n\nHow often the record has been acquired, this time included.");

#define AS_CONFLUENTS(name) {#name, message_##name, METH_NOARGS, "As that of confluent_kafka.Message."}
#define SET_AS_CONFLUENTS(name) {"set_" #name, message_set_##name, METH_O, "As that of confluent_kafka.Message."}
static PyMethodDef message_methods[] = {
    AS_CONFLUENTS(topic), AS_CONFLUENTS(partition), AS_CONFLUENTS(offset), AS_CONFLUENTS(key), AS_CONFLUENTS(value),
    AS_CONFLUENTS(headers), AS_CONFLUENTS(error), AS_CONFLUENTS(timestamp), AS_CONFLUENTS(latency),
    AS_CONFLUENTS(leader_epoch), SET_AS_CONFLUENTS(topic), SET_AS_CONFLUENTS(key), SET_AS_CONFLUENTS(value),
    SET_AS_CONFLUENTS(headers), SET_AS_CONFLUENTS(error),
    {"deserialized_key", message_key, METH_NOARGS, "As key()."},
    {"deserialized_value", message_value, METH_NOARGS, "As value()."},
    {"delivery_count", message_delivery_count, METH_NOARGS, delivery_count_doc},
    {"__reduce__", message_reduce, METH_NOARGS, "How pickle and copy make another one, which Python's class holds."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef message_getset[] = {
    {"__class__", message_class, NULL, "confluent_kafka.Message: isinstance() asks for it, and type() does not.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot message_slots[] = {
    {Py_tp_doc, "A record with its delivery count, and the methods of confluent_kafka.Message."},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_repr, message_repr},
    {Py_sq_length, message_length},
    {Py_tp_methods, message_methods},
    {Py_tp_getset, message_getset},
    {0, NULL},
};
static PyType_Spec message_spec = {"share_source.executor.native._drain.Message", sizeof(Message), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, message_slots};

/* ---- messages out of columns -------------------------------------------------------------------------------------- */

static int is_valid(const Column *column, int64_t at) {
    return column->valid.size == 0 || (column->valid.bytes[at / 8] >> (at % 8) & 1);
}

static int32_t number_at(const Column *column, int64_t at) { return ((const int32_t *)column->data.bytes)[at]; }

static int64_t long_at(const Column *column, int64_t at) { return ((const int64_t *)column->data.bytes)[at]; }

/* Where a value of a binary column begins, and its size. */
static const char *bytes_at(const Column *column, int64_t at, Py_ssize_t *size) {
    const int32_t *ends = (const int32_t *)column->ends.bytes;
    *size = ends[at + 1] - ends[at];
    return *size > 0 ? (const char *)column->data.bytes + ends[at] : "";
}

/* A value of a binary column. Returns 0 and NULL for null, and -1 without memory. */
static int copied_at(const Column *column, int64_t at, PyObject **value) {
    Py_ssize_t size;
    *value = NULL;
    if (!is_valid(column, at))
        return 0;
    const char *bytes = bytes_at(column, at, &size);
    return (*value = PyBytes_FromStringAndSize(bytes, size)) == NULL ? -1 : 0;
}

/* The headers of a record as a list of pairs; NULL without any, or with an error set. Their names are UTF-8. */
static PyObject *headers_at(const Column *lists, const Column *keys, const Column *values, int64_t at) {
    if (!is_valid(lists, at))
        return NULL;
    const int32_t *ends = (const int32_t *)lists->ends.bytes;
    PyObject *found = PyList_New(ends[at + 1] - ends[at]);
    for (int32_t n = ends[at]; found != NULL && n < ends[at + 1]; n++) {
        Py_ssize_t size;
        const char *name = bytes_at(keys, n, &size);
        PyObject *value, *pair = NULL, *key = PyUnicode_DecodeUTF8(name, size, NULL);
        if (key != NULL && copied_at(values, n, &value) == 0) {
            pair = PyTuple_Pack(2, key, value != NULL ? value : Py_None);
            Py_XDECREF(value);
        }
        Py_XDECREF(key);
        if (pair == NULL || PyList_SetItem(found, n - ends[at], pair) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static Message *new_message(void) {
    allocfunc alloc = (allocfunc)PyType_GetSlot(message_type, Py_tp_alloc);
    return (Message *)alloc(message_type, 0);
}

#endif
