// What travels over a connection: frames of a header and, for most kinds, some bytes after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "plait/tag.h"

namespace plait::comm::tcp {

enum class Kind : std::uint32_t {
  chunk,      // of a mailbox's slot
  credit,     // the receiver has released a chunk of this slot: there is room for another
  gather,     // one rank's part of a set-up agreement
  failure,    // the group has failed
  abort,      // the same, and the groups that were split off it end too
  farewell,   // the sender has left the group
  agreement,  // of the ranks that are left when the group has failed
  question,   // whether the other host is there: its kernel answers, and the process nothing
  inquiry,    // what the rank is doing, as soon as one of its threads polls the connections
  answer,     // to an inquiry
  wake,       // something has changed in memory that both have mapped
};

inline constexpr Kind kLastKind = Kind::wake;

struct Frame {
  static constexpr std::uint32_t kMagic = 0x504c5431;  // "PLT1": what is no frame is found at once

  std::uint32_t magic = kMagic;
  Kind kind;
  std::uint32_t receiver;   // the number that the receiving process has given the mailbox or group
  std::uint32_t slot = 0;   // of a chunk or credit; see FrameGate for others
  std::uint64_t bytes = 0;  // that follow
  Tag tag = {};             // of a chunk
};
static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 64);

// Set-up messages and failures are short.
inline constexpr std::uint64_t kMostTextBytes = 1 << 20;

// A mailbox or a group, as the frames that are meant for it find it. Its functions are called by
// whichever thread reads from the connections, under the mesh's mutex: of the mesh they may call
// reply() alone.
class Receiver {
 public:
  Receiver() = default;
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  virtual ~Receiver() = default;

  // Where the bytes of the next chunk go; null where the sender had no right to send it.
  virtual std::byte* place_for(int process, const Frame& frame) = 0;

  // What keeps the memory of place_for() alive, where that may be written after the receiver's end.
  virtual std::shared_ptr<const void> memory() { return nullptr; }

  // All of the frame is here. `text`: the bytes of anything but a chunk. False: it makes no sense.
  virtual bool receive(int process, const Frame& frame, std::string text) = 0;
};

}  // namespace plait::comm::tcp
