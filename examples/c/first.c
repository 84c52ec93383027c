/*
 * A first program in C: make a store with two tiers, write, read, read without a copy, keep records, change several
 * things at once, and see where the bytes are.
 *
 *   cc -I bindings/c/include examples/c/first.c -L target/release -lcenote -Wl,-rpath,target/release -o first
 *   ./first DIRECTORY
 */
#include <cenote.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES 100000

/* Every call returns 0, or the kind of an error; the error itself names its subject, its cause and the next step. */
static cenote_error_t *error = NULL;

static void check(int32_t kind, int line) {
    if (kind != CENOTE_OK) {
        fprintf(stderr, "line %d: %s\n", line, error != NULL ? error->message : cenote_kind_words(kind));
        cenote_error_free(error);
        exit(1);
    }
}
#define CHECK(call) check((call), __LINE__)

static cenote_slice_t text(const char *words) {
    cenote_slice_t slice;
    slice.data = (const uint8_t *)words;
    slice.len = strlen(words);
    return slice;
}

static void show_tier(void *context, const cenote_tier_t *tier) {
    (void)context;
    printf("tier %-8s %8llu KiB used of %llu\n", tier->name, (unsigned long long)tier->used_bytes / 1024,
           (unsigned long long)tier->capacity_bytes / 1024);
}

static void show_range(void *context, const cenote_range_t *range) {
    (void)context;
    printf("bytes %llu to %llu are on `%s`: %s\n", (unsigned long long)range->offset,
           (unsigned long long)(range->offset + range->len), range->tier, range->why);
}

int main(int argc, char **argv) {
    char path[4096], disk[4200];
    const char *tiers[2];
    cenote_options_t options;
    cenote_store_t *store;
    cenote_container_t *runs;
    cenote_object_t *object;
    cenote_view_t *view;
    cenote_index_t *index;
    cenote_transaction_t *transaction;
    cenote_op_t *op;
    cenote_record_t record;
    cenote_slice_t key;
    cenote_bytes_t found;
    cenote_id_t id = {0, 1};
    double *values = malloc(VALUES * sizeof *values), *back = malloc(VALUES * sizeof *back);
    const size_t bytes = VALUES * sizeof *values;
    size_t got = 0;
    int i;

    if (argc != 2 || values == NULL || back == NULL) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    if (cenote_abi_version() != CENOTE_ABI_VERSION) {
        fprintf(stderr, "compiled for another version of libcenote\n");
        return 1;
    }

    /* A store with memory in front of a directory. Without tiers, it would choose them to fit this machine. */
    snprintf(path, sizeof path, "%s/store", argv[1]);
    snprintf(disk, sizeof disk, "name=disk,kind=directory,path=%s/disk,size=256MiB", argv[1]);
    tiers[0] = "name=memory,kind=memory,size=64MiB,high=90%,low=70%";
    tiers[1] = disk;
    cenote_options_init(&options);
    options.tiers = tiers;
    options.tiers_len = 2;
    CHECK(cenote_open(path, &options, &store, &error));

    /* A container is a group of objects and indices with one policy. */
    CHECK(cenote_container_open_or_create(store, "runs", NULL, &runs, &error));

    /* An object is an array of bytes; any range may be written and read. */
    CHECK(cenote_object_create(runs, NULL, 0, &object, &error));
    for (i = 0; i < VALUES; i++) values[i] = i * 0.5;
    CHECK(cenote_write(object, 0, values, bytes, &error));
    CHECK(cenote_read(object, 0, back, bytes, &got, &error));
    if (got != bytes || memcmp(values, back, bytes) != 0) return 1;

    /* By reference: no copy if the range is in one piece of mapped memory. It does not change while the view lives. */
    CHECK(cenote_view(object, 0, 4096, &view, &error));
    if (view != NULL) {
        size_t len;
        const uint8_t *data = cenote_view_data(view, &len);
        if (len != 4096 || memcmp(data, values, len) != 0) return 1;
        printf("4096 bytes read without a copy\n");
        cenote_view_free(view);
    }

    /* Asynchronous: launch, do other work, wait. */
    CHECK(cenote_launch_write(object, bytes, values, bytes, &op, &error));
    CHECK(cenote_op_wait(op, &error));

    /* An index keeps ordered records. */
    CHECK(cenote_index_open_or_create(runs, id, &index, &error));
    record.key = text("step");
    record.value = text("1");
    CHECK(cenote_index_put(index, &record, 1, NULL, &error));

    /* A transaction: all of it or nothing, even after a crash. */
    CHECK(cenote_begin(store, 0, &transaction, &error));
    CHECK(cenote_transaction_write(transaction, object, 0, "changed", 7, &error));
    CHECK(cenote_transaction_put(transaction, index, text("step"), text("2"), 0, &error));
    CHECK(cenote_commit(transaction, NULL, &error));

    key = text("step");
    CHECK(cenote_index_get(index, &key, 1, &found, &error));
    printf("step is now %.*s\n", (int)found.len, (const char *)found.data);
    cenote_bytes_free(&found);

    /* The barrier: everything acknowledged before survives power loss. */
    CHECK(cenote_flush(store, &error));
    CHECK(cenote_tiers(store, show_tier, NULL, &error));
    CHECK(cenote_explain(store, object, show_range, NULL, NULL, &error));

    /* An error names the next step. */
    if (cenote_container_open(store, "walks", &runs, &error) != CENOTE_NOT_FOUND) return 1;
    printf("as expected: %s\n", error->message);
    cenote_error_free(error);

    cenote_index_free(index);
    cenote_object_free(object);
    cenote_container_free(runs);
    CHECK(cenote_close(store, &error));
    free(values);
    free(back);
    puts("all is well");
    return 0;
}
