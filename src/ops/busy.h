// One operator of a communicator at a time: their chunks share slots.
#pragma once

#include <string_view>

#include "base/check.h"
#include "base/default_floats.h"
#include "comm/session/state.h"

namespace plait::ops {

inline void refuse_within_another(const Communicator::State& state, std::string_view call) {
  state.check_not_forked();  // the parent may have been in an operator
  PLAIT_CHECK(!state.is_in_operator(), call,
              ": called from the poll hook of another operator of this communicator");
}

// An operator is under way while it lives: one of its communicator, and with default floats, which
// products and sums have wherever they run, and the caller's poll hook has with them.
class Busy {
 public:
  Busy(Communicator::State& state, std::string_view call) : state_(state), use_(state) {
    refuse_within_another(state, call);
    state_.set_in_operator(true);
  }
  ~Busy() { state_.set_in_operator(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator::State& state_;
  Communicator::State::Use use_;
  base::DefaultFloats floats_;
};

}  // namespace plait::ops
