/*
 * Cenote, a multi-tier object store: the C interface. Apache-2.0.
 * Generated from bindings/c/src by `bindings/c/check-header.sh --fix`; do not edit.
 *
 * Rules that hold for every function:
 *
 * - A result of 0 (CENOTE_OK) means success; any other is the kind of the error, CENOTE_NOT_FOUND and so on.
 * - The last argument may be null. Else `*error` becomes null on success, or an error with subject, cause and next
 *   step, to be freed with cenote_error_free.
 * - On an error nothing was changed in the store, and results are left as they were.
 * - Handles are opaque; free each once. A null or freed handle gives CENOTE_INVALID_INPUT. A handle may be used by
 *   several threads at once, except transactions and staged writes; none may use it while another frees it.
 * - Texts are UTF-8 and end in a NUL byte; paths are bytes. Nothing of the caller's is kept after the call returns.
 * - Callbacks must not throw, and must not free the handle that they are called for.
 *
 * A program checks once that it runs with the library that it was compiled for:
 *
 *     if (cenote_abi_check(CENOTE_ABI_VERSION, &error) != CENOTE_OK) give_up(error);
 *
 * The shared library's name for the run-time linker carries that version: libcenote.so.1.
 */


#ifndef CENOTE_H
#define CENOTE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this interface. Raised when a function, a type or its meaning changes; added functions do not raise it.
 */
#define CENOTE_ABI_VERSION 1

/**
 * It worked.
 */
#define CENOTE_OK 0

/**
 * No such store, container, object, index or tier.
 */
#define CENOTE_NOT_FOUND 1

/**
 * It is there already.
 */
#define CENOTE_EXISTS 2

/**
 * The request makes no sense: a bad size, range, name, handle or combination.
 */
#define CENOTE_INVALID_INPUT 3

/**
 * A limit of the format or a quota would be passed.
 */
#define CENOTE_LIMIT_EXCEEDED 4

/**
 * All tiers that may take the data are full.
 */
#define CENOTE_FULL 5

/**
 * Stored bytes do not match their checksum, or metadata contradict each other.
 */
#define CENOTE_CORRUPT 6

/**
 * Written by a version that this one cannot read, or an unknown format.
 */
#define CENOTE_VERSION_MISMATCH 7

/**
 * This user may not.
 */
#define CENOTE_PERMISSION_DENIED 8

/**
 * Another transaction changed what this one had read.
 */
#define CENOTE_CONFLICT 9

/**
 * The device or file system failed.
 */
#define CENOTE_IO 10

/**
 * Another process has the store for itself, or it is shutting down.
 */
#define CENOTE_BUSY 11

/**
 * The daemon went away, and what was in flight cannot be confirmed.
 */
#define CENOTE_DISCONNECTED 12

/**
 * Asked for something that this version does not do.
 */
#define CENOTE_UNSUPPORTED 13

/**
 * A bug in Cenote.
 */
#define CENOTE_INTERNAL 14

/**
 * The daemon that serves the directory, else an engine in this process.
 */
#define CENOTE_MODE_AUTO 0

/**
 * An engine in this process; an error if another process has the store.
 */
#define CENOTE_MODE_IN_PROCESS 1

/**
 * A daemon, started if there is none.
 */
#define CENOTE_MODE_DAEMON 2

/**
 * Acknowledged on a persistent tier and in the journal: survives power loss.
 */
#define CENOTE_SYNC 0

/**
 * Acknowledged in the fastest tier; survives power loss once drained or flushed.
 */
#define CENOTE_ASYNC 1

/**
 * Never drained for durability's sake.
 */
#define CENOTE_SCRATCH 2

/**
 * Like async, but straight to the lowest persistent tier.
 */
#define CENOTE_BYPASS 3

/**
 * The code of a key: done.
 */
#define CENOTE_KEY_OK 0

/**
 * The code of a key: nothing of that name.
 */
#define CENOTE_KEY_NOT_FOUND 1

/**
 * The code of a key: there already.
 */
#define CENOTE_KEY_EXISTS 2

/**
 * The code of a key: key or value out of bounds.
 */
#define CENOTE_KEY_INVALID 3

/**
 * The code of a key: quota or a limit of the format.
 */
#define CENOTE_KEY_LIMIT 4

/**
 * What stands for "there is none" where an offset would be.
 */
#define CENOTE_NOWHERE UINT64_MAX

/**
 * A file in `/dev/shm`, mapped by clients. Volatile.
 */
#define CENOTE_TIER_MEMORY 0

/**
 * One file or block device of fixed capacity.
 */
#define CENOTE_TIER_FILE 1

/**
 * A directory of segment files.
 */
#define CENOTE_TIER_DIRECTORY 2

