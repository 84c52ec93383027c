/*
 * Cenote, a multi-tier object store: the C interface. Apache-2.0.
 * Generated from bindings/c/src by `bindings/c/check-header.sh --fix`; do not edit.
 *
 * Rules that hold for every function:
 *
 * - A result of 0 (CENOTE_OK) means success; any other is the kind of the error, CENOTE_NOT_FOUND and so on.
 * - The last argument may be null. Otherwise `*error` becomes null on success, or an error with subject, cause and
 *   next step, to be freed with cenote_error_free.
 * - A failed call changes neither the store nor its results.
 * - Handles are opaque; free each once. A null or freed handle gives CENOTE_INVALID_INPUT. A handle may be used by
 *   several threads at once, except transactions and writes in place; none may use it while another frees it.
 * - Texts are UTF-8 and end in a NUL byte; paths are bytes. The library keeps no pointer of the caller's after a call.
 * - Callbacks must not throw, and must not free the handle that they are called for.
 *
 * A program checks once that it runs with the library version it was compiled for:
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
 * Success.
 */
#define CENOTE_OK 0

/**
 * No such store, container, object, index or tier.
 */
#define CENOTE_NOT_FOUND 1

/**
 * It exists already.
 */
#define CENOTE_EXISTS 2

/**
 * The request is invalid: a bad size, range, name, handle or combination.
 */
#define CENOTE_INVALID_INPUT 3

/**
 * It would exceed a limit of the format or a quota.
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
 * This user lacks the right.
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
 * Another process has exclusive use of the store, or the store is shutting down.
 */
#define CENOTE_BUSY 11

/**
 * The daemon went away, and the result of requests in flight is unknown.
 */
#define CENOTE_DISCONNECTED 12

/**
 * This version does not support the request.
 */
#define CENOTE_UNSUPPORTED 13

/**
 * A bug in Cenote.
 */
#define CENOTE_INTERNAL 14

/**
 * Through the daemon that serves the directory, otherwise with an engine in this process.
 */
#define CENOTE_MODE_AUTO 0

/**
 * With an engine in this process; an error if another process has the store open.
 */
#define CENOTE_MODE_IN_PROCESS 1

/**
 * Through a daemon, started if there is none.
 */
#define CENOTE_MODE_DAEMON 2

/**
 * Write-through: acknowledged on a persistent tier and in the journal; survives power loss.
 */
#define CENOTE_SYNC 0

/**
 * Write-back: acknowledged in the fastest tier; survives power loss once drained or flushed.
 */
#define CENOTE_ASYNC 1

/**
 * Never drained for durability.
 */
#define CENOTE_SCRATCH 2

/**
 * Like async, but straight to the lowest persistent tier.
 */
#define CENOTE_BYPASS 3

/**
 * Code of a key: success.
 */
#define CENOTE_KEY_OK 0

/**
 * Code of a key: not found.
 */
#define CENOTE_KEY_NOT_FOUND 1

/**
 * Code of a key: exists already.
 */
#define CENOTE_KEY_EXISTS 2

/**
 * Code of a key: key or value out of bounds.
 */
#define CENOTE_KEY_INVALID 3

/**
 * Code of a key: quota or a limit of the format.
 */
#define CENOTE_KEY_LIMIT 4

/**
 * "None" in place of an offset.
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
 * A tier in a pool of Ceph RADOS.
 */
#define CENOTE_TIER_RADOS 6

/**
 * Directories on several disks, with a layout.
 */
#define CENOTE_TIER_RAID 7

/**
 * It takes new data.
 */
#define CENOTE_TIER_ONLINE 0

/**
 * It is being drained; takes no new data.
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
 * Records from a read; valid until `cenote_records_free`.
 */
typedef struct cenote_records_t cenote_records_t;

/**
 * A store.
 */
typedef struct cenote_store_t cenote_store_t;

/**
 * A transaction. Reads see its own writes. One thread at a time.
 */
typedef struct cenote_transaction_t cenote_transaction_t;

/**
 * A view: bytes of an object by reference. They do not change until it is freed.
 */
typedef struct cenote_view_t cenote_view_t;

/**
 * Mapped memory to be filled and committed: a write without a copy.
 */
typedef struct cenote_write_t cenote_write_t;

