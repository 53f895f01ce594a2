/* Columns of records in Arrow's memory layout, appended record by record, and handed over by Arrow's C data interface.
 * The columns are those of share_source/arrow_schema.py, in its order. */
#ifndef SHAREGROUP_ARROW_BUILDER_H
#define SHAREGROUP_ARROW_BUILDER_H

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* Bytes that grow. */
typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
    size_t regrown; /* bytes that were there when it grew, which realloc may have moved */
} Bytes;

static int reserve(Bytes *at, size_t more) {
    if (at->size + more <= at->capacity)
        return 0;
    size_t wanted = at->capacity * 2;
    if (wanted < at->size + more)
        wanted = at->size + more;
    if (wanted < 64)
        wanted = 64;
    uint8_t *bytes = realloc(at->bytes, wanted);
    if (bytes == NULL)
        return -1;
    at->bytes = bytes;
    at->capacity = wanted;
    at->regrown += at->size;
    return 0;
}

/* One column. A fixed-width column has its values in `data`; binary and string columns have the ends of their values in
 * `ends`, a list has those of its lists. */
typedef struct {
    Bytes ends, data, valid;
    int64_t length, nulls;
} Column;

static void drop_column(Column *column) {
    free(column->ends.bytes);
    free(column->data.bytes);
    free(column->valid.bytes);
    memset(column, 0, sizeof(*column));
}

/* Remove the values, and keep the memory. */
static void clear_column(Column *column) {
    column->ends.size = column->data.size = column->valid.size = 0;
    column->length = column->nulls = 0;
}

/* The bitmap of values that are not null is made at the first null. */
static int append_validity(Column *column, int valid) {
    if (column->valid.size == 0 && valid)
        return 0;
    size_t wanted = (size_t)(column->length / 8 + 1);
    if (column->valid.size < wanted) {
        size_t old = column->valid.size;
        if (reserve(&column->valid, wanted - old) < 0)
            return -1;
        memset(column->valid.bytes + old, old == 0 ? 0xff : 0, wanted - old);
        if (old == 0) /* all before this one are valid, all from here on are still to be said */
            column->valid.bytes[wanted - 1] = (uint8_t)((1u << (column->length % 8)) - 1);
        column->valid.size = wanted;
    }
    if (valid)
        column->valid.bytes[column->length / 8] |= (uint8_t)(1u << (column->length % 8));
    else
        column->nulls++;
    return 0;
}

static int append_end(Column *column, size_t end) {
    if (column->ends.size == 0) {
        int32_t zero = 0;
        if (reserve(&column->ends, 64 * sizeof(zero)) < 0)
            return -1;
        memcpy(column->ends.bytes, &zero, sizeof(zero));
        column->ends.size = sizeof(zero);
    }
    if (end > INT32_MAX || reserve(&column->ends, sizeof(int32_t)) < 0)
        return -1;
    int32_t narrow = (int32_t)end;
    memcpy(column->ends.bytes + column->ends.size, &narrow, sizeof(narrow));
    column->ends.size += sizeof(narrow);
    column->length++;
    return 0;
}

/* Whether the bytes are UTF-8, as Python and Arrow have it: no surrogates, and each character in its shortest form. */
static int is_utf8(const uint8_t *at, size_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80)
            continue;
        int more = first >= 0xc2 && first <= 0xdf ? 1 : (first & 0xf0) == 0xe0 ? 2 : first >= 0xf0 && first <= 0xf4 ? 3 : 0;
        if (more == 0 || end - at < more)
            return 0;
        uint8_t lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        uint8_t highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        for (; more > 0; more--, at++, lowest = 0x80, highest = 0xbf)
            if (*at < lowest || *at > highest)
                return 0;
    }
    return 1;
}

/* Append a binary or a string value: the only copy of its bytes. NULL is null. */
static int append_binary(Column *column, const void *bytes, size_t size) {
    if (append_validity(column, bytes != NULL) < 0)
        return -1;
    if (bytes != NULL && size > 0) {
        if (reserve(&column->data, size) < 0)
            return -1;
        memcpy(column->data.bytes + column->data.size, bytes, size);
        column->data.size += size;
    }
    return append_end(column, column->data.size);
}

static int append_fixed(Column *column, const void *value, size_t width) {
    if (reserve(&column->data, width) < 0)
        return -1;
    memcpy(column->data.bytes + column->data.size, value, width);
    column->data.size += width;
    column->length++;
    return 0;
}

/* What an exported array owns. */
typedef struct {
    void *owned[3];
    const void *buffers[3];
    struct ArrowArray *children[16];
} Exported;

static void release_array(struct ArrowArray *array) {
    Exported *exported = array->private_data;
    for (int64_t n = 0; n < array->n_children; n++) {
        struct ArrowArray *child = array->children[n];
        if (child->release != NULL)
            child->release(child);
        free(child);
    }
    for (int n = 0; n < 3; n++)
        free(exported->owned[n]);
    free(exported);
    array->release = NULL;
}

/* Begin an array without children or buffers; -1 without memory. */
static int begin_array(struct ArrowArray *array, int64_t length, int64_t nulls, int n_buffers) {
    Exported *exported = calloc(1, sizeof(*exported));
    if (exported == NULL)
        return -1;
    memset(array, 0, sizeof(*array));
    array->length = length;
    array->null_count = nulls;
    array->n_buffers = n_buffers;
    array->buffers = exported->buffers;
    array->children = exported->children;
    array->private_data = exported;
    array->release = release_array;
    return 0;
}

static struct ArrowArray *add_child(struct ArrowArray *parent) {
    struct ArrowArray *child = calloc(1, sizeof(*child));
    if (child != NULL)
        parent->children[parent->n_children++] = child;
    return child;
}

static void hand_over(struct ArrowArray *array, int at, Bytes *bytes) {
    Exported *exported = array->private_data;
    exported->owned[at] = bytes->bytes;
    exported->buffers[at] = bytes->bytes;
    memset(bytes, 0, sizeof(*bytes));
}

/* Hand a column over to an array: its validity, then the ends if it has them, then its values. The array owns the
 * memory from then on. A list has no values of its own. */
static int export_column(Column *column, struct ArrowArray *array, int has_ends, int has_data) {
    int32_t zero = 0;
    if (has_ends && column->ends.size == 0) {
        if (reserve(&column->ends, sizeof(zero)) < 0)
            return -1;
        memcpy(column->ends.bytes, &zero, sizeof(zero));
    }
    /* A buffer of values may be empty, but Arrow wants an address. */
    if (has_data && column->data.bytes == NULL && reserve(&column->data, 1) < 0)
        return -1;
    if (begin_array(array, column->length, column->nulls, 1 + has_ends + has_data) < 0)
        return -1;
    hand_over(array, 0, &column->valid);
    if (has_ends)
        hand_over(array, 1, &column->ends);
    if (has_data)
        hand_over(array, 1 + has_ends, &column->data);
    column->length = column->nulls = 0;
    return 0;
}

#endif
