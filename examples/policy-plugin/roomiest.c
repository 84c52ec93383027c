/* An example policy: new bytes go to the tier with the largest free share; ranges that were idle for a minute and have a
 * copy are evicted. `cc -shared -fPIC -O2 -o libroomiest.so roomiest.c`
 *
 * Macros that make it misbehave, for the tests: DAWDLE, NONSENSE, REFUSE. */
#include "cenote_policy.h"

#ifdef DAWDLE
#include <unistd.h>
#endif

static int32_t place(const struct cenote_device_v1 *devices, size_t count, const struct cenote_incoming_v1 *incoming,
                     struct cenote_decision_v1 *decision) {
#if defined DAWDLE
  for (;;) sleep(3600);
#elif defined REFUSE
  return -1;
#elif defined NONSENSE
  decision->device = 4711;
  decision->bytes = incoming->bytes;
  return 0;
#endif
  double best = 0;
  int32_t answer = 1;
  for (size_t i = 0; i < count; i++) {
    const struct cenote_device_v1 *d = &devices[i];
    uint64_t taken = d->used_bytes + d->reserved_bytes;
    int fits = d->state == 0 && taken + incoming->bytes <= d->high_bytes;
    if (!fits || (!d->is_persistent && (incoming->durability == 0 || incoming->durability == 3))) continue;
    double free = 1.0 - (double)taken / (double)d->capacity_bytes;
    if (free > best) {
      best = free;
      decision->device = d->id;
      decision->bytes = incoming->bytes;
      answer = 0;
    }
  }
  return answer;
}

static int64_t plan(const struct cenote_device_v1 *devices, size_t device_count, const struct cenote_range_v1 *ranges,
                    size_t count, struct cenote_move_v1 *moves, size_t moves_max) {
  (void)devices;
  (void)device_count;
  size_t planned = 0;
  for (size_t i = 0; i < count && planned < moves_max; i++) {
#ifdef NONSENSE
    moves[planned++] = (struct cenote_move_v1){.range = count + 7, .action = 99, .device = 0};
#else
    if (ranges[i].copy >= 0 && ranges[i].idle_ms > 60000 && !ranges[i].is_pinned)
      moves[planned++] = (struct cenote_move_v1){.range = i, .action = 2, .device = 0};
#endif
  }
#ifdef NONSENSE
  return (int64_t)moves_max + 5;
#else
  return (int64_t)planned;
#endif
}

static const struct cenote_policy_v1 policy = {
    CENOTE_POLICY_ABI, sizeof policy, "roomiest", "new bytes go to the tier with the largest part of it free", place, plan,
};

const struct cenote_policy_v1 *cenote_policy_v1(void) { return &policy; }
