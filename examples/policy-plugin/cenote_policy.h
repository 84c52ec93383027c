/* The interface of a placement policy that the daemon loads from a shared library.
 *
 * The library exports one function, `cenote_policy_v1`, which returns a table that lives as long as the library. Its
 * functions are called from one thread, one call at a time, and must not keep the pointers passed to them. Their answers
 * are checked: after a late, invalid or negative answer `fast-first` decides, and after eight such answers the policy is
 * not called any more (`cenote tiers` shows why). A crash in the library crashes the daemon, so load only code that you
 * trust.
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
  uint32_t kind;  /* 0 memory, 1 file, 2 directory, 3 persistent memory, 4 S3, 5 Swift, 6 Ceph RADOS, 7 raid */
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
  float heat;          /* decaying count of reads and writes of the overwritten bytes; negative: unknown */
  const char *label;   /* the container's label, ends in NUL */
};

/* The placement of new bytes. */
struct cenote_decision_v1 {
  uint32_t device;
  uint32_t wait;  /* 1: wait for room on the device, about `expected_ns` */
  uint64_t bytes; /* how many go there, at least run_min; the policy is called again for the rest */
  uint64_t expected_ns;
};

/* A stored range, one of a sample. */
struct cenote_range_v1 {
  uint64_t bytes, object_bytes, age_ms, idle_ms;
  uint32_t device;
  int32_t copy; /* the device of its copy (replica); -1: none */
  uint32_t durability, is_pinned;
  float heat, expected_reads;
};

/* A move of a range. */
struct cenote_move_v1 {
  uint64_t range;  /* index in the sample */
  uint32_t action; /* 0 promote, 1 demote, 2 evict, 3 copy, 4 drop its copy */
  uint32_t device; /* the target of actions 0, 1 and 3 */
};

struct cenote_policy_v1 {
  uint32_t abi;  /* CENOTE_POLICY_ABI */
  uint32_t size; /* sizeof(struct cenote_policy_v1) */
  const char *name, *about;
  /* Returns 0 if it has decided; otherwise `fast-first` decides. */
  int32_t (*place)(const struct cenote_device_v1 *, size_t, const struct cenote_incoming_v1 *,
                   struct cenote_decision_v1 *);
  /* Returns the number of moves written, at most `moves_max`; negative: `fast-first` plans. */
  int64_t (*plan)(const struct cenote_device_v1 *, size_t, const struct cenote_range_v1 *, size_t,
                  struct cenote_move_v1 *, size_t moves_max);
};

const struct cenote_policy_v1 *cenote_policy_v1(void);

#ifdef __cplusplus
}
#endif
#endif