/**
 * An error. All texts are UTF-8 and live until `cenote_error_free`.
 */
typedef struct {
    /**
     * The kind, for programs: `CENOTE_NOT_FOUND` and so on.
     */
    int32_t kind;
    /**
     * Not 0 if the same call may succeed later without any change.
     */
    int32_t retry_helps;
    /**
     * The whole error in one line.
     */
    const char *message;
    /**
     * The subject: the object, tier, path.
     */
    const char *subject;
    /**
     * The cause; may be empty.
     */
    const char *cause;
    /**
     * The next step; may be empty.
     */
    const char *next_step;
} cenote_error_t;

/**
 * Options of opening a store. Fill them with `cenote_options_init` first: later versions may add fields at the end.
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
     * Not 0: create the store if the directory holds none.
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
     * Tiers of a store to be created, fastest first, each in the form of the command line:
     * "name=ram,kind=memory,size=2GiB,high=90%,low=70%". Null: tiers sized for this machine.
     */
    const char *const *tiers;
    /**
     * Number of tiers.
     */
    size_t tiers_len;
} cenote_options_t;

/**
 * Settings of a container. Fill them with `cenote_container_spec_init` first: later versions may add fields at the
 * end.
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
     * Maximum bytes it may take; 0 for no limit.
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
 * Current state of an object.
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
 * A range of an object, and the caller's memory for it.
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
     * Length in bytes.
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
     * Length in bytes.
     */
    size_t len;
} cenote_slice_t;

/**
 * A key and its value.
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
     * The first byte; null if there are none, also for an empty value (see `found`).
     */
    uint8_t *data;
    /**
     * Length in bytes.
     */
    size_t len;
    /**
     * Not 0 if there is a value.
     */
    int32_t found;
} cenote_bytes_t;

/**
 * Current state of a tier. The text lives while the callback runs.
 */
typedef struct {
    /**
     * Name.
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
     * Capacity in bytes.
     */
    uint64_t capacity_bytes;
    /**
     * Bytes in use.
     */
    uint64_t used_bytes;
    /**
     * Bytes leased to clients, or waiting for readers to leave.
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
     * Open sessions.
     */
    uint64_t sessions;
    /**
     * Bad ranges found by the background scrub since the store was opened.
     */
    uint64_t scrub_findings;
    /**
     * Estimated bytes of memory for the metadata.
     */
    uint64_t metadata_bytes;
} cenote_stats_t;

/**
 * A damaged range. The texts live while the callback runs.
 */
typedef struct {
    /**
     * The object, as text.
     */
    const char *object;
    /**
     * Start of the range in the object.
     */
    uint64_t offset;
    /**
     * Length in bytes.
     */
    uint64_t len;
    /**
     * Name of the tier.
     */
    const char *tier;
    /**
     * Description of the damage.
     */
    const char *what;
} cenote_finding_t;

/**
 * A range of an object, and why it is where it is. The texts live while the callback runs.
 */
typedef struct {
    /**
     * Start of the range in the object.
     */
    uint64_t offset;
    /**
     * Length in bytes.
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
     * The rule that put it there, and what happens next.
     */
    const char *why;
} cenote_range_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the interface that the library was built with: compare it with `CENOTE_ABI_VERSION`.
 */
uint32_t cenote_abi_version(void);

/**
 * Fails with `CENOTE_VERSION_MISMATCH` unless the library has this version of the interface. A program calls it once
 * with `CENOTE_ABI_VERSION`, before anything else.
 */
int32_t cenote_abi_check(uint32_t version,
                         cenote_error_t **error);

/**
 * Returns the version of the library, for people, such as "0.1.0". Never freed.
 */
const char *cenote_version(void);

/**
 * Frees an error. Null is allowed.
 */
void cenote_error_free(cenote_error_t *error);

/**
 * Returns a few words for a kind, such as "not found". Never freed.
 */
const char *cenote_kind_words(int32_t kind);

/**
 * Fills in the defaults: mode auto; the store is created if it does not exist.
 */
void cenote_options_init(cenote_options_t *options);

/**
 * Opens the store in directory `dir` with `options`; null: the defaults of `cenote_options_init`.
 * Close the handle with `cenote_close`. After `fork`, the child may go on using it: it gets its own session.
 */
int32_t cenote_open(const char *dir,
                    const cenote_options_t *options,
                    cenote_store_t **store,
                    cenote_error_t **error);

