// Code that is left in the middle and gone on with later, by the same thread.
//
//   Fiber fiber([&] {
//     one();
//     fiber.leave();   // back to who has gone on with it
//     two();
//   });
//   fiber.go_on();     // one()
//   fiber.go_on();     // two(), and the fiber has ended
//
// The body must not throw, and must not leave while it handles an exception: what is being handled
// is the thread's, not the fiber's. A fiber that is destroyed before its end is forgotten where it
// stands; the destructors of what lives on its stack don't run.
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

  // From within the body alone.
  void leave();

  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plait::base
