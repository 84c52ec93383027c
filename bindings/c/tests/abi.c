/*
 * Tests what the interface promises, and what careless programs do to it. Compiled as C99 and as C++; prints the
 * failures. Usage: abi DIRECTORY
 */
#include <cenote.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
static cenote_error_t *error = NULL;

#define EXPECT(what)                                                  \
    do {                                                              \
        if (!(what)) {                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
            failures++;                                               \
        }                                                             \
    } while (0)

/* Checks that the call returns this kind, and an error that matches it. */
#define GIVES(wanted, call)                                                                             \
    do {                                                                                                \
        int32_t kind = (call);                                                                          \
        if (kind != (wanted)) {                                                                         \
            fprintf(stderr, "line %d: %s gave %d (%s): %s\n", __LINE__, #call, (int)kind,               \
                    cenote_kind_words(kind), error != NULL ? error->message : "");                      \
            failures++;                                                                                 \
        }                                                                                               \
        EXPECT((kind == CENOTE_OK) == (error == NULL));                                                 \
        if (error != NULL) {                                                                            \
            EXPECT(error->kind == kind && error->subject[0] != 0 && error->message[0] != 0);            \
            EXPECT(strstr(error->message, error->subject) != NULL);                                     \
        }                                                                                               \
        cenote_error_free(error);                                                                       \
        error = NULL;                                                                                   \
    } while (0)
#define WORKS(call) GIVES(CENOTE_OK, call)

static cenote_slice_t text(const char *words) {
    cenote_slice_t slice;
    slice.data = (const uint8_t *)words;
    slice.len = strlen(words);
    return slice;
}

static void count(void *context, const cenote_range_t *range) {
    *(uint64_t *)context += range->len;
    EXPECT(range->why != NULL && range->tier != NULL && range->why[0] != 0);
}

static void count_labels(void *context, const char *label) {
    EXPECT(label[0] == 'r');
    ++*(int *)context;
}

static void count_tiers(void *context, const cenote_tier_t *tier) {
    EXPECT(tier->capacity_bytes > 0 && tier->state == CENOTE_TIER_ONLINE);
    ++*(int *)context;
}

static volatile int called = 0;
static void done(void *context, int32_t kind, const cenote_error_t *failure) {
    *(int32_t *)context = kind;
    EXPECT((kind == CENOTE_OK) == (failure == NULL));
    called = 1;
}