/**
 * Ends the session and frees the handle, even if it returns an error. Containers, objects and indices of the store
 * cannot be used afterwards, but must still be freed. Null is allowed.
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
 * Asks the daemon that serves the store in `dir` to finish its work and exit. `*stopped` (may be null) is 0 if there
 * is none.
 */
int32_t cenote_stop_daemon(const char *dir,
                           int32_t *stopped,
                           cenote_error_t **error);

/**
 * Destroys the store in `dir`: its segments in memory, the files of its tiers, its metadata, and finally the
 * directory unless it holds other files. If other sessions are open it fails with `CENOTE_BUSY`, unless `force` is
 * not 0.
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
 * Removes an empty tier from the store.
 */
int32_t cenote_tier_remove(const cenote_store_t *store, const char *name, cenote_error_t **error);

/**
 * Writes the id of the store as 32 hexadecimal digits and a NUL byte into `text`, which has space for 33 bytes.
 */
int32_t cenote_store_id(const cenote_store_t *store,
                        char *text,
                        cenote_error_t **error);

/**
 * Fills in the defaults: blocks of 4 KiB, async, no quota, the default policy.
 */
void cenote_container_spec_init(cenote_container_spec_t *spec);

/**
 * Opens the container with that label, and creates it with the settings in `spec` (null: the defaults) if it does not exist.
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
 * Creates a container; `CENOTE_EXISTS` if the label is taken. Free the handle with `cenote_container_free`.
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
 * Renames a container.
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
 * `*count` is their number.
 */
int32_t cenote_objects(const cenote_container_t *container,
                       const cenote_id_t *after,
                       cenote_id_t *ids,
                       size_t capacity,
                       size_t *count,
                       cenote_error_t **error);

/**
 * Makes a snapshot of the container under a name: its current content stays readable; no data are copied. `replace` not 0:
 * replaces a snapshot of that name; otherwise `CENOTE_EXISTS` if there is one.
 */
int32_t cenote_container_snapshot(const cenote_container_t *container,
                                  const char *name,
                                  int32_t replace,
                                  cenote_error_t **error);

/**
 * Opens a snapshot as a read-only container. It lasts as long as the handle, even if it is deleted meanwhile. Free the handle
 * with `cenote_container_free`.
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
 * Restores the content that the container had when the snapshot was made, in one transaction; the snapshot stays.
 */
int32_t cenote_container_roll_back(const cenote_container_t *container,
                                   const char *name,
                                   cenote_error_t **error);

/**
 * Makes a snapshot of each of `count` containers under one name, all of one moment: in one transaction, wherever these
 * containers are. `replace` not 0: replaces snapshots of that name; otherwise `CENOTE_EXISTS` if a container has one.
 */
int32_t cenote_snapshot(const cenote_store_t *store,
                        const cenote_container_t *const *containers,
                        size_t count,
                        const char *name,
                        int32_t replace,
                        cenote_error_t **error);

/**
 * Deletes the snapshot of that name of each of `count` containers: of all, or of none.
 */
int32_t cenote_delete_snapshot(const cenote_store_t *store,
                               const cenote_container_t *const *containers,
                               size_t count,
                               const char *name,
                               cenote_error_t **error);

/**
 * Restores the content that each of `count` containers had when its snapshot of that name was made: all, or none.
 */
int32_t cenote_roll_back(const cenote_store_t *store,
                         const cenote_container_t *const *containers,
                         size_t count,
                         const char *name,
                         cenote_error_t **error);

/**
 * Returns when everything acknowledged so far in this container survives power loss.
 */
int32_t cenote_container_flush(const cenote_container_t *container, cenote_error_t **error);

/**
 * Writes an id as 32 hexadecimal digits and a NUL byte into `text`, which has space for 33 bytes.
 */
int32_t cenote_id_format(cenote_id_t id, char *text, cenote_error_t **error);

/**
 * Parses an id of up to 32 hexadecimal digits.
 */
int32_t cenote_id_parse(const char *digits, cenote_id_t *id, cenote_error_t **error);

/**
 * Creates an object. `id`: null for a random one. `block_size`: 0 for the container's.
 * Free the handle with `cenote_object_free`.
 */
