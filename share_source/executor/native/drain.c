/* share_source.executor.native._drain: records go from librdkafka's queues straight into Arrow's buffers, and for a ShareConsumer
 * from there into messages.
 *
 * What it does not do: it makes, configures and closes no client, assigns no partition, and decides nothing about gaps,
 * losses or time. Consumers are confluent_kafka's; this file is loaded into each as a librdkafka plugin
 * (plugin.library.paths), whose interceptor gets to know the client's address when it is made. It then separates the
 * queues of the client's partitions from the client's main queue, which Python polls as ever, so that callbacks run
 * there. docs/adr/0030 has the reasons.
 *
 * Rules: no reference to a client outlives Client.close(); a record is copied once and destroyed at once; every wait
 * ends after its timeout and is without the GIL. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "librdkafka.h"

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

#include "message.h"

#define X(result, name, arguments) static result(*name) arguments;
LIBRDKAFKA(X)
#undef X

/* ---- the plugin: which client was made last in this thread -------------------------------------------------------- */

static __thread rd_kafka_t *newest;

static int on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *error, size_t size) {
    (void)conf, (void)opaque, (void)error, (void)size;
    newest = rk;
    return 0;
}

/* librdkafka calls this by name, for each configuration whose plugin.library.paths has this file. */
__attribute__((visibility("default"))) int conf_init(rd_kafka_conf_t *conf, void **opaque, char *error, size_t size) {
    (void)opaque, (void)error, (void)size;
    if (rd_kafka_conf_interceptor_add_on_new == NULL) {
        if (size > 0)
            error[0] = '\0';
        return -186; /* _INVALID_ARG: another process's configuration names this file, and nothing is loaded */
    }
    newest = NULL;
    return rd_kafka_conf_interceptor_add_on_new(conf, "sharegroup", on_new, NULL);
}

/* ---- Builder ------------------------------------------------------------------------------------------------------ */

enum { KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, DELIVERY_COUNT, DIGEST, HEADERS, HEADER_KEY,
       HEADER_VALUE, LEADER_EPOCH, COLUMNS };

typedef struct {
    PyObject_HEAD
    int include_headers;
    int for_messages; /* leader epochs are a column instead of the receipts' digests, and times are in milliseconds */
    int64_t rows;
    size_t bytes; /* of keys, values and headers; INT_MAX / 2 more once a record did not fit */
    uint64_t moved; /* bytes of them that were copied so far, in all batches; but for what growing columns moved */
    size_t expected[COLUMNS]; /* bytes of values in the last batch: the next one has room for as many at once */
    Column columns[COLUMNS];
} Builder;

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"include_headers", "for_messages", NULL};
    int include_headers, for_messages = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p|p", names, &include_headers, &for_messages))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Builder *self = (Builder *)alloc(type, 0);
    if (self != NULL) {
        self->include_headers = include_headers;
        self->for_messages = for_messages;
    }
    return (PyObject *)self;
}

static void builder_dealloc(PyObject *object) {
    for (int n = 0; n < COLUMNS; n++)
        drop_column(&((Builder *)object)->columns[n]);
    free_object(object);
}

static int begin_batch(Builder *self) {
    for (int n = 0; n < COLUMNS; n++) {
        size_t expected = self->expected[n] + self->expected[n] / 8;
        if (expected > 0 && reserve(&self->columns[n].data, expected) < 0)
            return -1;
    }
    return 0;
}

/* Bytes of keys, values and headers that were in a column when it grew. */
static uint64_t regrown(const Builder *self) {
    const Column *columns = self->columns;
    return (uint64_t)columns[KEY].data.regrown + columns[VALUE].data.regrown + columns[HEADER_KEY].data.regrown +
           columns[HEADER_VALUE].data.regrown;
}

/* Remember how much room the next batch needs. */
static void end_batch(Builder *self) {
    self->moved += regrown(self);
    for (int n = 0; n < COLUMNS; n++)
        self->expected[n] = self->columns[n].data.size;
}

static void drop_columns(Builder *self) {
    self->rows = 0;
    self->bytes = 0;
    for (int n = 0; n < COLUMNS; n++)
        drop_column(&self->columns[n]);
}

/* As drop_columns, for columns that nobody was given: the next records go into the same memory. */
static void clear_columns(Builder *self) {
    self->rows = 0;
    self->bytes = 0;
    for (int n = 0; n < COLUMNS; n++)
        clear_column(&self->columns[n]);
}

