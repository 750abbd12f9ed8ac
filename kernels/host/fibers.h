// Runs a grid on one CPU thread: block after block, the threads of a block as fibers that switch at barriers only.
//
// A barrier is real: a fiber passes it when every live thread that it names has come, and a block in which nobody can
// go on is an error. A seed changes the order of blocks and, between barriers, of threads. Shared memory starts
// poisoned. What waits for another block, or spins without a barrier, never ends.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include <sys/mman.h>

#include "switch.h"

extern unsigned char __start_host_shared[] __attribute__((weak, visibility("hidden")));  // put there by the linker
extern unsigned char __stop_host_shared[] __attribute__((weak, visibility("hidden")));

namespace host {

constexpr int POISON = 0xA5;
constexpr size_t STACK = 128 << 10, GUARD = 4096;
constexpr unsigned WARP = 32;

struct Size {
  unsigned x, y, z;
};

enum class At { running, block_barrier, warp_barrier, end };
enum class Warp { sync, shuffle, ballot, add, smallest, largest, conjunction, disjunction, parity };

struct Fiber {
  Context context;
  char* stack;
  Size index;
  unsigned lane;
  At at;
  int line;         // of the barrier that it waits at
  Warp kind;        // of the warp barrier, as are the next three
  unsigned mask;
  unsigned from;    // the lane that a shuffle reads
  uint64_t value;   // what it brings to the barrier
  uint64_t result;  // what it takes away
};

struct Plan {  // what Python passes
  Size grid, block;
  uint64_t shared_bytes, seed;
};

static Fiber* self;
static Size block_index, block_size, grid_size;
static void* dynamic_shared;
static Context scheduler;
static std::vector<Fiber> fibers;
static std::vector<char*> stacks;
static void (*thread_body)(void** arguments);
static void** thread_arguments;
static char* message;

template <class... A>
bool fault(const char* format, A... arguments) {
  snprintf(message, 256, format, arguments...);
  return false;
}

inline uint64_t wait(At at, int line, uint64_t value) {
  self->at = at;
  self->line = line;
  self->value = value;
  jump(self->context, scheduler);
  return self->result;
}

inline uint64_t warp_wait(Warp kind, unsigned mask, uint64_t value, unsigned from, int line) {
  self->kind = kind;
  self->mask = mask;
  self->from = from;
  return wait(At::warp_barrier, line, value);
}

inline void fiber_main() {
  arrived(self->context);
  thread_body(thread_arguments);
  self->at = At::end;
  leave(self->context, scheduler);
}

// Give each lane of a full group its result; false on a fault.
inline bool finish_group(Fiber* lanes, unsigned count, unsigned group, unsigned mask) {
  const Fiber& first = lanes[__builtin_ctz(group)];
  int64_t low = INT64_MAX, high = INT64_MIN;
  uint64_t sum = 0, all = ~0ull, any = 0, odd = 0, ballot = 0;
  for (unsigned lane = 0; lane < count; lane++) {
    if (!(group >> lane & 1)) continue;
    const Fiber& one = lanes[lane];
    if (one.kind != first.kind)
      return fault("lanes %u and %u meet in different warp functions, lines %d and %d", first.lane, lane, first.line,
                   one.line);
    const int64_t value = static_cast<int64_t>(one.value);
    sum += one.value, low = value < low ? value : low, high = value > high ? value : high;
    all &= one.value, any |= one.value, odd ^= one.value;
    ballot |= static_cast<uint64_t>(one.value != 0) << lane;
    if (one.kind == Warp::shuffle && (one.from >= count || !(group >> one.from & 1)))
      return fault("line %d: lane %u reads lane %u, which is not in the shuffle (mask %08x)", one.line, lane, one.from,
                   mask);
  }
  for (unsigned lane = 0; lane < count; lane++) {
    if (!(group >> lane & 1)) continue;
    Fiber& one = lanes[lane];
    switch (one.kind) {
      case Warp::sync: one.result = 0; break;
      case Warp::shuffle: one.result = lanes[one.from].value; break;
      case Warp::ballot: one.result = ballot; break;
      case Warp::add: one.result = sum; break;
      case Warp::smallest: one.result = static_cast<uint64_t>(low); break;
      case Warp::largest: one.result = static_cast<uint64_t>(high); break;
      case Warp::conjunction: one.result = all; break;
      case Warp::disjunction: one.result = any; break;
      case Warp::parity: one.result = odd; break;
    }
  }
  for (unsigned lane = 0; lane < count; lane++)
    if (group >> lane & 1) lanes[lane].at = At::running;
  return true;
}

// Release the groups of a warp whose live lanes have all come; return how many, or -1 on a fault.
inline int release_warp(Fiber* lanes, unsigned count) {
  int released = 0;
  for (unsigned lane = 0; lane < count; lane++) {
    if (lanes[lane].at != At::warp_barrier) continue;
    const unsigned mask = lanes[lane].mask;
    if (!(mask >> lane & 1))
      return fault("line %d: lane %u is not in its own mask %08x", lanes[lane].line, lane, mask), -1;
    unsigned group = 0;
    bool full = true;
    for (unsigned other = 0; other < count; other++) {
      if (!(mask >> other & 1) || lanes[other].at == At::end) continue;
      full &= lanes[other].at == At::warp_barrier && lanes[other].mask == mask;
      group |= 1u << other;
    }
    if (!full) continue;
    if (!finish_group(lanes, count, group, mask)) return -1;
    released++;
  }
  return released;
}

// Release all live threads, if they wait at one barrier of the block; false, with a message, if they do not.
inline bool release_block() {
  const Fiber *first = nullptr, *other = nullptr;
  uint64_t any = 0;
  bool together = true;
  for (const Fiber& one : fibers) {
    if (one.at == At::end) continue;
    if (!first) first = &one;
    if (together) other = &one;
    together &= one.at == At::block_barrier && one.line == first->line;
    any |= one.value;
  }
  if (!together)
    return fault("deadlock: thread %d waits at line %d, thread %d at line %d", int(first - fibers.data()), first->line,
                 int(other - fibers.data()), other->line);
  for (Fiber& one : fibers)
    if (one.at == At::block_barrier) one.result = any, one.at = At::running;
  return true;
}

// Release whoever can go on; false on a fault.
inline bool release() {
  int released = 0;
  for (size_t start = 0; start < fibers.size(); start += WARP) {
    const size_t left = fibers.size() - start;
    const int of_warp = release_warp(&fibers[start], left < WARP ? unsigned(left) : WARP);
    if (of_warp < 0) return false;
    released += of_warp;
  }
  return released || release_block();
}

__attribute__((no_sanitize_address)) inline void poison_shared(size_t dynamic_bytes) {
  for (unsigned char* byte = __start_host_shared; byte < __stop_host_shared; byte++) *byte = POISON;
  memset(dynamic_shared, POISON, dynamic_bytes);
}

// Put 0 to n - 1 in another order, if there is a seed; it changes with each call.
inline void permute(std::vector<unsigned>& order, uint64_t& seed) {
  for (size_t k = order.size(); seed && k > 1; k--) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[k - 1], order[(seed >> 33) % k]);
  }
}