int32_t cenote_object_create(const cenote_container_t *container,
                             const cenote_id_t *id,
                             uint64_t block_size,
                             cenote_object_t **object,
                             cenote_error_t **error);

/**
 * Returns a handle of the object with that id, without a message: a missing object is reported at first use.
 * Free the handle with `cenote_object_free`.
 */
int32_t cenote_object_open(const cenote_container_t *container,
                           cenote_id_t id,
                           cenote_object_t **object,
                           cenote_error_t **error);

/**
 * Returns a handle of the same object with a write mode other than the container's: `CENOTE_SYNC` (write-through: on a
 * persistent tier, acknowledged when it survives power loss), `CENOTE_ASYNC` (write-back) or `CENOTE_BYPASS` (straight to the
 * lowest persistent tier). Refused if that is less than the container promises, and in scratch containers.
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
 * Deletes the object with that id.
 */
int32_t cenote_object_delete(const cenote_container_t *container, cenote_id_t id, cenote_error_t **error);

/**
 * Returns the object's id.
 */
int32_t cenote_object_id(const cenote_object_t *object, cenote_id_t *id, cenote_error_t **error);

/**
 * Returns size, block size and use.
 */
int32_t cenote_object_stat(const cenote_object_t *object, cenote_object_stat_t *stat, cenote_error_t **error);

/**
 * Reads `len` bytes at `offset` into `data`. Holes are zeros. `*got` (may be null) is the number of bytes before the recorded
 * size; the rest of `data` is untouched.
 */
int32_t cenote_read(const cenote_object_t *object,
                    uint64_t offset,
                    void *data,
                    size_t len,
                    size_t *got,
                    cenote_error_t **error);

/**
 * Writes `len` bytes at `offset`: acknowledged by the container's durability, and visible to every process.
 */
int32_t cenote_write(const cenote_object_t *object,
                     uint64_t offset,
                     const void *data,
                     size_t len,
                     cenote_error_t **error);

/**
 * Reads many ranges at once; bytes beyond the recorded size read as zeros.
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
 * Returns when everything acknowledged so far survives power loss.
 */
int32_t cenote_object_flush(const cenote_object_t *object, cenote_error_t **error);

/**
 * Returns a range by reference, without a copy. `*view` is null, and the result 0, if the range is not in one piece of mapped
 * memory: read it instead. Free the view with `cenote_view_free`.
 */
int32_t cenote_view(const cenote_object_t *object,
                    uint64_t offset,
                    size_t len,
                    cenote_view_t **view,
                    cenote_error_t **error);

/**
 * Returns the bytes of a view; null if it is no view. `*len` (may be null) is their number.
 */
const uint8_t *cenote_view_data(const cenote_view_t *view, size_t *len);

/**
 * Frees a view; its bytes may change or disappear from then on. Null is allowed.
 */
void cenote_view_free(cenote_view_t *view);

/**
 * Begins a write in place: reserves `len` bytes of mapped memory at `*data`. Fill them, then call `cenote_write_commit`
 * or `cenote_write_free`.
 */
int32_t cenote_write_in_place(const cenote_object_t *object,
                              size_t len,
                              cenote_write_t **write,
                              uint8_t **data,
                              cenote_error_t **error);

/**
 * Makes the bytes the object's at `offset`. Invalidates the handle, and its memory must not be used any more, whatever
 * the result.
 */
int32_t cenote_write_commit(cenote_write_t *write,
                            uint64_t offset,
                            cenote_error_t **error);

/**
 * Releases the memory without writing. Null is allowed.
 */
void cenote_write_free(cenote_write_t *write);

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
 * Starts a read of `len` bytes; `cenote_op_wait_read` returns them.
 */
int32_t cenote_launch_read(const cenote_object_t *object,
                           uint64_t offset,
                           size_t len,
                           cenote_op_t **op,
                           cenote_error_t **error);

/**
 * Starts setting a record.
 */
int32_t cenote_launch_put(const cenote_index_t *index,
                          cenote_slice_t key,
                          cenote_slice_t value,
                          cenote_op_t **op,
                          cenote_error_t **error);

/**
 * Waits until it is acknowledged. Invalidates the handle.
 */
int32_t cenote_op_wait(cenote_op_t *op, cenote_error_t **error);