/* A record: a view of librdkafka's message, or what a queue holds. */
typedef struct {
    const void *key, *value;
    size_t key_size, value_size;
    int32_t partition;
    int64_t offset, time_ms;
    int32_t time_kind, leader_epoch;
    rd_kafka_headers_t *headers; /* NULL if it has none */
    int headers_error;           /* librdkafka's code if its headers can't be read; 0 otherwise */
} Record;

#define HEADER_BYTES 16 /* of a header beside its name and its value: the ends of both in Arrow's columns, and its list's */
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD in UTF-8 */

/* Append a record's headers. A name that is not UTF-8 has no place in a column of strings, and becomes U+FFFD: Python's
 * reader does not get to know such a name, and both are to show the same. */
static int append_headers(Builder *self, const Record *record) {
    Column *lists = &self->columns[HEADERS], *keys = &self->columns[HEADER_KEY], *values = &self->columns[HEADER_VALUE];
    const char *key;
    const void *value;
    size_t size, count = 0;
    while (record->headers != NULL && rd_kafka_header_get_all(record->headers, count, &key, &value, &size) == 0) {
        size_t key_size = strlen(key);
        if (!is_utf8((const uint8_t *)key, key_size)) {
            key = REPLACEMENT;
            key_size = strlen(REPLACEMENT);
        }
        if (append_binary(keys, key, key_size) < 0 || append_binary(values, value, size) < 0)
            return -1;
        self->bytes += HEADER_BYTES + key_size + (value != NULL ? size : 0);
        self->moved += key_size + (value != NULL ? size : 0);
        count++;
    }
    if (append_validity(lists, count > 0) < 0)
        return -1;
    return append_end(lists, (size_t)keys->length);
}

/* Append a time: milliseconds for messages, microseconds for Arrow. Null if the column can't have it, which is some
 * 292,000 years away: the record is worth more than its time. */
static int append_time(Builder *self, int64_t time_ms) {
    Column *column = &self->columns[TIMESTAMP];
    int64_t time_us = 0;
    if (self->for_messages)
        return append_fixed(column, &time_ms, sizeof(time_ms));
    int fits = !__builtin_mul_overflow(time_ms, (int64_t)1000, &time_us);
    if (!fits)
        time_us = 0;
    return append_validity(column, fits) < 0 ? -1 : append_fixed(column, &time_us, sizeof(time_us));
}

/* Append one record; -1 without memory. A batch with an incomplete record is of no use any more. */
static int append_record(Builder *self, const Record *record, const char *topic, size_t topic_size,
                         int32_t delivery_count) {
    int32_t java_kind = record->time_kind - 1; /* librdkafka's ids of timestamp types are Java's plus one */
    Column *columns = self->columns;
    if (self->rows == 0 && begin_batch(self) < 0)
        return -1;
    if (append_binary(&columns[KEY], record->key, record->key_size) < 0 ||
        append_binary(&columns[VALUE], record->value, record->value_size) < 0 ||
        append_binary(&columns[TOPIC], topic, topic_size) < 0 ||
        append_fixed(&columns[PARTITION], &record->partition, sizeof(int32_t)) < 0 ||
        append_fixed(&columns[OFFSET], &record->offset, sizeof(int64_t)) < 0 ||
        append_time(self, record->time_ms) < 0 ||
        append_fixed(&columns[TIMESTAMP_TYPE], &java_kind, sizeof(int32_t)) < 0 ||
        append_fixed(&columns[DELIVERY_COUNT], &delivery_count, sizeof(int32_t)) < 0 ||
        (self->include_headers && append_headers(self, record) < 0) ||
        (self->for_messages && append_fixed(&columns[LEADER_EPOCH], &record->leader_epoch, sizeof(int32_t)) < 0))
        return -1;
    self->bytes += record->key_size + record->value_size;
    self->moved += record->key_size + record->value_size;
    self->rows++;
    return 0;
}

/* Give the records that have none yet the digest of their receipts: it is the same for all that one call takes. */
static int append_digests(Builder *self, int64_t digest) {
    Column *column = &self->columns[DIGEST];
    size_t more = (size_t)(self->rows - column->length);
    if (more == 0)
        return 0;
    if (reserve(&column->data, more * sizeof(digest)) < 0)
        return -1;
    uint8_t *at = column->data.bytes + column->data.size;
    for (size_t n = 0; n < more; n++)
        memcpy(at + n * sizeof(digest), &digest, sizeof(digest));
    column->data.size += more * sizeof(digest);
    column->length = self->rows;
    return 0;
}