/**
 * A tier in persistent memory.
 */
#define CENOTE_TIER_PMEM 3

/**
 * A tier in a bucket of an S3 service.
 */
#define CENOTE_TIER_S3 4

/**
 * A tier in a container of an OpenStack Swift service.
 */
#define CENOTE_TIER_SWIFT 5

/**
 * It takes new data.
 */
#define CENOTE_TIER_ONLINE 0

/**
 * It is being emptied; takes none.
 */
#define CENOTE_TIER_DRAINING 1

/**
 * It cannot be reached, or failed.
 */
#define CENOTE_TIER_FAILED 2

/**
 * A container.
 */
typedef struct cenote_container_t cenote_container_t;

/**
 * An ordered key-value index.
 */
typedef struct cenote_index_t cenote_index_t;

/**
 * An object: an array of bytes with a recorded size, up to 2^63 bytes, sparse.
 */
typedef struct cenote_object_t cenote_object_t;

/**
 * A write, read or put in flight. End it with one of `cenote_op_wait`, `cenote_op_wait_read`, `cenote_op_on_done`.
 */
typedef struct cenote_op_t cenote_op_t;

/**
 * Records that were read, until `cenote_records_free`.
 */
typedef struct cenote_records_t cenote_records_t;

/**
 * Mapped memory to be filled and committed: a write without a copy.
 */
typedef struct cenote_staged_t cenote_staged_t;

/**
 * A store.
 */
typedef struct cenote_store_t cenote_store_t;

/**
 * A transaction. Reads see its own writes. One thread at a time.
 */
typedef struct cenote_transaction_t cenote_transaction_t;

/**
 * Bytes of an object by reference. They stay as they are until it is freed.
 */
typedef struct cenote_view_t cenote_view_t;

/**
 * A failure. All texts are UTF-8 and live until `cenote_error_free`.
 */
typedef struct {
    /**
     * What a program can act on: `CENOTE_NOT_FOUND` and so on.
     */
    int32_t kind;
    /**
     * Not 0 if the same call may succeed later with nothing changed.
     */
    int32_t retry_helps;
    /**
     * All of it in one line.
     */
    const char *message;
    /**
     * What it is about: the object, tier, path.
     */
    const char *subject;
    /**
     * Why; may be empty.
     */
    const char *cause;
    /**
     * What to do; may be empty.
     */
    const char *next_step;
} cenote_error_t;

/**
 * How to open a store. Fill it with `cenote_options_init` first: later versions may add fields at its end.
 */
typedef struct {
    /**
     * `sizeof(cenote_options_t)`.
     */
    size_t size;
    /**
     * `CENOTE_MODE_AUTO` and so on.
     */
    int32_t mode;
    /**
     * Not 0: make the store if the directory holds none.
     */
    int32_t create;
    /**
     * Not 0: fail if the directory holds one (with `create`).
     */
    int32_t create_new;
    /**
     * Not 0: refuse every change.
     */
    int32_t read_only;
    /**
     * Tiers of a store that is to be made, fastest first, each as on the command line:
     * "name=ram,kind=memory,size=2GiB,high=90%,low=70%". Null: tiers sized for this machine.
     */
    const char *const *tiers;
    /**
     * How many.
     */
    size_t tiers_len;
} cenote_options_t;

/**
 * Settings of a container. Fill it with `cenote_container_spec_init` first: later versions may add fields at its end.
 */
typedef struct {
    /**
     * `sizeof(cenote_container_spec_t)`.
     */
    size_t size;
    /**
     * Block size of its objects in bytes: a power of two from 64 to 16 MiB.
     */
    uint64_t block_size;
    /**
     * `CENOTE_SYNC` and so on.
     */
    int32_t durability;
    /**
     * Most bytes that it may take; 0 for no limit.
     */
    uint64_t quota_bytes;
    /**
     * Name of its placement policy; null for the default.
     */
    const char *policy;
} cenote_container_spec_t;

/**
 * A 128-bit id of an object or index.
 */
typedef struct {
    /**
     * The upper 64 bits.
     */
    uint64_t high;
    /**
     * The lower 64 bits.
     */
    uint64_t low;
} cenote_id_t;

/**
 * An object as it stands.
 */
typedef struct {
    /**
     * Recorded size in bytes.
     */
    uint64_t size;
    /**
     * Block size in bytes.
     */
    uint64_t block_size;
    /**
     * Extents in its map.
     */
    uint64_t extents;
    /**
     * Bytes that those extents cover.
     */
    uint64_t mapped_bytes;
    /**
     * Epoch of its last update.
     */
    uint64_t epoch;
} cenote_object_stat_t;

/**
 * A range of an object and memory of the caller's for it.
 */