static void bad_handles(cenote_store_t *store, cenote_container_t *runs, cenote_object_t *object) {
    cenote_container_t *other;
    cenote_object_t *another;
    cenote_object_stat_t stat;
    cenote_view_t *view;
    cenote_index_t *index;
    cenote_op_t *op;
    cenote_id_t id;
    char byte = 0;
    size_t got;
    GIVES(CENOTE_INVALID_INPUT, cenote_flush(NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open(NULL, "runs", &other, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open(store, NULL, &other, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open(store, "runs", NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open(store, "caf\xe9", &other, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open((cenote_store_t *)object, "runs", &other, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_container_open((cenote_store_t *)((char *)store + 1), "runs", &other, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_create(NULL, NULL, 0, &another, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_create(runs, NULL, 4095, &another, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_create(runs, NULL, 0, NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_read(NULL, 0, &byte, 1, &got, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_read(object, 0, NULL, 1, &got, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_read(object, 0, &byte, (size_t)-1, &got, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_write(NULL, 0, &byte, 1, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_write(object, 0, NULL, 1, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_writev(object, NULL, 3, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_stat(NULL, &stat, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_stat(object, NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_view(NULL, 0, 1, &view, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_index_create(NULL, NULL, &index, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_launch_write(NULL, 0, &byte, 1, &op, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_op_wait(NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_commit(NULL, NULL, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_tier_add(store, "name=x", &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_id_parse("xyz", &id, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_id_parse(NULL, &id, &error));
    EXPECT(cenote_view_data(NULL, &got) == NULL && cenote_op_is_done(NULL) == -1 && cenote_records_count(NULL) == 0);
    /* With a null error pointer, only the kind. */
    EXPECT(cenote_flush(NULL, NULL) == CENOTE_INVALID_INPUT);
    /* Freeing null has no effect. */
    cenote_container_free(NULL);
    cenote_object_free(NULL);
    cenote_index_free(NULL);
    cenote_view_free(NULL);
    cenote_write_free(NULL);
    cenote_records_free(NULL);
    cenote_bytes_free(NULL);
    cenote_abort(NULL);
    cenote_error_free(NULL);
    WORKS(cenote_close(NULL, &error));
    /* A freed handle is an error, not a crash. */
    WORKS(cenote_object_create(runs, NULL, 0, &another, &error));
    cenote_object_free(another);
    GIVES(CENOTE_INVALID_INPUT, cenote_write(another, 0, &byte, 1, &error));
    cenote_object_free(another);
}

static void objects(cenote_store_t *store, cenote_container_t *runs, cenote_object_t *object) {
    static char data[10000], back[10000];
    cenote_iov_t parts[2];
    cenote_object_stat_t stat;
    cenote_view_t *view;
    cenote_write_t *writing;
    cenote_op_t *op;
    cenote_object_t *other, *through;
    cenote_id_t id = {0, 77}, found[4], same;
    const uint8_t *seen;
    uint8_t *room;
    size_t got = 0, len = 0, listed = 0;
    uint64_t explained = 0, at = 0;
    int32_t result = -1;
    char digits[33];
    int i;
    for (i = 0; i < 10000; i++) data[i] = (char)(i * 7);

    WORKS(cenote_write(object, 5, data, sizeof data, &error));
    WORKS(cenote_read(object, 5, back, sizeof back, &got, &error));
    EXPECT(got == sizeof data && memcmp(data, back, sizeof data) == 0);
    WORKS(cenote_read(object, 10000, back, sizeof back, &got, &error));
    EXPECT(got == 5);
    WORKS(cenote_object_stat(object, &stat, &error));
    EXPECT(stat.size == 10005 && stat.block_size == 4096 && stat.epoch > 0);
    WORKS(cenote_read(object, 0, NULL, 0, NULL, &error));

    parts[0].offset = 100;
    parts[0].data = (uint8_t *)"ab";
    parts[0].len = 2;
    parts[1].offset = 200;
    parts[1].data = (uint8_t *)"cd";
    parts[1].len = 2;
    WORKS(cenote_writev(object, parts, 2, &error));
    parts[0].data = (uint8_t *)back;
    parts[1].data = (uint8_t *)back + 2;
    WORKS(cenote_readv(object, parts, 2, &error));
    EXPECT(memcmp(back, "abcd", 4) == 0);

    WORKS(cenote_object_create(runs, &id, 65536, &other, &error));
    WORKS(cenote_object_id(other, &same, &error));
    EXPECT(same.high == 0 && same.low == 77);
    WORKS(cenote_write(other, 0, data, sizeof data, &error));
    WORKS(cenote_view(other, 0, sizeof data, &view, &error));
    EXPECT(view != NULL);
    seen = cenote_view_data(view, &len);
    EXPECT(seen != NULL && len == sizeof data && memcmp(seen, data, len) == 0);
    WORKS(cenote_write(other, 0, back, 100, &error));
    EXPECT(seen != NULL && memcmp(seen, data, len) == 0);
    cenote_view_free(view);
    EXPECT(cenote_view_data(view, &len) == NULL);

    WORKS(cenote_write_in_place(other, 1000, &writing, &room, &error));
    memset(room, 9, 1000);
    WORKS(cenote_write_commit(writing, 0, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_write_commit(writing, 0, &error));
    WORKS(cenote_write_in_place(other, 1000, &writing, &room, &error));
    cenote_write_free(writing);
    WORKS(cenote_read(other, 999, back, 2, &got, &error));
    EXPECT(back[0] == 9 && back[1] == data[1000]);

    WORKS(cenote_launch_write(other, 0, data, sizeof data, &op, &error));
    EXPECT(cenote_op_is_done(op) >= 0);
    WORKS(cenote_op_wait(op, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_op_wait(op, &error));
    WORKS(cenote_launch_read(other, 0, sizeof back, &op, &error));
    WORKS(cenote_op_wait_read(op, back, sizeof back, &got, &error));
    EXPECT(got == sizeof back && memcmp(data, back, sizeof data) == 0);
    WORKS(cenote_launch_write(other, 0, "called", 6, &op, &error));
    WORKS(cenote_op_on_done(op, done, &result, &error));
    WORKS(cenote_wait_all(store, &error));
    for (i = 0; i < 100000000 && !called; i++) {
    }
    EXPECT(called && result == CENOTE_OK);

    WORKS(cenote_truncate(other, 3, &error));
    WORKS(cenote_punch(other, 0, 2, &error));
    WORKS(cenote_read(other, 0, back, 10, &got, &error));
    EXPECT(got == 3 && memcmp(back, "\0\0l", 3) == 0);
    WORKS(cenote_append(other, "more", 4, &at, &error));
    EXPECT(at == 3);
    WORKS(cenote_object_size(other, &at, &error));
    EXPECT(at == 7);
    WORKS(cenote_next_data(other, 0, &at, &error));
    EXPECT(at == 2);
    WORKS(cenote_next_hole(other, 2, &at, &error));
    EXPECT(at == 7);
    WORKS(cenote_next_hole(other, 7, &at, &error));
    EXPECT(at == CENOTE_NOWHERE);
    WORKS(cenote_copy(other, 10, other, 3, 100, &at, &error));
    EXPECT(at == 4);
    WORKS(cenote_read(other, 10, back, 10, &got, &error));
    EXPECT(got == 4 && memcmp(back, "more", 4) == 0);
    GIVES(CENOTE_INVALID_INPUT, cenote_copy(other, 4, other, 3, 4, NULL, &error));
    WORKS(cenote_object_flush(other, &error));
    WORKS(cenote_explain(store, object, count, NULL, &explained, &error));
    EXPECT(explained == 10000);

    WORKS(cenote_objects(runs, NULL, found, 4, &listed, &error));
    EXPECT(listed == 3);
    WORKS(cenote_id_format(found[0], digits, &error));
    EXPECT(strlen(digits) == 32);
    WORKS(cenote_id_parse(digits, &same, &error));
    EXPECT(same.high == found[0].high && same.low == found[0].low);
    cenote_object_free(other);
    GIVES(CENOTE_EXISTS, cenote_object_create(runs, &id, 0, &other, &error));
    WORKS(cenote_object_delete(runs, id, &error));
    GIVES(CENOTE_NOT_FOUND, cenote_object_delete(runs, id, &error));
    WORKS(cenote_object_open(runs, id, &other, &error));
    GIVES(CENOTE_NOT_FOUND, cenote_read(other, 0, back, 1, &got, &error));
    cenote_object_free(other);
    WORKS(cenote_object_create(runs, NULL, 0, &other, &error));
    WORKS(cenote_object_buffered(other, CENOTE_SYNC, &through, &error));
    WORKS(cenote_write(through, 0, "durable", 7, &error));
    WORKS(cenote_read(other, 0, back, 7, &got, &error));
    EXPECT(got == 7 && memcmp(back, "durable", 7) == 0);
    cenote_object_free(through);
    GIVES(CENOTE_INVALID_INPUT, cenote_object_buffered(other, CENOTE_SCRATCH, &through, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_object_buffered(other, 17, &through, &error));
    cenote_object_free(other);
}

static void indices(cenote_container_t *runs) {
    cenote_index_t *index;
    cenote_records_t *records;
    cenote_record_t two[2], record;
    cenote_slice_t keys[3];
    cenote_bytes_t values[3];
    cenote_op_t *op;
    uint8_t codes[3];
    cenote_id_t id = {0, 5}, same;
    WORKS(cenote_index_create(runs, &id, &index, &error));
    WORKS(cenote_index_id(index, &same, &error));
    EXPECT(same.low == 5);
    two[0].key = text("a");
    two[0].value = text("1");
    two[1].key = text("b");
    two[1].value = text("");
    WORKS(cenote_index_put(index, two, 2, codes, &error));
    EXPECT(codes[0] == CENOTE_KEY_OK && codes[1] == CENOTE_KEY_OK);
    two[1].key = text("c");
    WORKS(cenote_index_put_new(index, two, 2, codes, &error));
    EXPECT(codes[0] == CENOTE_KEY_EXISTS && codes[1] == CENOTE_KEY_OK);
    keys[0] = text("a");
    keys[1] = text("none");
    keys[2] = text("b");
    WORKS(cenote_index_get(index, keys, 3, values, &error));
    EXPECT(values[0].found && values[0].len == 1 && values[0].data[0] == '1');
    EXPECT(!values[1].found && values[2].found && values[2].len == 0);
    cenote_bytes_free(&values[0]);
    cenote_bytes_free(&values[0]);
    cenote_bytes_free(&values[1]);
    cenote_bytes_free(&values[2]);
    WORKS(cenote_launch_put(index, text("ab"), text("12"), &op, &error));
    WORKS(cenote_op_wait(op, &error));
    WORKS(cenote_index_next(index, text(""), NULL, 0, 10, &records, &error));
    EXPECT(cenote_records_count(records) == 4);
    record = cenote_records_get(records, 1);
    EXPECT(record.key.len == 2 && memcmp(record.value.data, "12", 2) == 0);
    EXPECT(cenote_records_get(records, 4).key.data == NULL);
    cenote_records_free(records);
    WORKS(cenote_index_next(index, text("a"), &keys[0], 1, 10, &records, &error));
    EXPECT(cenote_records_count(records) == 1);
    cenote_records_free(records);
    WORKS(cenote_index_del(index, keys, 2, codes, &error));
    EXPECT(codes[0] == CENOTE_KEY_OK && codes[1] == CENOTE_KEY_NOT_FOUND);
    cenote_index_free(index);
    WORKS(cenote_index_open_or_create(runs, id, &index, &error));
    cenote_index_free(index);
    WORKS(cenote_index_delete(runs, id, &error));
}

static void transactions(cenote_store_t *store, cenote_container_t *runs) {
    cenote_transaction_t *transaction;
    cenote_object_t *object;
    cenote_index_t *index;
    cenote_bytes_t value;
    cenote_slice_t key = text("k");
    cenote_record_t record;
    char back[8];
    size_t got;
    uint64_t first = 0, second = 0;
    WORKS(cenote_begin(store, 0, &transaction, &error));
    WORKS(cenote_transaction_create_object(transaction, runs, NULL, 0, &object, &error));
    WORKS(cenote_transaction_create_index(transaction, runs, NULL, &index, &error));
    WORKS(cenote_transaction_write(transaction, object, 0, "abcdef", 6, &error));
    WORKS(cenote_transaction_truncate(transaction, object, 5, &error));
    WORKS(cenote_transaction_punch(transaction, object, 1, 1, &error));
    WORKS(cenote_transaction_read(transaction, object, 0, back, sizeof back, &got, &error));
    EXPECT(got == 5 && memcmp(back, "a\0cde", 5) == 0);
    WORKS(cenote_transaction_put(transaction, index, key, text("v"), 0, &error));
    WORKS(cenote_transaction_get(transaction, index, key, &value, &error));
    EXPECT(value.found && value.len == 1);
    cenote_bytes_free(&value);
    GIVES(CENOTE_NOT_FOUND, cenote_read(object, 0, back, 1, &got, &error));
    WORKS(cenote_commit(transaction, &first, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_commit(transaction, &first, &error));
    WORKS(cenote_read(object, 0, back, sizeof back, &got, &error));
    EXPECT(got == 5);

    WORKS(cenote_begin(store, 0, &transaction, &error));
    WORKS(cenote_transaction_del(transaction, index, key, &error));
    cenote_abort(transaction);
    GIVES(CENOTE_INVALID_INPUT, cenote_transaction_del(transaction, index, key, &error));

    WORKS(cenote_begin(store, 1, &transaction, &error));
    WORKS(cenote_transaction_get(transaction, index, key, &value, &error));
    cenote_bytes_free(&value);
    record.key = key;
    record.value = text("w");
    WORKS(cenote_index_put(index, &record, 1, NULL, &error));
    WORKS(cenote_transaction_put(transaction, index, key, text("x"), 0, &error));
    GIVES(CENOTE_CONFLICT, cenote_commit(transaction, NULL, &error));

    WORKS(cenote_begin(store, 0, &transaction, &error));
    WORKS(cenote_transaction_put(transaction, index, key, text("y"), 1, &error));
    GIVES(CENOTE_EXISTS, cenote_commit(transaction, NULL, &error));

    WORKS(cenote_begin(store, 0, &transaction, &error));
    WORKS(cenote_transaction_delete_object(transaction, object, &error));
    WORKS(cenote_transaction_delete_index(transaction, index, &error));
    WORKS(cenote_commit(transaction, &second, &error));
    EXPECT(second > first);
    cenote_object_free(object);
    cenote_index_free(index);
}

static void count_names(void *context, const char *name) {
    EXPECT(strcmp(name, "s") == 0);
    ++*(int *)context;
}

/* Snapshots of two containers at one moment. */
static void snapshots(cenote_store_t *store, cenote_container_t *runs) {
    cenote_container_t *more = NULL;
    const cenote_container_t *both[2];
    int counted = 0;
    WORKS(cenote_container_create(store, "rounds", NULL, &more, &error));
    both[0] = runs;
    both[1] = more;
    WORKS(cenote_snapshot(store, both, 2, "s", 0, &error));
    GIVES(CENOTE_EXISTS, cenote_snapshot(store, both, 2, "s", 0, &error));
    WORKS(cenote_snapshot(store, both, 2, "s", 1, &error));
    WORKS(cenote_roll_back(store, both, 2, "s", &error));
    WORKS(cenote_container_snapshots(more, count_names, &counted, &error));
    EXPECT(counted == 1);
    WORKS(cenote_container_delete_snapshot(more, "s", &error));
    GIVES(CENOTE_NOT_FOUND, cenote_delete_snapshot(store, both, 2, "s", &error));
    WORKS(cenote_delete_snapshot(store, both, 1, "s", &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_snapshot(store, both, 2, NULL, 0, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_snapshot(store, NULL, 2, "s", 0, &error));
    both[1] = NULL;
    GIVES(CENOTE_INVALID_INPUT, cenote_snapshot(store, both, 2, "s", 0, &error));
    cenote_container_free(more);
    WORKS(cenote_container_delete(store, "rounds", &error));
}

int main(int argc, char **argv) {
    char path[4096], disk[4200], digits[33];
    const char *tiers[2];
    cenote_options_t options;
    cenote_container_spec_t spec;
    cenote_store_t *store = NULL, *other = NULL;
    cenote_container_t *runs = NULL, *more = NULL;
    cenote_object_t *object = NULL;
    cenote_stats_t stats;
    uint64_t findings = 9;
    int32_t stopped;
    int counted = 0;

    if (argc != 2) return 2;
    EXPECT(cenote_abi_version() == CENOTE_ABI_VERSION && strlen(cenote_version()) > 0);
    EXPECT(strcmp(cenote_kind_words(CENOTE_CORRUPT), "corrupt") == 0);
    EXPECT(strcmp(cenote_kind_words(0), "no error") == 0 && cenote_kind_words(-5) != NULL);

    snprintf(path, sizeof path, "%s/store", argv[1]);
    snprintf(disk, sizeof disk, "name=disk,kind=directory,path=%s/disk,size=64MiB", argv[1]);
    tiers[0] = "name=memory,kind=memory,size=16MiB";
    tiers[1] = disk;

    cenote_options_init(&options);
    options.create = 0;
    GIVES(CENOTE_NOT_FOUND, cenote_open(path, &options, &store, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_open(NULL, &options, &store, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_open("", &options, &store, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_open(path, &options, NULL, &error));
    options.create = 1;
    options.mode = 17;
    GIVES(CENOTE_INVALID_INPUT, cenote_open(path, &options, &store, &error));
    options.mode = CENOTE_MODE_AUTO;
    options.tiers_len = 2;
    GIVES(CENOTE_INVALID_INPUT, cenote_open(path, &options, &store, &error));
    options.tiers = tiers;
    options.size = 3;
    GIVES(CENOTE_INVALID_INPUT, cenote_open(path, &options, &store, &error));
    options.size = sizeof options;
    EXPECT(store == NULL);
    WORKS(cenote_open(path, &options, &store, &error));
    options.create_new = 1;
    GIVES(CENOTE_EXISTS, cenote_open(path, &options, &other, &error));
    WORKS(cenote_store_id(store, digits, &error));
    EXPECT(strlen(digits) == 32);

    cenote_container_spec_init(&spec);
    spec.durability = CENOTE_SCRATCH;
    WORKS(cenote_container_create(store, "runs", NULL, &runs, &error));
    WORKS(cenote_container_open_or_create(store, "rests", &spec, &more, &error));
    spec.durability = 99;
    GIVES(CENOTE_INVALID_INPUT, cenote_container_create(store, "new", &spec, &more, &error));
    spec.durability = CENOTE_SYNC;
    spec.block_size = 100;
    GIVES(CENOTE_INVALID_INPUT, cenote_container_create(store, "new", &spec, &more, &error));
    GIVES(CENOTE_EXISTS, cenote_container_create(store, "runs", NULL, &more, &error));
    WORKS(cenote_containers(store, "r", count_labels, &counted, &error));
    EXPECT(counted == 2);
    snapshots(store, runs);
    WORKS(cenote_container_rename(store, "rests", "walks", &error));
    WORKS(cenote_container_delete(store, "walks", &error));
    GIVES(CENOTE_NOT_FOUND, cenote_container_delete(store, "walks", &error));
    cenote_container_free(more);

    WORKS(cenote_object_create(runs, NULL, 0, &object, &error));
    bad_handles(store, runs, object);
    objects(store, runs, object);
    indices(runs);
    transactions(store, runs);

    counted = 0;
    WORKS(cenote_tiers(store, count_tiers, &counted, &error));
    EXPECT(counted == 2);
    WORKS(cenote_stats(store, &stats, &error));
    EXPECT(stats.containers == 1 && stats.objects >= 1);
    WORKS(cenote_container_flush(runs, &error));
    WORKS(cenote_flush(store, &error));
    WORKS(cenote_checkpoint(store, &error));
    WORKS(cenote_verify(store, NULL, NULL, &findings, &error));
    EXPECT(findings == 0);
    WORKS(cenote_container_verify(runs, NULL, NULL, &findings, &error));
    GIVES(CENOTE_NOT_FOUND, cenote_tier_drain(store, "none", &error));
    GIVES(CENOTE_NOT_FOUND, cenote_tier_remove(store, "none", &error));

    WORKS(cenote_close(store, &error));
    GIVES(CENOTE_INVALID_INPUT, cenote_close(store, &error));
    EXPECT(cenote_write(object, 0, "x", 1, NULL) != CENOTE_OK);
    cenote_object_free(object);
    cenote_container_free(runs);
    WORKS(cenote_abi_check(CENOTE_ABI_VERSION, &error));
    GIVES(CENOTE_VERSION_MISMATCH, cenote_abi_check(CENOTE_ABI_VERSION + 1, &error));
    WORKS(cenote_stop_daemon(path, &stopped, &error));
    GIVES(CENOTE_NOT_FOUND, cenote_destroy("/nowhere/at/all", 0, &error));
    WORKS(cenote_destroy(path, 0, &error));
    GIVES(CENOTE_NOT_FOUND, cenote_destroy(path, 0, &error));
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
