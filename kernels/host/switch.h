// Switches between stacks: a few instructions on x86-64, ucontext elsewhere (which calls the kernel at every switch).
// AddressSanitizer is told of each switch, or it would take one stack for an overflow of another.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace host {

struct Context {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t saved;
#endif
  const void* bottom;  // of its stack, for the sanitizer
  size_t size;
  void* fake_stack;
};

static Context* came_from;

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void host_switch(void** save, void* load);
asm(R"(
.pushsection .text
.hidden host_switch
.globl host_switch
.type host_switch, @function
host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size host_switch, .-host_switch
.popsection
)");
#endif

// Say that this context runs now; the first thing it does after a switch.
inline void arrived(Context& here) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here.fake_stack, &came_from->bottom, &came_from->size);
#else
  (void)here;
#endif
}

inline void change(Context& here, Context& there) {
  came_from = &here;
#if defined(__x86_64__)
  host_switch(&here.stack_pointer, there.stack_pointer);
#else
  swapcontext(&here.saved, &there.saved);
#endif
}

// Go on in another context, until somebody comes back here.
inline void jump(Context& here, Context& there) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&here.fake_stack, there.bottom, there.size);
#endif
  change(here, there);
  arrived(here);
}

// Go on in another context for good.
[[noreturn]] inline void leave(Context& here, Context& there) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, there.bottom, there.size);
#endif
  change(here, there);
  __builtin_unreachable();
}

// Prepare a context that begins with `entry` on this stack.
inline void start(Context& context, char* stack, size_t size, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, size);
#endif
  context.bottom = stack;
  context.size = size;
  context.fake_stack = nullptr;
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + size) - 2;  // so that the entry finds the stack as after a call
  *top = reinterpret_cast<void*>(entry);
  for (int k = 0; k < 6; k++) *--top = nullptr;
  context.stack_pointer = top;
#else
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = size;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
#endif
}

}  // namespace host
