// Puts frames that come beside a carrier into the order in which they were sent.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/control/carrier.h"
#include "comm/control/connection.h"
#include "comm/control/frame.h"

namespace plait::comm::tcp {

// A rank that waits for a chunk takes it for certain that the chunk comes before its sender's part
// of the next agreement, and before its farewell. These frames are kept back until all chunks have
// come that were sent before them, and so are agreements behind them. Frames of other kinds are
// handed on at once.
class ChunkOrderGate final : public Receiver {
 public:
  // Both must outlive it.
  ChunkOrderGate(Carrier& carrier, const Connection::Find& find, int processes)
      : carrier_(carrier), find_(find), kept_(processes) {}

  // Called by the sender: writes into the frame after how many chunks it comes.
  static void stamp(Frame& frame, std::uint32_t chunks) {
    if (is_ordered(frame.kind)) frame.slot = chunks;
  }

  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override { return nullptr; }
  bool receive(int process, const Frame& frame, std::string text) override;

  // Hands on what waits for no chunk any more. True: there was something.
  bool open();

  // True if a farewell of the process to the receiver is kept back: what it sent before is still to
  // come.
  bool keeps_farewell(int process, std::uint32_t receiver) const;

 private:
  struct KeptFrame {
    Frame frame;
    std::string text;
  };

  static bool is_ordered(Kind kind) { return kind == Kind::gather || kind == Kind::farewell; }
  bool may_pass(int process, const Frame& frame) const;
  bool hand_on(int process, const Frame& frame, std::string text);

  Carrier& carrier_;
  const Connection::Find& find_;
  std::vector<std::deque<KeptFrame>> kept_;  // by process, oldest first
};

}  // namespace plait::comm::tcp