static int export_headers(Builder *self, struct ArrowArray *lists) {
    if (lists == NULL || export_column(&self->columns[HEADERS], lists, 1, 0) < 0)
        return -1;
    struct ArrowArray *pairs = add_child(lists);
    if (pairs == NULL || begin_array(pairs, self->columns[HEADER_KEY].length, 0, 1) < 0)
        return -1;
    struct ArrowArray *keys = add_child(pairs);
    if (keys == NULL || export_column(&self->columns[HEADER_KEY], keys, 1, 1) < 0)
        return -1;
    struct ArrowArray *values = add_child(pairs);
    return values == NULL ? -1 : export_column(&self->columns[HEADER_VALUE], values, 1, 1);
}

static int export_batch(Builder *self, struct ArrowArray *batch) {
    if (begin_array(batch, self->rows, 0, 1) < 0)
        return -1;
    for (int n = KEY; n <= TIMESTAMP_TYPE; n++) {
        struct ArrowArray *child = add_child(batch);
        if (child == NULL || export_column(&self->columns[n], child, n <= TOPIC, 1) < 0)
            return -1;
    }
    if (self->include_headers && export_headers(self, add_child(batch)) < 0)
        return -1;
    for (int n = DELIVERY_COUNT; n <= DIGEST; n++) {
        struct ArrowArray *child = add_child(batch);
        if (child == NULL || export_column(&self->columns[n], child, 0, 1) < 0)
            return -1;
    }
    return 0;
}

static void drop_capsule(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array == NULL)
        return;
    if (array->release != NULL) /* whoever imports it takes the contents, and clears this */
        array->release(array);
    free(array);
}

PyDoc_STRVAR(release_doc,
             "release() -> capsule\n\nThe records as an ArrowArray capsule; the builder is empty afterwards. Not with for_messages.");

static PyObject *builder_release(PyObject *object, PyObject *unused) {
    Builder *self = (Builder *)object;
    (void)unused;
    if (self->for_messages) {
        PyErr_SetString(PyExc_RuntimeError, "the builder is made for messages");
        return NULL;
    }
    struct ArrowArray *batch = calloc(1, sizeof(*batch));
    if (batch == NULL)
        return PyErr_NoMemory();
    end_batch(self);
    int failed = export_batch(self, batch) < 0;
    drop_columns(self);
    PyObject *capsule = failed ? PyErr_NoMemory() : PyCapsule_New(batch, "arrow_array", drop_capsule);
    if (capsule == NULL) {
        if (batch->release != NULL)
            batch->release(batch);
        free(batch);
    }
    return capsule;
}

static PyObject *message_at(const Builder *self, int64_t at, PyObject *topic) {
    const Column *columns = self->columns;
    Message *message = new_message();
    if (message == NULL)
        return NULL;
    Py_INCREF(topic);
    message->topic = topic;
    message->partition = number_at(&columns[PARTITION], at);
    message->offset = long_at(&columns[OFFSET], at);
    message->time_ms = long_at(&columns[TIMESTAMP], at);
    message->time_kind = number_at(&columns[TIMESTAMP_TYPE], at) + 1;
    message->delivery_count = number_at(&columns[DELIVERY_COUNT], at);
    message->leader_epoch = number_at(&columns[LEADER_EPOCH], at);
    if (copied_at(&columns[KEY], at, &message->key) == 0 && copied_at(&columns[VALUE], at, &message->value) == 0) {
        message->headers = headers_at(&columns[HEADERS], &columns[HEADER_KEY], &columns[HEADER_VALUE], at);
        if (message->headers != NULL || !is_valid(&columns[HEADERS], at))
            return (PyObject *)message;
    }
    Py_DECREF(message);
    return NULL;
}

/* Whether the record follows the one before it in its partition, with the same delivery count. */
static int is_next(const Builder *self, int64_t at) {
    const Column *columns = self->columns;
    Py_ssize_t size, before;
    if (at == 0 || long_at(&columns[OFFSET], at) != long_at(&columns[OFFSET], at - 1) + 1 ||
        number_at(&columns[PARTITION], at) != number_at(&columns[PARTITION], at - 1) ||
        number_at(&columns[DELIVERY_COUNT], at) != number_at(&columns[DELIVERY_COUNT], at - 1))
        return 0;
    const char *topic = bytes_at(&columns[TOPIC], at, &size), *topic_before = bytes_at(&columns[TOPIC], at - 1, &before);
    return size == before && memcmp(topic, topic_before, (size_t)size) == 0;
}

