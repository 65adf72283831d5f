#include "base/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace plait::base {
namespace {

// The kernel maps pages when they are touched. A fiber uses what its calls need, some 20 KiB.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

// A page below the stack, where an overflow faults. Arm's kernels may have pages of 64 KiB.
std::size_t guard_bytes() {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

class Stack {
 public:
  Stack()
      : bottom_(::mmap(nullptr, guard_bytes() + kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0)) {
    if (bottom_ == MAP_FAILED)
      fail_errno(sentence("cannot map a stack of ", kStackBytes, " bytes"));
    ::mprotect(bottom_, guard_bytes(), PROT_NONE);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { ::munmap(bottom_, guard_bytes() + kStackBytes); }

  void* data() const { return static_cast<std::byte*>(bottom_) + guard_bytes(); }

 private:
  void* bottom_;
};

// Sanitizers track every stack, and must be told before and after a switch.
#if defined(__SANITIZE_ADDRESS__)
class Books {
 public:
  void before_entering(const Stack& stack) {
    __sanitizer_start_switch_fiber(&callers_, stack.data(), kStackBytes);
  }
  void after_leaving() { __sanitizer_finish_switch_fiber(callers_, nullptr, nullptr); }
  void before_leaving(bool for_ever) {
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &own_, caller_, caller_bytes_);
  }
  void after_entering() { __sanitizer_finish_switch_fiber(own_, &caller_, &caller_bytes_); }

 private:
  void* callers_ = nullptr;
  void* own_ = nullptr;
  const void* caller_ = nullptr;
  std::size_t caller_bytes_ = 0;
};
#elif defined(__SANITIZE_THREAD__)
class Books {
 public:
  Books() : own_(__tsan_create_fiber(0)) {}
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;
  ~Books() { __tsan_destroy_fiber(own_); }
  void before_entering(const Stack& /*stack*/) {
    caller_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(own_, 0);
  }
  void after_leaving() {}
  void before_leaving(bool /*for_ever*/) { __tsan_switch_to_fiber(caller_, 0); }
  void after_entering() {}

 private:
  void* own_;
  void* caller_ = nullptr;
};
#else
struct Books {
  void before_entering(const Stack& /*stack*/) {}
  void after_leaving() {}
  void before_leaving(bool /*for_ever*/) {}
  void after_entering() {}
};
#endif

}  // namespace

struct Fiber::State {
  explicit State(std::function<void()> of) : body(std::move(of)) {
    ::getcontext(&own);
    own.uc_stack.ss_sp = stack.data();
    own.uc_stack.ss_size = kStackBytes;
    own.uc_link = &caller;
    // makecontext() passes ints only, so the pointer is split into two.
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&own, reinterpret_cast<void (*)()>(&State::enter), 2,
                  static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
  }

  static void enter(unsigned high, unsigned low) {
    const std::uintptr_t address = std::uintptr_t{high} << 32U | std::uintptr_t{low};
    auto* state = reinterpret_cast<State*>(address);  // NOLINT(performance-no-int-to-ptr)
    state->books.after_entering();
    state->body();
    state->ended = true;
    state->books.before_leaving(/*for_ever=*/true);
  }

  std::function<void()> body;
  Stack stack;
  Books books;
  ucontext_t own = {};
  ucontext_t caller = {};
  bool ended = false;
};

Fiber::Fiber(std::function<void()> body) : state_(std::make_unique<State>(std::move(body))) {}
Fiber::~Fiber() = default;

void Fiber::go_on() {
  State& state = *state_;
  state.books.before_entering(state.stack);
  ::swapcontext(&state.caller, &state.own);
  state.books.after_leaving();
}

void Fiber::leave() {
  State& state = *state_;
  state.books.before_leaving(/*for_ever=*/false);
  ::swapcontext(&state.own, &state.caller);
  state.books.after_entering();
}

bool Fiber::ended() const { return state_->ended; }

}  // namespace plait::base