typedef struct {
    /**
     * Byte offset in the object.
     */
    uint64_t offset;
    /**
     * The memory; only read when writing to the store.
     */
    uint8_t *data;
    /**
     * Bytes.
     */
    size_t len;
} cenote_iov_t;

/**
 * Bytes that belong to the caller.
 */
typedef struct {
    /**
     * The first byte; may be null if `len` is 0.
     */
    const uint8_t *data;
    /**
     * How many.
     */
    size_t len;
} cenote_slice_t;

/**
 * A key and a value for it.
 */
typedef struct {
    /**
     * The key.
     */
    cenote_slice_t key;
    /**
     * The value.
     */
    cenote_slice_t value;
} cenote_record_t;

/**
 * Bytes that belong to the library until `cenote_bytes_free`.
 */
typedef struct {
    /**
     * The first byte; null if there are none, which is not the same as none being found.
     */
    uint8_t *data;
    /**
     * How many.
     */
    size_t len;
    /**
     * Not 0 if there is a value.
     */
    int32_t found;
} cenote_bytes_t;

/**
 * A tier as it stands. The text lives while the callback runs.
 */
typedef struct {
    /**
     * Its name.
     */
    const char *name;
    /**
     * `CENOTE_TIER_MEMORY` and so on.
     */
    int32_t kind;
    /**
     * `CENOTE_TIER_ONLINE` and so on.
     */
    int32_t state;
    /**
     * Bytes that it may hold.
     */
    uint64_t capacity_bytes;
    /**
     * Bytes in use.
     */
    uint64_t used_bytes;
    /**
     * Bytes lent to clients, or waiting for readers to leave.
     */
    uint64_t reserved_bytes;
} cenote_tier_t;

/**
 * Counters of a store.
 */
typedef struct {
    /**
     * Epoch of the last update.
     */
    uint64_t epoch;
    /**
     * Containers.
     */
    uint64_t containers;
    /**
     * Objects in all containers.
     */
    uint64_t objects;
    /**
     * Indices in all containers.
     */
    uint64_t indices;
    /**
     * Records in all indices.
     */
    uint64_t records;
    /**
     * Extents in all maps.
     */
    uint64_t extents;
    /**
     * Bytes of journal since the last checkpoint.
     */
    uint64_t journal_bytes;
    /**
     * Bytes moved between tiers since the store was opened.
     */
    uint64_t moved_bytes;
    /**
     * Sessions now open.
     */
    uint64_t sessions;
    /**
     * Bad ranges found by the background scrub since the store was opened.
     */
    uint64_t scrub_findings;
    /**
     * Estimated bytes of memory that the metadata take.
     */
    uint64_t metadata_bytes;
} cenote_stats_t;

/**
 * A bad range. The texts live while the callback runs.
 */
typedef struct {
    /**
     * The object, as text.
     */
    const char *object;
    /**
     * Begin of the range in the object.
     */
    uint64_t offset;
    /**
     * Bytes.
     */
    uint64_t len;
    /**
     * Name of the tier.
     */
    const char *tier;
    /**
     * What is wrong.
     */
    const char *what;
} cenote_finding_t;

/**
 * A range of an object and why it is where it is. The texts live while the callback runs.
 */
typedef struct {
    /**
     * Begin of the range in the object.
     */
    uint64_t offset;
    /**
     * Bytes.
     */
    uint64_t len;
    /**
     * Name of the tier.
     */
    const char *tier;
    /**
     * Offset on the tier.
     */
    uint64_t tier_offset;
    /**
     * Which rule put it there, and what will happen next.
     */
    const char *why;
} cenote_range_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface that the library was built with: compare it with `CENOTE_ABI_VERSION`.
 */
uint32_t cenote_abi_version(void);

/**
 * Fails with `CENOTE_VERSION_MISMATCH` unless the library has this version of the interface. A program calls it once
 * with `CENOTE_ABI_VERSION`, before anything else.
 */
int32_t cenote_abi_check(uint32_t version,
                         cenote_error_t **error);

/**
 * The version of the library, for people, such as "0.1.0". Never freed.
 */
const char *cenote_version(void);

/**
 * Frees an error. Null is allowed.
 */
void cenote_error_free(cenote_error_t *error);

/**
 * A few words for a kind, such as "not found". Never freed.
 */
const char *cenote_kind_words(int32_t kind);

/**
 * Fills in the defaults: mode auto, the store is made if it is not there.
 */
void cenote_options_init(cenote_options_t *options);

/**
 * Opens the store in directory `dir` as `options` say; null: the defaults of `cenote_options_init`.
 * Give the handle back with `cenote_close`. After `fork`, the child may go on using it: it gets its own session.
 */