/* Begin a run at this record: its topic's name, and its list, which `runs` then has. */
static int begin_run(const Builder *self, int64_t at, PyObject *runs, PyObject **topic, PyObject **messages) {
    const Column *columns = self->columns;
    Py_ssize_t size;
    const char *name = bytes_at(&columns[TOPIC], at, &size);
    Py_XDECREF(*topic);
    if ((*topic = PyUnicode_DecodeUTF8(name, size, NULL)) == NULL)
        return -1;
    PyObject *run = Py_BuildValue("(OiLiN)", *topic, (int)number_at(&columns[PARTITION], at),
                                  (long long)long_at(&columns[OFFSET], at),
                                  (int)number_at(&columns[DELIVERY_COUNT], at), *messages = PyList_New(0));
    int failed = run == NULL || PyList_Append(runs, run) < 0;
    Py_XDECREF(run);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(messages_doc,
             "messages() -> [(topic, partition, first offset, delivery count, [Message]), ...]\n\n"
             "The records as messages, by runs of neighbouring offsets with one delivery count; the builder is empty afterwards.\n"
             "It needs include_headers and for_messages.");

static PyObject *builder_messages(PyObject *object, PyObject *unused) {
    Builder *self = (Builder *)object;
    (void)unused;
    if (!self->include_headers || !self->for_messages) {
        PyErr_SetString(PyExc_RuntimeError, "the builder is not made for messages");
        return NULL;
    }
    PyObject *runs = PyList_New(0), *topic = NULL, *messages = NULL;
    int failed = runs == NULL;
    for (int64_t at = 0; !failed && at < self->rows; at++) {
        PyObject *message = NULL;
        failed = (!is_next(self, at) && begin_run(self, at, runs, &topic, &messages) < 0) ||
                 (message = message_at(self, at, topic)) == NULL || PyList_Append(messages, message) < 0;
        Py_XDECREF(message);
    }
    Py_XDECREF(topic);
    if (failed) {
        Py_XDECREF(runs);
        return NULL;
    }
    clear_columns(self);
    return runs;
}

static Py_ssize_t builder_length(PyObject *self) { return (Py_ssize_t)((Builder *)self)->rows; }

static PyObject *builder_nbytes(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(((Builder *)self)->bytes);
}

static PyObject *builder_moved(PyObject *object, void *unused) {
    Builder *self = (Builder *)object;
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->moved + regrown(self));
}

static PyMethodDef builder_methods[] = {
    {"release", builder_release, METH_NOARGS, release_doc},
    {"messages", builder_messages, METH_NOARGS, messages_doc},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef builder_getset[] = {
    {"nbytes", builder_nbytes, NULL, "Bytes of the keys, the values and the headers, 16 more for each header.", NULL},
    {"moved", builder_moved, NULL,
     "Bytes of keys, values and headers that were copied so far, in all batches: each once into its column, and again when\n"
     "its column grew, or when the record was held.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot builder_slots[] = {
    {Py_tp_doc, "Builder(include_headers, for_messages=False)\n\nCollects records for one Arrow batch, or list of messages, after the other."},
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_sq_length, builder_length},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_getset},
    {0, NULL},
};
static PyType_Spec builder_spec = {"share_source.executor.native._drain.Builder", sizeof(Builder), 0, Py_TPFLAGS_DEFAULT,
                                   builder_slots};
static PyTypeObject *builder_type;

/* ---- Client ------------------------------------------------------------------------------------------------------- */

typedef struct Queue Queue;

typedef struct {
    PyObject_HEAD
    PyObject *consumer; /* keeps the client alive */
    rd_kafka_t *rk;     /* NULL when closed */
    rd_kafka_queue_t *main;
    Queue *first; /* its open queues, without references */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int filled; /* whether a queue has got something since the last wait; guarded by the lock */
} Client;

struct Queue {
    PyObject_HEAD
    Client *client; /* a reference; NULL when closed */
    rd_kafka_queue_t *queue;
    Queue *next;
    char *topic;
    size_t topic_size;
    Record held; /* a copy of the record that came after the last one that was wanted; the next one that is read */
    void *copied; /* the key and the value of `held`; NULL if nothing is held */
};