inline bool run_block(const Plan& plan, std::vector<unsigned>& order, uint64_t& seed) {
  poison_shared(plan.shared_bytes);
  for (Fiber& one : fibers) {
    one.at = At::running;
    start(one.context, one.stack, STACK, fiber_main);
  }
  for (size_t ended = 0;;) {
    permute(order, seed);
    for (unsigned thread : order) {
      self = &fibers[thread];
      if (self->at != At::running) continue;
      jump(scheduler, self->context);
      ended += self->at == At::end;
    }
    if (ended == fibers.size()) return true;
    if (!release()) return false;
  }
}

// Give every thread of the block a fiber; stacks are kept between launches, below each a page that faults.
inline void make_fibers(Size size) {
  fibers.assign(size_t(size.x) * size.y * size.z, Fiber{});
  while (stacks.size() < fibers.size()) {
    void* memory = mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE)) abort();
    stacks.push_back(static_cast<char*>(memory) + GUARD);
  }
  for (unsigned thread = 0; thread < fibers.size(); thread++) {
    fibers[thread].stack = stacks[thread];
    fibers[thread].lane = thread % WARP;
    fibers[thread].index = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  }
}

// Run the grid; 0, or 1 with a message of at most 255 letters.
inline int run(const Plan& plan, void (*body)(void**), void** arguments, char* message_256) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  message = message_256, thread_body = body, thread_arguments = arguments;
  grid_size = plan.grid, block_size = plan.block;
  make_fibers(plan.block);
  dynamic_shared = aligned_alloc(128, (plan.shared_bytes + 255) / 128 * 128);
  uint64_t seed = plan.seed;
  std::vector<unsigned> order(fibers.size()), blocks(size_t(plan.grid.x) * plan.grid.y * plan.grid.z);
  for (unsigned k = 0; k < order.size(); k++) order[k] = k;
  for (unsigned k = 0; k < blocks.size(); k++) blocks[k] = k;
  permute(blocks, seed);
  bool good = true;
  for (size_t k = 0; good && k < blocks.size(); k++) {
    block_index = {blocks[k] % plan.grid.x, blocks[k] / plan.grid.x % plan.grid.y, blocks[k] / plan.grid.x / plan.grid.y};
    good = run_block(plan, order, seed);
  }
  free(dynamic_shared);
  return !good;
}

}  // namespace host