int32_t cenote_open(const char *dir,
                    const cenote_options_t *options,
                    cenote_store_t **store,
                    cenote_error_t **error);

/**
 * Ends the session and frees the handle, also when it returns an error. Containers, objects and indices of the store
 * cannot be used afterwards, but still want to be freed. Null is allowed.
 */
int32_t cenote_close(cenote_store_t *store,
                     cenote_error_t **error);

/**
 * Returns when everything acknowledged so far survives power loss.
 */
int32_t cenote_flush(const cenote_store_t *store, cenote_error_t **error);

/**
 * Writes a checkpoint now, so that the next opening replays nothing.
 */
int32_t cenote_checkpoint(const cenote_store_t *store, cenote_error_t **error);

/**
 * Waits for every launched operation of this session.
 */
int32_t cenote_wait_all(const cenote_store_t *store, cenote_error_t **error);

/**
 * Asks the daemon that serves the store in `dir` to finish what it does and leave. `*stopped` (may be null) is 0 if
 * none serves it.
 */
int32_t cenote_stop_daemon(const char *dir,
                           int32_t *stopped,
                           cenote_error_t **error);

/**
 * Destroys the store in `dir`: its segments in memory, the files of its tiers, its metadata, at last the directory
 * unless other files are in it. With other sessions open it fails with `CENOTE_BUSY`, unless `force` is not 0.
 */
int32_t cenote_destroy(const char *dir,
                       int32_t force,
                       cenote_error_t **error);

/**
 * Adds a tier, written as on the command line: "name=disk,kind=directory,path=/data,size=100GiB".
 */
int32_t cenote_tier_add(const cenote_store_t *store, const char *spec, cenote_error_t **error);

/**
 * Moves everything off a tier.
 */
int32_t cenote_tier_drain(const cenote_store_t *store, const char *name, cenote_error_t **error);

/**
 * Forgets an empty tier.
 */
int32_t cenote_tier_remove(const cenote_store_t *store, const char *name, cenote_error_t **error);

/**
 * Writes the id of the store as 32 hexadecimal digits and a NUL byte into `text`, which has room for 33.
 */
int32_t cenote_store_id(const cenote_store_t *store, char *text, cenote_error_t **error);

/**
 * Fills in the defaults: blocks of 4 KiB, async, no quota, the default policy.
 */
void cenote_container_spec_init(cenote_container_spec_t *spec);

/**
 * Opens the container of that label, and makes it as `spec` says (null: the defaults) if it is not there.
 * Free the handle with `cenote_container_free`.
 */
int32_t cenote_container_open_or_create(const cenote_store_t *store,
                                        const char *label,
                                        const cenote_container_spec_t *spec,
                                        cenote_container_t **container,
                                        cenote_error_t **error);

/**
 * Opens an existing container. Free the handle with `cenote_container_free`.
 */
int32_t cenote_container_open(const cenote_store_t *store,
                              const char *label,
                              cenote_container_t **container,
                              cenote_error_t **error);

/**
 * Makes a container; `CENOTE_EXISTS` if the label is taken. Free the handle with `cenote_container_free`.
 */
int32_t cenote_container_create(const cenote_store_t *store,
                                const char *label,
                                const cenote_container_spec_t *spec,
                                cenote_container_t **container,
                                cenote_error_t **error);

/**
 * Frees the handle; the container stays in the store. Null is allowed.
 */
void cenote_container_free(cenote_container_t *container);

/**
 * Gives a container another label.
 */
int32_t cenote_container_rename(const cenote_store_t *store,
                                const char *from,
                                const char *to,
                                cenote_error_t **error);

/**
 * Deletes a container with everything in it, atomically.
 */
int32_t cenote_container_delete(const cenote_store_t *store, const char *label, cenote_error_t **error);

/**
 * Calls `each` with the label of every container whose label begins with `prefix` (null: all), in label order.
 */
int32_t cenote_containers(const cenote_store_t *store,
                          const char *prefix,
                          void (*each)(void *context, const char *label),
                          void *context,
                          cenote_error_t **error);

/**
 * Fills `ids` with up to `capacity` ids of objects greater than `*after` (null: from the first), ascending;
 * `*count` is how many.
 */
int32_t cenote_objects(const cenote_container_t *container,
                       const cenote_id_t *after,
                       cenote_id_t *ids,
                       size_t capacity,
                       size_t *count,
                       cenote_error_t **error);

/**
 * Keeps all that is in the container now, for reading, under a name; no data are copied. `replace` not 0: takes the place of a
 * snapshot of that name; else `CENOTE_EXISTS` if there is one.
 */
int32_t cenote_container_snapshot(const cenote_container_t *container,
                                  const char *name,
                                  int32_t replace,
                                  cenote_error_t **error);

