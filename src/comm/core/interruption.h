// An exception that a caller's hook throws to end a wait (CommunicatorOptions::interrupted) leaves
// the call as it was thrown, also through calls of another communicator, which take other
// exceptions for failures of their own. They tell it apart by a count that each thread has:
//
//   const Interruption interruption;
//   try {
//     ...
//   } catch (...) {
//     if (interruption.has_come()) throw;
//     ...
//   }
#pragma once

#include <cstdint>
#include <functional>

namespace plait::comm {

class Interruption {
 public:
  Interruption() : before_(count()) {}

  // True if a hook has thrown on this thread since this object was made on it.
  bool has_come() const { return count() != before_; }

  // A hook whose exceptions are counted.
  static std::function<void()> counted(std::function<void()> hook);

 private:
  static std::uint64_t& count();

  std::uint64_t before_;
};

}  // namespace plait::comm
