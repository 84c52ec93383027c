/*
 * Writes that are on two nodes once they are acknowledged, in Cenote or (compiled with -DRADOS) in a pool of Ceph RADOS.
 *
 *     objects WHERE LABEL SMALL LARGE     WHERE: a store's directory, or a Ceph's configuration
 *
 * LABEL: of a new container, `sync-...` for one of that durability; or of the pool. Two lines "NAME FIGURE UNIT" for:
 *
 *   write_4k: the time of SMALL writes of 4 KiB, one after the other, at random blocks of objects that were written before
 *   write_4m: the rate of LARGE new objects of 4 MiB, 16 at a time, as `rados bench` has
 *
 * Everything is deleted at the end.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 4096, OBJECT = 4 << 20, OLD = 16, AT_ONCE = 16 };

#ifdef RADOS

#include <rados/librados.h>

typedef rados_completion_t flying;

static rados_t cluster;
static rados_ioctx_t pool;

static void check(int kind, const char *what)
{
    if (kind >= 0) return;
    fprintf(stderr, "objects: %s: %s\n", what, strerror(-kind));
    exit(1);
}

static const char *name_of(long number)
{
    static char name[64];
    snprintf(name, sizeof name, "bench-%ld", number);
    return name;
}

static void start(const char *where, const char *label)
{
    check(rados_create(&cluster, "admin"), "rados_create");
    check(rados_conf_read_file(cluster, where), where);
    check(rados_connect(cluster), "rados_connect");
    check(rados_ioctx_create(cluster, label, &pool), label);
}

static void make(long number, const void *bytes)
{
    check(rados_write_full(pool, name_of(number), bytes, OBJECT), "rados_write_full");
}

static void put(long number, uint64_t at, const void *bytes)
{
    check(rados_write(pool, name_of(number), bytes, BLOCK, at), "rados_write");
}

static flying launch(long number, const void *bytes)
{
    flying one;
    check(rados_aio_create_completion2(NULL, NULL, &one), "rados_aio_create_completion2");
    check(rados_aio_write_full(pool, name_of(number), one, bytes, OBJECT), "rados_aio_write_full");
    return one;
}

static void await(flying one)
{
    rados_aio_wait_for_complete(one);
    check(rados_aio_get_return_value(one), "a write");
    rados_aio_release(one);
}

static void finish(long count)
{
    for (long number = 0; number < count; number++) check(rados_remove(pool, name_of(number)), "rados_remove");
    rados_ioctx_destroy(pool);
    rados_shutdown(cluster);
}

#else

#include <cenote.h>

typedef cenote_op_t *flying;

static cenote_store_t *store;
static cenote_container_t *container;
static cenote_error_t *error;
static const char *own_label;
/* Handles of objects that were made before. */
static cenote_object_t *old[OLD];

static void check(int32_t kind, const char *what)
{
    if (kind == CENOTE_OK) return;
    fprintf(stderr, "objects: %s: %s\n", what, error != NULL ? error->message : cenote_kind_words(kind));
    exit(1);
}

static void start(const char *where, const char *label)
{
    cenote_container_spec_t spec;
    cenote_container_spec_init(&spec);
    spec.durability = strncmp(label, "sync", 4) == 0 ? CENOTE_SYNC : CENOTE_ASYNC;
    check(cenote_open(where, NULL, &store, &error), where);
    check(cenote_container_create(store, label, &spec, &container, &error), label);
    own_label = label;
}

static cenote_object_t *object(long number)
{
    cenote_object_t *made;
    cenote_id_t id = {0, (uint64_t)number + 1};
    check(cenote_object_create(container, &id, 0, &made, &error), "cenote_object_create");
    return made;
}

static void make(long number, const void *bytes)
{
    old[number] = object(number);
    check(cenote_write(old[number], 0, bytes, OBJECT, &error), "cenote_write");
}

static void put(long number, uint64_t at, const void *bytes)
{
    check(cenote_write(old[number], at, bytes, BLOCK, &error), "cenote_write");
}

static flying launch(long number, const void *bytes)
{
    flying one;
    cenote_object_t *made = object(number);
    check(cenote_launch_write(made, 0, bytes, OBJECT, &one, &error), "cenote_launch_write");
    cenote_object_free(made);
    return one;
}

static void await(flying one) { check(cenote_op_wait(one, &error), "a write"); }

static void finish(long count)
{
    (void)count;
    for (int number = 0; number < OLD; number++) cenote_object_free(old[number]);
    cenote_container_free(container);
    check(cenote_container_delete(store, own_label, &error), own_label);
    check(cenote_close(store, &error), "cenote_close");
}

#endif

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int by_size(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void small(long count, const char *bytes)
{
    double *times = malloc((size_t)count * sizeof *times);
    uint64_t random = 88172645463325252ULL;
    for (int number = 0; number < OLD; number++) make(number, bytes);
    for (long n = -count / 10; n < count; n++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        double begin = now_s();
        put((long)(random % OLD), random / OLD % (OBJECT / BLOCK) * BLOCK, bytes + n % 64 + 64);
        if (n >= 0) times[n] = (now_s() - begin) * 1e6;
    }
    qsort(times, (size_t)count, sizeof *times, by_size);
    printf("write_4k %.1f us\nwrite_4k_p99 %.1f us\n", times[count / 2], times[count * 99 / 100]);
    free(times);
}

static void large(long count, const char *bytes)
{
    flying under_way[AT_ONCE];
    double begin = now_s();
    for (long n = 0; n < count + AT_ONCE; n++) {
        if (n >= AT_ONCE) await(under_way[n % AT_ONCE]);
        if (n < count) under_way[n % AT_ONCE] = launch(OLD + n, bytes);
    }
    printf("write_4m %.2f MiB/s\n", (double)count * OBJECT / (1 << 20) / (now_s() - begin));
}

int main(int count, char **words)
{
    if (count != 5 || atol(words[3]) < 1 || atol(words[4]) < AT_ONCE) {
        fprintf(stderr, "usage: objects WHERE LABEL SMALL LARGE, at least 1 and %d\n", AT_ONCE);
        return 2;
    }
    char *bytes = malloc(OBJECT);
    for (long at = 0; at < OBJECT; at++) bytes[at] = (char)(((uint64_t)at * 0x9E3779B97F4A7C15ULL) >> 56);
    start(words[1], words[2]);
    small(atol(words[3]), bytes);
    large(atol(words[4]), bytes);
    finish(OLD + atol(words[4]));
    return 0;
}