/**
 * Waits for the bytes of a read and copies up to `len` of them to `data`; `*got` (may be null) is their number.
 * Invalidates the handle.
 */
int32_t cenote_op_wait_read(cenote_op_t *op,
                            void *data,
                            size_t len,
                            size_t *got,
                            cenote_error_t **error);

/**
 * Returns 1 if waiting would not block, 0 if it would, -1 if it is no operation.
 */
int32_t cenote_op_is_done(const cenote_op_t *op);

/**
 * Calls `callback` once when it is done, from a thread of the library, with 0 or the kind of the error, and the error
 * (freed after the call). Invalidates the handle.
 */
int32_t cenote_op_on_done(cenote_op_t *op,
                          void (*callback)(void *context, int32_t kind, const cenote_error_t *error),
                          void *context,
                          cenote_error_t **error);

/**
 * Creates an index. `id`: null for a random one. Free the handle with `cenote_index_free`.
 */
int32_t cenote_index_create(const cenote_container_t *container,
                            const cenote_id_t *id,
                            cenote_index_t **index,
                            cenote_error_t **error);

/**
 * Opens the index with that id, and creates it if it does not exist. Free the handle with `cenote_index_free`.
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
 * Returns the index's id.
 */
int32_t cenote_index_id(const cenote_index_t *index, cenote_id_t *id, cenote_error_t **error);

/**
 * Sets records. `codes` (may be null) has space for a `CENOTE_KEY_...` per record.
 */
int32_t cenote_index_put(const cenote_index_t *index,
                         const cenote_record_t *records,
                         size_t count,
                         uint8_t *codes,
                         cenote_error_t **error);

/**
 * Sets records whose keys do not exist; the code of the others is `CENOTE_KEY_EXISTS`.
 */
int32_t cenote_index_put_new(const cenote_index_t *index,
                             const cenote_record_t *records,
                             size_t count,
                             uint8_t *codes,
                             cenote_error_t **error);

/**
 * Gets values by key into `values`, which has space for `count`. Free each with `cenote_bytes_free`.
 */
int32_t cenote_index_get(const cenote_index_t *index,
                         const cenote_slice_t *keys,
                         size_t count,
                         cenote_bytes_t *values,
                         cenote_error_t **error);

/**
 * Frees a value that the library gave out, and empties it. Allows null, and values that were not found.
 */
void cenote_bytes_free(cenote_bytes_t *bytes);

/**
 * Deletes records; the code of a missing one is `CENOTE_KEY_NOT_FOUND`.
 */
int32_t cenote_index_del(const cenote_index_t *index,
                         const cenote_slice_t *keys,
                         size_t count,
                         uint8_t *codes,
                         cenote_error_t **error);

/**
 * Reads up to `limit` records in key order whose keys begin with `prefix`. `from`: null for the first; otherwise that
 * key or the next greater one, or (with `after` not 0) the next greater one. Free `*records` with
 * `cenote_records_free`.
 */
int32_t cenote_index_next(const cenote_index_t *index,
                          cenote_slice_t prefix,
                          const cenote_slice_t *from,
                          int32_t after,
                          uint32_t limit,
                          cenote_records_t **records,
                          cenote_error_t **error);

/**
 * Returns the number of records.
 */
size_t cenote_records_count(const cenote_records_t *records);

/**
 * Returns a record, which lives as long as `records`. Empty if there is none at `at`.
 */
cenote_record_t cenote_records_get(const cenote_records_t *records, size_t at);

/**
 * Frees records. Null is allowed.
 */
void cenote_records_free(cenote_records_t *records);

/**
 * Begins a transaction. `detect_conflicts` not 0: the commit fails with `CENOTE_CONFLICT` if others changed anything
 * read through it meanwhile. End it with `cenote_commit` or `cenote_abort`.
 */
int32_t cenote_begin(const cenote_store_t *store,
                     int32_t detect_conflicts,
                     cenote_transaction_t **transaction,
                     cenote_error_t **error);

/**
 * Applies everything, or nothing. Invalidates the handle, whatever the result. `*epoch` may be null.
 */
int32_t cenote_commit(cenote_transaction_t *transaction, uint64_t *epoch, cenote_error_t **error);