static PyTypeObject *client_type, *queue_type;

/* A condition whose waits no change of the wall clock shortens or lengthens. */
static void init_condition(pthread_cond_t *condition) {
#ifdef __APPLE__
    pthread_cond_init(condition, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
}

/* Wait until `filled` is set, for so long at most; with the lock. */
static void wait_filled(Client *self, int timeout_ms) {
#ifdef __APPLE__
    struct timespec most = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    if (!self->filled)
        pthread_cond_timedwait_relative_np(&self->changed, &self->lock, &most);
#else
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!self->filled && pthread_cond_timedwait(&self->changed, &self->lock, &until) == 0)
        ;
#endif
}

/* librdkafka's threads call this, under the queue's lock. */
static void on_filled(rd_kafka_t *rk, void *opaque) {
    Client *self = opaque;
    (void)rk;
    pthread_mutex_lock(&self->lock);
    self->filled = 1;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"consumer", NULL};
    PyObject *consumer;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &consumer))
        return NULL;
    if (newest == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "no consumer with this plugin was made in this thread");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Client *self = (Client *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(consumer);
    self->consumer = consumer;
    self->rk = newest;
    newest = NULL;
    pthread_mutex_init(&self->lock, NULL);
    init_condition(&self->changed);
    self->main = rd_kafka_queue_get_consumer(self->rk);
    rd_kafka_queue_cb_event_enable(self->main, on_filled, self);
    return (PyObject *)self;
}

static void drop_held(Queue *self) {
    if (self->held.headers != NULL)
        rd_kafka_headers_destroy(self->held.headers);
    free(self->copied);
    self->copied = NULL;
    memset(&self->held, 0, sizeof(self->held));
}

static void on_unwanted(rd_kafka_message_t *message, void *opaque) { (void)message, (void)opaque; }

static void drop_queue(Queue *self) {
    if (self->client == NULL)
        return;
    for (Queue **at = &self->client->first; *at != NULL; at = &(*at)->next)
        if (*at == self) {
            *at = self->next;
            break;
        }
    rd_kafka_queue_cb_event_enable(self->queue, NULL, NULL);
    drop_held(self);
    while (rd_kafka_consume_callback_queue(self->queue, 0, on_unwanted, NULL) > 0)
        ; /* nobody has a use for what is left */
    rd_kafka_queue_destroy(self->queue);
    Py_CLEAR(self->client);
}

static void drop_client(Client *self) {
    if (self->rk == NULL)
        return;
    while (self->first != NULL) {
        Queue *queue = self->first;
        Py_INCREF(queue);
        Py_INCREF(self);
        drop_queue(queue);
        Py_DECREF(queue);
        Py_DECREF(self);
    }
    rd_kafka_queue_cb_event_enable(self->main, NULL, NULL);
    rd_kafka_queue_destroy(self->main);
    self->rk = NULL;
    Py_CLEAR(self->consumer); /* it refers to the object that has this client: Python could not free the circle */
}

static void client_dealloc(PyObject *object) {
    Client *self = (Client *)object;
    if (self->rk != NULL) { /* no queue is open: each would have a reference */
        rd_kafka_queue_cb_event_enable(self->main, NULL, NULL);
        rd_kafka_queue_destroy(self->main);
    }
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    Py_XDECREF(self->consumer);
    free_object(object);
}

PyDoc_STRVAR(client_close_doc, "close()\n\nLet go of the client and its queues. To be called before the consumer is closed.");

