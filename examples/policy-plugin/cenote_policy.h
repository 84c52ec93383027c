/* The interface of a placement policy that is loaded into the daemon from a shared library.
 *
 * The library exports one function, `cenote_policy_v1`, that gives a table that lives as long as the library. Its
 * functions are called from one thread, one call at a time; they must not keep the pointers that they are given. What they
 * answer is checked; an answer that is late, nonsense or negative is passed over and `fast-first` decides, and after eight
 * such answers the policy is not asked any more (`cenote tiers` shows why). A crash in the library is a crash of the
 * daemon: load what you trust.
 *
 * Build: cc -shared -fPIC -O2 -o libmine.so mine.c
 */
#ifndef CENOTE_POLICY_H
#define CENOTE_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CENOTE_POLICY_ABI 1

/* A tier. Times in nanoseconds, bandwidths in bytes per second. */
struct cenote_device_v1 {
  uint32_t id;
  uint32_t kind;  /* 0 memory, 1 file, 2 directory, 3 persistent memory, 4 S3, 5 Swift */
  uint32_t state; /* 0 online, 1 draining, 2 failed */
  uint32_t is_persistent;
  uint64_t capacity_bytes, used_bytes, reserved_bytes, evictable_bytes, high_bytes, low_bytes;
  uint64_t queued_read_bytes, queued_write_bytes;
  double read_latency_ns, write_latency_ns, read_bandwidth, write_bandwidth;
};

/* New bytes. */
struct cenote_incoming_v1 {
  uint64_t bytes, run_min;
  uint64_t now_ms, now_unix_ms;
  uint32_t durability; /* 0 sync, 1 async, 2 scratch, 3 bypass */
  float heat;          /* decaying count of reads and writes of what is overwritten; negative: unknown */
  const char *label;   /* of the container, ends in NUL */
};

/* Where they go. */
struct cenote_decision_v1 {
  uint32_t device;
  uint32_t wait;  /* 1: wait for room on the device, about `expected_ns` */
  uint64_t bytes; /* how many go there, at least run_min; the rest is asked for again */
  uint64_t expected_ns;
};

/* A range in a sample. */
struct cenote_range_v1 {
  uint64_t bytes, object_bytes, age_ms, idle_ms;
  uint32_t device;
  int32_t copy; /* the device of its copy; -1: none */
  uint32_t durability, is_pinned;
  float heat, expected_reads;
};

/* A range to be somewhere else. */
struct cenote_move_v1 {
  uint64_t range;  /* which of the sample */
  uint32_t action; /* 0 promote, 1 demote, 2 evict, 3 copy, 4 give up its copy */
  uint32_t device; /* of 0, 1 and 3 */
};

struct cenote_policy_v1 {
  uint32_t abi;  /* CENOTE_POLICY_ABI */
  uint32_t size; /* sizeof(struct cenote_policy_v1) */
  const char *name, *about;
  /* 0: decided; anything else: `fast-first` decides. */
  int32_t (*place)(const struct cenote_device_v1 *, size_t, const struct cenote_incoming_v1 *,
                   struct cenote_decision_v1 *);
  /* How many moves were written, at most `moves_max`; negative: `fast-first` plans. */
  int64_t (*plan)(const struct cenote_device_v1 *, size_t, const struct cenote_range_v1 *, size_t,
                  struct cenote_move_v1 *, size_t moves_max);
};

const struct cenote_policy_v1 *cenote_policy_v1(void);

#ifdef __cplusplus
}
#endif
#endif