/**
 * Opens a snapshot as a container that can be read. It stays as long as the handle, even if it is deleted meanwhile. Free the
 * handle with `cenote_container_free`.
 */
int32_t cenote_container_open_snapshot(const cenote_container_t *container,
                                       const char *name,
                                       cenote_container_t **snapshot,
                                       cenote_error_t **error);

/**
 * Calls `each` with the name of every snapshot of the container, in the order of names.
 */
int32_t cenote_container_snapshots(const cenote_container_t *container,
                                   void (*each)(void *context, const char *name),
                                   void *context,
                                   cenote_error_t **error);

/**
 * Deletes a snapshot.
 */
int32_t cenote_container_delete_snapshot(const cenote_container_t *container,
                                         const char *name,
                                         cenote_error_t **error);

/**
 * The container holds again what it held when the snapshot was made, in one transaction; the snapshot stays.
 */
int32_t cenote_container_roll_back(const cenote_container_t *container,
                                   const char *name,
                                   cenote_error_t **error);

/**
 * Returns when everything acknowledged so far in this container survives power loss.
 */
int32_t cenote_container_flush(const cenote_container_t *container, cenote_error_t **error);

/**
 * Writes an id as 32 hexadecimal digits and a NUL byte into `text`, which has room for 33.
 */
int32_t cenote_id_format(cenote_id_t id, char *text, cenote_error_t **error);

/**
 * Reads an id of up to 32 hexadecimal digits.
 */
int32_t cenote_id_parse(const char *digits, cenote_id_t *id, cenote_error_t **error);

/**
 * Makes an object. `id`: null for one drawn at random. `block_size`: 0 for the container's.
 * Free the handle with `cenote_object_free`.
 */
int32_t cenote_object_create(const cenote_container_t *container,
                             const cenote_id_t *id,
                             uint64_t block_size,
                             cenote_object_t **object,
                             cenote_error_t **error);

/**
 * A handle for the object of that id, without a round trip: a missing object shows at first use.
 * Free the handle with `cenote_object_free`.
 */
int32_t cenote_object_open(const cenote_container_t *container,
                           cenote_id_t id,
                           cenote_object_t **object,
                           cenote_error_t **error);

/**
 * A handle for the same object that is written otherwise than the container's preset says: `CENOTE_SYNC` (write-through: on
 * a persistent tier, acknowledged when it survives power loss), `CENOTE_ASYNC` (write-back) or `CENOTE_BYPASS` (to the lowest
 * persistent tier, past the buffers). Refused where that is less than the container promises, and in scratch containers.
 * Free the handle with `cenote_object_free`.
 */
int32_t cenote_object_buffered(const cenote_object_t *object,
                               int32_t mode,
                               cenote_object_t **buffered,
                               cenote_error_t **error);

/**
 * Frees the handle; the object stays in the store. Null is allowed.
 */
void cenote_object_free(cenote_object_t *object);

/**
 * Deletes the object of that id.
 */
int32_t cenote_object_delete(const cenote_container_t *container, cenote_id_t id, cenote_error_t **error);

/**
 * The object's id.
 */
int32_t cenote_object_id(const cenote_object_t *object, cenote_id_t *id, cenote_error_t **error);

/**
 * Size, block size, use.
 */
int32_t cenote_object_stat(const cenote_object_t *object, cenote_object_stat_t *stat, cenote_error_t **error);

/**
 * Reads `len` bytes at `offset` into `data`. Holes are zeros. `*got` (may be null) is how many lie before the recorded
 * size; the rest of `data` is untouched.
 */
int32_t cenote_read(const cenote_object_t *object,
                    uint64_t offset,
                    void *data,
                    size_t len,
                    size_t *got,
                    cenote_error_t **error);

/**
 * Writes `len` bytes at `offset`: acknowledged as the container's durability says, and visible to every process.
 */
int32_t cenote_write(const cenote_object_t *object,
                     uint64_t offset,
                     const void *data,
                     size_t len,
                     cenote_error_t **error);

/**
 * Reads many ranges at once; what lies past the recorded size reads as zeros.
 */
int32_t cenote_readv(const cenote_object_t *object,
                     const cenote_iov_t *parts,
                     size_t count,
                     cenote_error_t **error);

/**
 * Writes many ranges as one transaction.
 */
int32_t cenote_writev(const cenote_object_t *object,
                      const cenote_iov_t *parts,
                      size_t count,
                      cenote_error_t **error);

/**
 * Sets the recorded size; what lies beyond is dropped.
 */
int32_t cenote_truncate(const cenote_object_t *object, uint64_t size, cenote_error_t **error);

/**
 * Turns a range into a hole.
 */