static PyObject *client_close(PyObject *self, PyObject *unused) {
    (void)unused;
    drop_client((Client *)self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(client_wait_doc,
             "wait(timeout_ms)\n\nWait until a queue of the client, the main queue included, has got something since the last wait.");

static PyObject *client_wait(PyObject *object, PyObject *args) {
    Client *self = (Client *)object;
    int timeout_ms;
    if (!PyArg_ParseTuple(args, "i", &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    wait_filled(self, timeout_ms);
    self->filled = 0;
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(client_queue_doc, "queue(topic, partition) -> Queue\n\nSeparate a partition's records from the main queue. To be called before the partition is assigned.");

static PyObject *client_queue(PyObject *object, PyObject *args) {
    Client *self = (Client *)object;
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition))
        return NULL;
    if (self->rk == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the client is closed");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(queue_type, Py_tp_alloc);
    Queue *queue = (Queue *)alloc(queue_type, 0);
    if (queue == NULL)
        return NULL;
    queue->topic = strdup(topic);
    queue->queue = rd_kafka_queue_get_partition(self->rk, topic, partition);
    if (queue->topic == NULL || queue->queue == NULL) {
        Py_DECREF(queue);
        return PyErr_NoMemory();
    }
    queue->topic_size = strlen(topic);
    Py_INCREF(self);
    queue->client = self;
    queue->next = self->first;
    self->first = queue;
    rd_kafka_queue_forward(queue->queue, NULL);
    rd_kafka_queue_cb_event_enable(queue->queue, on_filled, self);
    return (PyObject *)queue;
}

static PyMethodDef client_methods[] = {
    {"queue", client_queue, METH_VARARGS, client_queue_doc},
    {"wait", client_wait, METH_VARARGS, client_wait_doc},
    {"close", client_close, METH_NOARGS, client_close_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot client_slots[] = {
    {Py_tp_doc, "Client(consumer)\n\nThe queues of the consumer that this thread made last, with this file as a plugin."},
    {Py_tp_new, client_new},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, client_methods},
    {0, NULL},
};
static PyType_Spec client_spec = {"share_source.executor.native._drain.Client", sizeof(Client), 0, Py_TPFLAGS_DEFAULT, client_slots};

/* ---- Queue -------------------------------------------------------------------------------------------------------- */

static void queue_dealloc(PyObject *object) {
    Queue *self = (Queue *)object;
    drop_queue(self);
    free(self->topic);
    free_object(object);
}

PyDoc_STRVAR(queue_close_doc, "close()\n\nDrop the records that it holds.");

static PyObject *queue_close(PyObject *self, PyObject *unused) {
    (void)unused;
    drop_queue((Queue *)self);
    Py_RETURN_NONE;
}

/* Offset ranges, as Python hands them over: (first, last, delivery count), ascending, without overlap. */
typedef struct {
    int64_t first, last, delivery_count;
} Range;

typedef struct {
    const Range *ranges;
    size_t at, count;
    int64_t position; /* the lowest offset that is wanted or not yet seen */
    int64_t rows, bytes, hole;
} Wanted;

static void pass(Wanted *wanted, int64_t end) {
    if (end > wanted->position)
        wanted->position = end;
    while (wanted->at < wanted->count && wanted->ranges[wanted->at].last < wanted->position)
        wanted->at++;
}

static int is_done(const Wanted *wanted, const Builder *builder) {
    return wanted->at == wanted->count || builder->rows >= wanted->rows || (int64_t)builder->bytes >= wanted->bytes ||
           wanted->ranges[wanted->at].first - wanted->position > wanted->hole;
}

/* Whether Arrow's 32-bit ends have room for the record: any size of a first record, since brokers have no larger ones. */
static int has_room(const Builder *builder, const Record *record) {
    return builder->rows == 0 || builder->bytes + record->value_size + record->key_size <= INT_MAX / 2;
}

/* One call of Queue.take(). */
typedef struct {
    Queue *queue;
    Builder *builder;
    Wanted wanted;
    int failed;     /* no memory */
    int error;      /* librdkafka's code of an error that came; 0 if none did */
    char *text;     /* its text */
    int64_t offset; /* its offset, -1 if it has none */
} Taking;

#define NOENT (-156) /* librdkafka's code for a record without headers */
#define INVALID_RECORD 87

/* Append the record if it is wanted. Returns 0 if it is not its turn yet. A record whose headers can't be read is the error
 * INVALID_RECORD, and the position stays before it. */
static int take_record(Taking *taking, const Record *record) {
    Wanted *wanted = &taking->wanted;
    if (record->offset < wanted->position)
        return 1; /* it comes again */
    pass(wanted, record->offset);
    if (wanted->at == wanted->count)
        return 0;
    if (!has_room(taking->builder, record)) {
        taking->builder->bytes += INT_MAX / 2; /* not a real size: `nbytes` then says that the batch is full */
        return 0;
    }
    const Range *range = &wanted->ranges[wanted->at];
    if (record->offset >= range->first && taking->builder->include_headers && record->headers_error != 0) {
        taking->error = INVALID_RECORD;
        taking->text = strdup("librdkafka does not read the record's headers; it reads up to 100,000 of them");
        taking->offset = record->offset;
        return 1;
    }
    if (record->offset >= range->first && append_record(taking->builder, record, taking->queue->topic,
                                                        taking->queue->topic_size, (int32_t)range->delivery_count) < 0)
        taking->failed = 1;
    pass(wanted, record->offset + 1);
    return 1;
}

/* Note what librdkafka's answer says about a record's headers. */
static void read_headers(int answer, Record *record) {
    record->headers_error = answer == NOENT ? 0 : answer;
    if (answer != 0)
        record->headers = NULL;
}

static void *copy_to(uint8_t **at, const void *bytes, size_t size) {
    void *copy = *at;
    if (bytes == NULL)
        return NULL;
    memcpy(copy, bytes, size);
    *at += size;
    return copy;
}

/* Hold a copy of a record: librdkafka destroys its own after the callback. It has all that any builder may want, since the
 * next task may read another set of columns. */
static void hold(Taking *taking, rd_kafka_message_t *message, const Record *record) {
    Queue *self = taking->queue;
    uint8_t *at = self->copied = malloc(record->key_size + record->value_size + 1);
    if (at == NULL) {
        taking->failed = 1;
        return;
    }
    self->held = *record;
    self->held.key = copy_to(&at, record->key, record->key_size);
    self->held.value = copy_to(&at, record->value, record->value_size);
    taking->builder->moved += record->key_size + record->value_size;
    self->held.leader_epoch = rd_kafka_message_leader_epoch(message);
    read_headers(rd_kafka_message_detach_headers(message, &self->held.headers), &self->held);
}

static void on_message(rd_kafka_message_t *message, void *opaque) {
    Taking *taking = opaque;
    Record record = {.key = message->key,
                     .value = message->payload,
                     .key_size = message->key != NULL ? message->key_len : 0,
                     .value_size = message->payload != NULL ? message->len : 0,
                     .partition = message->partition,
                     .offset = message->offset};
    if (message->err != 0) {
        taking->error = message->err;
        taking->text = strdup(rd_kafka_message_errstr(message));
        taking->offset = message->offset >= 0 ? message->offset : -1;
    } else {
        int kind = 0;
        record.time_ms = rd_kafka_message_timestamp(message, &kind);
        record.time_kind = kind;
        if (taking->builder->for_messages)
            record.leader_epoch = rd_kafka_message_leader_epoch(message);
        if (taking->builder->include_headers)
            read_headers(rd_kafka_message_headers(message, &record.headers), &record);
        if (!take_record(taking, &record))
            hold(taking, message, &record);
    }
    if (taking->failed || taking->error != 0 || taking->queue->copied != NULL ||
        is_done(&taking->wanted, taking->builder))
        rd_kafka_yield(taking->queue->client->rk); /* the messages after this one stay in the queue */
}

/* Move records to the builder, until enough are there, the queue is empty or an error comes. */
static void move_records(Taking *taking) {
    Queue *self = taking->queue;
    if (self->copied != NULL && !is_done(&taking->wanted, taking->builder)) {
        if (!take_record(taking, &self->held))
            return;
        drop_held(self);
    }
    while (!taking->failed && taking->error == 0 && self->copied == NULL &&
           !is_done(&taking->wanted, taking->builder) &&
           rd_kafka_consume_callback_queue(self->queue, 0, on_message, taking) > 0)
        ;
}

PyDoc_STRVAR(queue_take_doc,
             "take(builder, ranges, digest, position, rows, nbytes, hole) -> (position, event or None)\n\n"
             "Append the records whose offsets lie in the ranges, from a position on, until the builder has so many rows or bytes,\n"
             "a hole wider than `hole` follows, the ranges end, the queue is empty, or an event comes: (code, text, offset).\n"
             "`ranges`: int64 triples (first, last, delivery count) as bytes; `digest`: that of the records' receipts, which an\n"
             "Arrow batch has and messages do not. The position returned is after the last record seen.");

static PyObject *queue_take(PyObject *object, PyObject *args) {
    Queue *self = (Queue *)object;
    PyObject *into, *ranges;
    long long digest, position, rows, bytes, hole;
    if (!PyArg_ParseTuple(args, "O!SLLLLL", builder_type, &into, &ranges, &digest, &position, &rows, &bytes, &hole))
        return NULL;
    if (self->client == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the queue is closed");
        return NULL;
    }
    Taking taking = {.queue = self,
                     .builder = (Builder *)into,
                     .wanted = {.ranges = (const Range *)PyBytes_AsString(ranges),
                                .count = (size_t)PyBytes_Size(ranges) / sizeof(Range),
                                .position = position,
                                .rows = rows,
                                .bytes = bytes,
                                .hole = hole}};
    Py_BEGIN_ALLOW_THREADS
    size_t low = 0, high = taking.wanted.count; /* the first range that does not end below the position */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (taking.wanted.ranges[middle].last < position)
            low = middle + 1;
        else
            high = middle;
    }
    taking.wanted.at = low;
    move_records(&taking);
    if (!taking.failed && !taking.builder->for_messages && append_digests(taking.builder, digest) < 0)
        taking.failed = 1;
    Py_END_ALLOW_THREADS
    PyObject *result;
    if (taking.failed)
        result = PyErr_NoMemory();
    else if (taking.error == 0)
        result = Py_BuildValue("(LO)", (long long)taking.wanted.position, Py_None);
    else
        result = Py_BuildValue("(L(isL))", (long long)taking.wanted.position, taking.error, taking.text,
                               (long long)taking.offset);
    free(taking.text);
    return result;
}

static PyMethodDef queue_methods[] = {
    {"take", queue_take, METH_VARARGS, queue_take_doc},
    {"close", queue_close, METH_NOARGS, queue_close_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot queue_slots[] = {
    {Py_tp_doc, "The records and events of one partition, as Client.queue() returns it."},
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_methods, queue_methods},
    {0, NULL},
};
static PyType_Spec queue_spec = {"share_source.executor.native._drain.Queue", sizeof(Queue), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, queue_slots};

/* ---- the module --------------------------------------------------------------------------------------------------- */

/* Find librdkafka's functions in the library that confluent_kafka's own module is linked with, wherever it lies. */
static int find_librdkafka(void) {
    int found = -1;
    PyObject *path = NULL, *module = PyImport_ImportModule("confluent_kafka.cimpl");
    if (module == NULL || (path = PyObject_GetAttrString(module, "__file__")) == NULL ||
        (confluents_message = PyObject_GetAttrString(module, "Message")) == NULL)
        goto end;
    PyObject *encoded = PyUnicode_EncodeFSDefault(path);
    if (encoded == NULL)
        goto end;
    void *library = dlopen(PyBytes_AsString(encoded), RTLD_NOW | RTLD_LOCAL);
    Py_DECREF(encoded);
    if (library == NULL) {
        PyErr_Format(PyExc_ImportError, "confluent_kafka's library can't be opened: %s", dlerror());
        goto end;
    }
#define X(result, name, arguments)                                                                                     \
    if ((*(void **)&name = dlsym(library, #name)) == NULL) {                                                           \
        PyErr_SetString(PyExc_ImportError, "confluent_kafka's librdkafka does not show " #name);                       \
        goto end;                                                                                                      \
    }
    LIBRDKAFKA(X)
#undef X
    found = 0;
end:
    Py_XDECREF(path);
    Py_XDECREF(module);
    return found;
}

static int check_plugins(void) {
    char features[1024] = "";
    size_t size = sizeof(features);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    int answer = rd_kafka_conf_get(conf, "builtin.features", features, &size);
    rd_kafka_conf_destroy(conf);
    if (answer == 0 && strstr(features, "plugins") != NULL)
        return 0;
    PyErr_SetString(PyExc_ImportError, "confluent_kafka's librdkafka takes no plugins");
    return -1;
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL || PyModule_AddObjectRef(module, name, type) < 0) {
        Py_XDECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_drain", "Records from librdkafka's queues into Arrow's buffers, and messages.", -1, NULL, NULL, NULL, NULL,
    NULL};

PyMODINIT_FUNC PyInit__drain(void) {
    if (find_librdkafka() < 0 || check_plugins() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if ((builder_type = add_type(module, "Builder", &builder_spec)) == NULL ||
        (client_type = add_type(module, "Client", &client_spec)) == NULL ||
        (queue_type = add_type(module, "Queue", &queue_spec)) == NULL ||
        (message_type = add_type(module, "Message", &message_spec)) == NULL ||
        PyModule_AddStringConstant(module, "LIBRDKAFKA", rd_kafka_version_str()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
