#include "comm/flow/mate_blocks.h"

#include <algorithm>

namespace plait::comm {

void MateBlocks::begin() {
  chunks_ = 0;
  for (int host = 0; host < hosts_.count(); ++host)
    chunks_ = std::max(chunks_, blocks_.chunks(hosts_.counterpart_of(rank_, host)));
  chunk_ = 0;
  turn_ = 0;
  skip_missing();
}

void MateBlocks::advance() {
  step();
  skip_missing();
}

void MateBlocks::skip_missing() {
  while (!done() && chunk_ >= blocks_.chunks(owner())) step();
}

void MateBlocks::step() {
  if (++turn_ < hosts_.count()) return;
  turn_ = 0;
  ++chunk_;
}

}  // namespace plait::comm
