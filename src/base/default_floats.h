// Arithmetic that does not depend on what the caller's thread has set.
#pragma once

#include <cfenv>

namespace plait::base {

inline void set_default_floats() { std::fesetenv(FE_DFL_ENV); }

// While it lives, the thread rounds to nearest and keeps denormals; then it is as it was before,
// with the exception flags that it had.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&before_);
    set_default_floats();
  }
  ~DefaultFloats() { std::fesetenv(&before_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace plait::base
