// The frames of a connection: a header and, for most kinds, some bytes after it.
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
  report,     // the same, to the rank that is to record it and to tell the others
  abort,      // the same, and the groups that were split off it end too
  farewell,   // the sender has left the group
  agreement,  // of the ranks that are left when the group has failed
  question,   // asks if the other host is there: its kernel answers, and the process nothing
  inquiry,    // asks what the rank does; it answers as soon as a thread polls the connections
  answer,     // to an inquiry
  wake,       // something has changed in memory that both have mapped
};

inline constexpr Kind kLastKind = Kind::wake;

struct Frame {
  static constexpr std::uint32_t kMagic = 0x504c5431;  // "PLT1": what is no frame is found at once

  std::uint32_t magic = kMagic;
  Kind kind;
  std::uint32_t receiver;   // the number that the receiving process has given the mailbox or group
  std::uint32_t slot = 0;   // of a chunk or credit; see ChunkOrderGate for others
  std::uint64_t bytes = 0;  // that follow
  Tag tag = {};             // of a chunk, or of the call whose set-up it is
};
static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 64);

// Set-up messages and failures are short.
inline constexpr std::uint64_t kMostTextBytes = 1 << 20;

// The receiving end of frames: a mailbox or a group. The thread that reads from the connections
// calls these functions under the mesh's mutex, so they may call no function of the mesh but
// reply().
class Receiver {
 public:
  Receiver() = default;
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  virtual ~Receiver() = default;

  // The place for the bytes of the next chunk; null if the sender was not allowed to send it.
  virtual std::byte* place_for(int process, const Frame& frame) = 0;

  // Keeps the memory of place_for() alive, if it may be written after the receiver's end.
  virtual std::shared_ptr<const void> memory() { return nullptr; }

  // Called when the whole frame has arrived. `text`: its bytes, unless it is a chunk. False: the
  // frame is invalid.
  virtual bool receive(int process, const Frame& frame, std::string text) = 0;
};

}  // namespace plait::comm::tcp