/**
 * Discards everything. Invalidates the handle. Null is allowed.
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
 * Reads a byte range, including own writes; otherwise as `cenote_read`.
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
 * Creates an object; as `cenote_object_create`.
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
 * Creates an index; as `cenote_index_create`.
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
 * Sets a record. `only_new` not 0: the commit fails with `CENOTE_EXISTS` if the key exists.
 */
int32_t cenote_transaction_put(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_slice_t value,
                               int32_t only_new,
                               cenote_error_t **error);

/**
 * Gets a value, including own puts. Free it with `cenote_bytes_free`.
 */
int32_t cenote_transaction_get(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_bytes_t *value,
                               cenote_error_t **error);

/**
 * Deletes a record; no error if it does not exist.
 */
int32_t cenote_transaction_del(cenote_transaction_t *transaction,
                               const cenote_index_t *index,
                               cenote_slice_t key,
                               cenote_error_t **error);

/**
 * Appends `len` bytes at the size that the object has when this is applied; `*at` (may be null) is the offset. If several
 * processes append at once, the bytes of each are in the object whole, once, in some order.
 */
int32_t cenote_append(const cenote_object_t *object,
                      const void *data,
                      size_t len,
                      uint64_t *at,
                      cenote_error_t **error);

/**
 * Returns the recorded size in bytes: without a message if the value that this process knows still holds.
 */
int32_t cenote_object_size(const cenote_object_t *object, uint64_t *size, cenote_error_t **error);

/**
 * Returns the first offset with data at or after `offset`; `CENOTE_NOWHERE` if there is none before the end.
 */
int32_t cenote_next_data(const cenote_object_t *object,
                         uint64_t offset,
                         uint64_t *found,
                         cenote_error_t **error);

/**
 * Returns the first offset in a hole at or after `offset`, or the size if there is none before it; `CENOTE_NOWHERE` from the end
 * on.
 */
int32_t cenote_next_hole(const cenote_object_t *object,
                         uint64_t offset,
                         uint64_t *found,
                         cenote_error_t **error);

/**
 * Makes `[at, at + len)` of `object` equal to `[offset, offset + len)` of `from`: by one update without copying bytes if both
 * are in one container, or `from` is in a snapshot of it; otherwise by copying, piece by piece. `*done` (may be null) is the
 * number of bytes: fewer if `from` ends before.
 */
int32_t cenote_copy(const cenote_object_t *object,
                    uint64_t at,
                    const cenote_object_t *from,
                    uint64_t offset,
                    uint64_t len,
                    uint64_t *done,
                    cenote_error_t **error);

/**
 * In a transaction: makes `[at, at + len)` of `object` equal to what `[offset, offset + len)` of `from` is at the commit,
 * without copying bytes. Both must be in one container, or `from` in a snapshot of it.
 */
int32_t cenote_transaction_share(cenote_transaction_t *transaction,
                                 const cenote_object_t *object,
                                 uint64_t at,
                                 const cenote_object_t *from,
                                 uint64_t offset,
                                 uint64_t len,
                                 cenote_error_t **error);

/**
 * Makes the commit fail with `CENOTE_CONFLICT` if a record's key then begins with this prefix, before the transaction's own
 * changes.
 */
int32_t cenote_transaction_expect_none(cenote_transaction_t *transaction,
                                       const cenote_index_t *index,
                                       cenote_slice_t prefix,
                                       cenote_error_t **error);

/**
 * Makes the commit fail with `CENOTE_CONFLICT` unless the object then has this size in bytes.
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
 * Returns the counters of the whole store.
 */
int32_t cenote_stats(const cenote_store_t *store, cenote_stats_t *stats, cenote_error_t **error);

/**
 * Reads and verifies everything. Calls `each` (may be null) for every damaged range; `*findings` (may be null) is
 * their number.
 */
int32_t cenote_verify(const cenote_store_t *store,
                      void (*each)(void *context, const cenote_finding_t *finding),
                      void *context,
                      uint64_t *findings,
                      cenote_error_t **error);

/**
 * Reads and verifies everything in a container; otherwise as `cenote_verify`.
 */
int32_t cenote_container_verify(const cenote_container_t *container,
                                void (*each)(void *context, const cenote_finding_t *finding),
                                void *context,
                                uint64_t *findings,
                                cenote_error_t **error);

/**
 * Calls `each` for every range of an object, with its place and the reason. Calls `note` (may be null) for each
 * sentence about the whole.
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
