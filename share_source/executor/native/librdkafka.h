/* The part of librdkafka's public interface that drain.c calls, found at run time in the library that confluent_kafka
 * has loaded: a build needs no librdkafka, and a process has only one. Names, types and numbers are those of rdkafka.h,
 * which librdkafka keeps stable throughout version 1 and 2. */
#ifndef SHAREGROUP_LIBRDKAFKA_H
#define SHAREGROUP_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

typedef int (*rd_kafka_on_new_t)(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *error, size_t size);

/* X(result, name, arguments), one a function. */
#define LIBRDKAFKA(X)                                                                                                  \
    X(const char *, rd_kafka_version_str, (void))                                                                      \
    X(rd_kafka_conf_t *, rd_kafka_conf_new, (void))                                                                    \
    X(void, rd_kafka_conf_destroy, (rd_kafka_conf_t *))                                                                \
    X(int, rd_kafka_conf_get, (const rd_kafka_conf_t *, const char *, char *, size_t *))                               \
    X(int, rd_kafka_conf_interceptor_add_on_new, (rd_kafka_conf_t *, const char *, rd_kafka_on_new_t, void *))         \
    X(rd_kafka_queue_t *, rd_kafka_queue_get_consumer, (rd_kafka_t *))                                                 \
    X(rd_kafka_queue_t *, rd_kafka_queue_get_partition, (rd_kafka_t *, const char *, int32_t))                         \
    X(void, rd_kafka_queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                                          \
    X(void, rd_kafka_queue_cb_event_enable, (rd_kafka_queue_t *, void (*)(rd_kafka_t *, void *), void *))              \
    X(void, rd_kafka_queue_destroy, (rd_kafka_queue_t *))                                                              \
    X(int, rd_kafka_consume_callback_queue,                                                                            \
      (rd_kafka_queue_t *, int, void (*)(rd_kafka_message_t *, void *), void *))                                       \
    X(void, rd_kafka_yield, (rd_kafka_t *))                                                                            \
    X(const char *, rd_kafka_message_errstr, (const rd_kafka_message_t *))                                             \
    X(int64_t, rd_kafka_message_timestamp, (const rd_kafka_message_t *, int *))                                        \
    X(int32_t, rd_kafka_message_leader_epoch, (const rd_kafka_message_t *))                                            \
    X(int, rd_kafka_message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                              \
    X(int, rd_kafka_message_detach_headers, (rd_kafka_message_t *, rd_kafka_headers_t **))                             \
    X(void, rd_kafka_headers_destroy, (rd_kafka_headers_t *))                                                          \
    X(int, rd_kafka_header_get_all,                                                                                    \
      (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))

#endif
