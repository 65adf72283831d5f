#include "comm/collectives/chunks.h"

#include <cstring>

namespace plait::comm {
namespace {

// memcpy with nothing to copy may have no address to copy from.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

bool Sender::send_next(const Tag& tag) {
  if (done() || !mailbox_->vacant(peer_, slot())) return false;
  const std::size_t bytes = pieces_.bytes(next_);
  copy(mailbox_->outbox(peer_, slot()), bytes == 0 ? nullptr : data_ + pieces_.offset_bytes(next_),
       bytes);
  mailbox_->post(peer_, slot(), numbered(tag), bytes);
  step();
  return true;
}

bool Receiver::receive_next(const Tag& tag, std::byte* out) {
  if (!arrived(tag)) return false;
  const std::size_t bytes = pieces_.bytes(next_);
  copy(bytes == 0 ? nullptr : out + pieces_.offset_bytes(next_), data(), bytes);
  take();
  return true;
}

}  // namespace plait::comm