int32_t cenote_punch(const cenote_object_t *object, uint64_t offset, uint64_t len, cenote_error_t **error);

/**
 * Returns when what was acknowledged so far survives power loss.
 */
int32_t cenote_object_flush(const cenote_object_t *object, cenote_error_t **error);

/**
 * A range by reference, without a copy. `*view` is null, and the result 0, if the range is not in one piece of mapped
 * memory: read it instead. Free the view with `cenote_view_free`.
 */
int32_t cenote_view(const cenote_object_t *object,
                    uint64_t offset,
                    size_t len,
                    cenote_view_t **view,
                    cenote_error_t **error);

/**
 * The bytes of a view; null if it is no view. `*len` (may be null) is how many.
 */
const uint8_t *cenote_view_data(const cenote_view_t *view, size_t *len);

/**
 * Frees a view; its bytes may change or go away from then on. Null is allowed.
 */
void cenote_view_free(cenote_view_t *view);

/**
 * Room for `len` bytes in mapped memory at `*data`: fill it, then `cenote_staged_commit`, or `cenote_staged_free`.
 */
int32_t cenote_stage(const cenote_object_t *object,
                     size_t len,
                     cenote_staged_t **staged,
                     uint8_t **data,
                     cenote_error_t **error);

/**
 * Makes the staged bytes the object's at `offset`. The handle is gone, and its memory must not be used any more,
 * whatever the result.
 */
int32_t cenote_staged_commit(cenote_staged_t *staged,
                             uint64_t offset,
                             cenote_error_t **error);

/**
 * Gives staged memory back without writing. Null is allowed.
 */
void cenote_staged_free(cenote_staged_t *staged);

/**
 * Starts a write. `data` may be reused when this returns; the write is acknowledged when the operation is done.
 */
int32_t cenote_launch_write(const cenote_object_t *object,
                            uint64_t offset,
                            const void *data,
                            size_t len,
                            cenote_op_t **op,
                            cenote_error_t **error);

/**
 * Starts a read of `len` bytes; `cenote_op_wait_read` gives them.
 */
int32_t cenote_launch_read(const cenote_object_t *object,
                           uint64_t offset,
                           size_t len,
                           cenote_op_t **op,
                           cenote_error_t **error);

/**
 * Starts to set a record.
 */
int32_t cenote_launch_put(const cenote_index_t *index,
                          cenote_slice_t key,
                          cenote_slice_t value,
                          cenote_op_t **op,
                          cenote_error_t **error);

/**
 * Waits until it is acknowledged. The handle is gone.
 */
int32_t cenote_op_wait(cenote_op_t *op, cenote_error_t **error);

/**
 * Waits for the bytes of a read and copies up to `len` of them to `data`; `*got` (may be null) is how many.
 * The handle is gone.
 */
int32_t cenote_op_wait_read(cenote_op_t *op, void *data, size_t len, size_t *got, cenote_error_t **error);

/**
 * 1 if waiting would not block, 0 if it would, -1 if it is no operation.
 */
int32_t cenote_op_is_done(const cenote_op_t *op);

/**
 * Calls `callback` once when it is done, from a thread of the library's, with 0 or the kind of the error and the error
 * (freed after the call). The handle is gone.
 */
int32_t cenote_op_on_done(cenote_op_t *op,
                          void (*callback)(void *context, int32_t kind, const cenote_error_t *error),
                          void *context,
                          cenote_error_t **error);

/**
 * Makes an index. `id`: null for one drawn at random. Free the handle with `cenote_index_free`.
 */
int32_t cenote_index_create(const cenote_container_t *container,
                            const cenote_id_t *id,
                            cenote_index_t **index,
                            cenote_error_t **error);

/**
 * The index of that id, made if it is not there. Free the handle with `cenote_index_free`.
 */
int32_t cenote_index_open_or_create(const cenote_container_t *container,
                                    cenote_id_t id,
                                    cenote_index_t **index,
                                    cenote_error_t **error);

/**
 * Deletes an index with its records.
 */
int32_t cenote_index_delete(const cenote_container_t *container, cenote_id_t id, cenote_error_t **error);

/**
 * Frees the handle; the index stays in the store. Null is allowed.
 */
void cenote_index_free(cenote_index_t *index);

/**
 * The index's id.
 */
int32_t cenote_index_id(const cenote_index_t *index, cenote_id_t *id, cenote_error_t **error);

/**
 * Sets records. `codes` (may be null) has room for a `CENOTE_KEY_...` for each.
 */
int32_t cenote_index_put(const cenote_index_t *index,
                         const cenote_record_t *records,
                         size_t count,
                         uint8_t *codes,
                         cenote_error_t **error);

