// A function that can stop in the middle and continue later, on the same thread.
//
//   Fiber fiber([&] {
//     one();
//     fiber.leave();   // return to the caller of go_on()
//     two();
//   });
//   fiber.go_on();     // one()
//   fiber.go_on();     // two(), then the fiber has ended
//
// The body must not throw, and must not leave while it handles an exception, because the exception
// being handled belongs to the thread, not to the fiber. Destroying a fiber before its end abandons
// it where it stands: destructors of objects on its stack don't run.
#pragma once

#include <functional>
#include <memory>

namespace plait::base {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Returns when the body leaves or ends.
  void go_on();

  // Call it only from within the body.
  void leave();

  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plait::base