/**
 * Sets records whose keys are not there yet; the code of the others is `CENOTE_KEY_EXISTS`.
 */
int32_t cenote_index_put_new(const cenote_index_t *index,
                             const cenote_record_t *records,
                             size_t count,
                             uint8_t *codes,
                             cenote_error_t **error);

/**
 * Gets values by key into `values`, which has room for `count`. Free each with `cenote_bytes_free`.
 */
int32_t cenote_index_get(const cenote_index_t *index,
                         const cenote_slice_t *keys,
                         size_t count,
                         cenote_bytes_t *values,
                         cenote_error_t **error);

/**
 * Frees a value that the library gave out, and empties it. Null, and values that were not found, are allowed.
 */
void cenote_bytes_free(cenote_bytes_t *bytes);

/**
 * Deletes records; the code of those not there is `CENOTE_KEY_NOT_FOUND`.
 */
int32_t cenote_index_del(const cenote_index_t *index,
                         const cenote_slice_t *keys,
                         size_t count,
                         uint8_t *codes,
                         cenote_error_t **error);

/**
 * Up to `limit` records in key order whose keys begin with `prefix`. `from`: null for the first; else that key or the
 * next greater one, or (with `after` not 0) the next greater one. Free `*records` with `cenote_records_free`.
 */
int32_t cenote_index_next(const cenote_index_t *index,
                          cenote_slice_t prefix,
                          const cenote_slice_t *from,
                          int32_t after,
                          uint32_t limit,
                          cenote_records_t **records,
                          cenote_error_t **error);

/**
 * How many records there are.
 */
size_t cenote_records_count(const cenote_records_t *records);

/**
 * A record; it lives as long as `records`. Empty if there is none at `at`.
 */
cenote_record_t cenote_records_get(const cenote_records_t *records, size_t at);

/**
 * Frees records. Null is allowed.
 */
void cenote_records_free(cenote_records_t *records);

/**
 * Begins a transaction. `detect_conflicts` not 0: the commit fails with `CENOTE_CONFLICT` if anything read through it
 * was changed by others meanwhile. End it with `cenote_commit` or `cenote_abort`.
 */
int32_t cenote_begin(const cenote_store_t *store,
                     int32_t detect_conflicts,
                     cenote_transaction_t **transaction,
                     cenote_error_t **error);

/**
 * Applies everything, or nothing. The handle is gone, whatever the result. `*epoch` may be null.
 */
int32_t cenote_commit(cenote_transaction_t *transaction, uint64_t *epoch, cenote_error_t **error);

/**
 * Forgets everything. The handle is gone. Null is allowed.
 */
void cenote_abort(cenote_transaction_t *transaction);

/**
 * Writes a byte range.
 */
int32_t cenote_transaction_write(cenote_transaction_t *transaction,
                                 const cenote_object_t *object,
                                 uint64_t offset,
                                 const void *data,
                                 size_t len,
                                 cenote_error_t **error);

/**
 * Reads a byte range, own writes included; as `cenote_read`.
 */
int32_t cenote_transaction_read(cenote_transaction_t *transaction,
                                const cenote_object_t *object,
                                uint64_t offset,
                                void *data,
                                size_t len,
                                size_t *got,
                                cenote_error_t **error);

/**
 * Sets an object's size.
 */
int32_t cenote_transaction_truncate(cenote_transaction_t *transaction,
                                    const cenote_object_t *object,
                                    uint64_t size,
                                    cenote_error_t **error);

/**
 * Turns a range into a hole.
 */
int32_t cenote_transaction_punch(cenote_transaction_t *transaction,
                                 const cenote_object_t *object,
                                 uint64_t offset,
                                 uint64_t len,
                                 cenote_error_t **error);

/**
 * Makes an object; as `cenote_object_create`.
 */
int32_t cenote_transaction_create_object(cenote_transaction_t *transaction,
                                         const cenote_container_t *container,
                                         const cenote_id_t *id,
                                         uint64_t block_size,
                                         cenote_object_t **object,
                                         cenote_error_t **error);

/**
 * Deletes an object.
 */
int32_t cenote_transaction_delete_object(cenote_transaction_t *transaction,
                                         const cenote_object_t *object,
                                         cenote_error_t **error);

/**
 * Makes an index; as `cenote_index_create`.
 */
int32_t cenote_transaction_create_index(cenote_transaction_t *transaction,
                                        const cenote_container_t *container,
                                        const cenote_id_t *id,
                                        cenote_index_t **index,
                                        cenote_error_t **error);

/**
 * Deletes an index with its records.
 */
int32_t cenote_transaction_delete_index(cenote_transaction_t *transaction,
                                        const cenote_index_t *index,
                                        cenote_error_t **error);

/**
 * Sets a record. `only_new` not 0: the commit fails with `CENOTE_EXISTS` if the key is there.
 */
int32_t cenote_transaction_put(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_slice_t value,
                               int32_t only_new,
                               cenote_error_t **error);

/**
 * Gets a value, own puts included. Free it with `cenote_bytes_free`.
 */
int32_t cenote_transaction_get(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_bytes_t *value,
                               cenote_error_t **error);

/**
 * Deletes a record; no error if it is not there.
 */
int32_t cenote_transaction_del(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_error_t **error);

/**
 * Writes `len` bytes at the end, wherever that is by then; `*at` (may be null) is where it was. Of processes that append at
 * once each one's bytes are there whole, in some order, once.
 */
int32_t cenote_append(const cenote_object_t *object,
                      const void *data,
                      size_t len,
                      uint64_t *at,
                      cenote_error_t **error);

/**
 * The recorded size in bytes: without a message if what this process knows of it still holds.
 */
int32_t cenote_object_size(const cenote_object_t *object, uint64_t *size, cenote_error_t **error);

/**
 * The first offset from `offset` on that has data; `CENOTE_NOWHERE` if there is none before the end.
 */
int32_t cenote_next_data(const cenote_object_t *object,
                         uint64_t offset,
                         uint64_t *found,
                         cenote_error_t **error);

/**
 * The first offset from `offset` on that is in a hole, or the size if there is none before it; `CENOTE_NOWHERE` from the end on.
 */
int32_t cenote_next_hole(const cenote_object_t *object,
                         uint64_t offset,
                         uint64_t *found,
                         cenote_error_t **error);

/**
 * Makes `[at, at + len)` of `object` what `[offset, offset + len)` of `from` is, without copying bytes if both are of one
 * container, or `from` of a snapshot of it: one update then; else by copying, piece by piece. `*done` (may be null) is how
 * many bytes that were: fewer if `from` ends before.
 */
int32_t cenote_copy(const cenote_object_t *object,
                    uint64_t at,
                    const cenote_object_t *from,
                    uint64_t offset,
                    uint64_t len,
                    uint64_t *done,
                    cenote_error_t **error);

/**
 * In a transaction: makes `[at, at + len)` of `object` what `[offset, offset + len)` of `from` is by then, without copying
 * bytes. Both must be of one container, or `from` of a snapshot of it.
 */
int32_t cenote_transaction_share(cenote_transaction_t *transaction,
                                 const cenote_object_t *object,
                                 uint64_t at,
                                 const cenote_object_t *from,
                                 uint64_t offset,
                                 uint64_t len,
                                 cenote_error_t **error);

/**
 * Makes the commit fail with `CENOTE_CONFLICT` if a record's key begins with this prefix then, before the transaction's own
 * changes.
 */
int32_t cenote_transaction_expect_none(cenote_transaction_t *transaction,
                                       const cenote_index_t *index,
                                       cenote_slice_t prefix,
                                       cenote_error_t **error);

/**
 * Makes the commit fail with `CENOTE_CONFLICT` unless the object has this size in bytes then.
 */
int32_t cenote_transaction_expect_size(cenote_transaction_t *transaction,
                                       const cenote_object_t *object,
                                       uint64_t size,
                                       cenote_error_t **error);

/**
 * Calls `each` for every tier, fastest first.
 */
int32_t cenote_tiers(const cenote_store_t *store,
                     void (*each)(void *context, const cenote_tier_t *tier),
                     void *context,
                     cenote_error_t **error);

/**
 * Counters of the whole store.
 */
int32_t cenote_stats(const cenote_store_t *store, cenote_stats_t *stats, cenote_error_t **error);

/**
 * Reads and checks everything. Calls `each` (may be null) for every bad range; `*findings` (may be null) is their
 * number.
 */
int32_t cenote_verify(const cenote_store_t *store,
                      void (*each)(void *context, const cenote_finding_t *finding),
                      void *context,
                      uint64_t *findings,
                      cenote_error_t **error);

/**
 * Reads and checks everything in a container; as `cenote_verify`.
 */
int32_t cenote_container_verify(const cenote_container_t *container,
                                void (*each)(void *context, const cenote_finding_t *finding),
                                void *context,
                                uint64_t *findings,
                                cenote_error_t **error);

/**
 * Calls `each` for every range of an object: where it is and why. `note` (may be null) is called for each sentence
 * about the whole.
 */
int32_t cenote_explain(const cenote_store_t *store,
                       const cenote_object_t *object,
                       void (*each)(void *context, const cenote_range_t *range),
                       void (*note)(void *context, const char *note),
                       void *context,
                       cenote_error_t **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CENOTE_H */
