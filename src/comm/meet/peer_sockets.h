// The connections to the other ranks while all meet, and whether a message can be sent over each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/function_ref.h"
#include "comm/core/group.h"
#include "comm/meet/handshake.h"

namespace plait::comm::tcp {

class PeerSockets {
 public:
  // No message can be sent while a long welcome is half sent.
  enum class Says : char { words, nothing, frames };

  explicit PeerSockets(int world) : lines_(world) {}

  bool has(int rank) const { return static_cast<bool>(lines_[rank].socket); }
  const base::Fd& operator[](int rank) const { return lines_[rank].socket; }
  int world() const { return static_cast<int>(lines_.size()); }

  void set(int rank, base::Fd socket, Says says);
  void drop(int rank) { lines_[rank].socket.reset(); }
  std::vector<base::Fd> take_all();
  void put_back(std::vector<base::Fd> sockets);  // those that take_all() has returned

  void send_words_to(int rank, MessageKind kind, const std::string& text) const;

  // To all ranks but one.
  void send_words(MessageKind kind, const std::string& text, int but) const;
  void send_frames(const Failure& failure) const;  // to its culprit too, which may be alive

  // Receives the messages of ranks from 1 on before they are welcomed. A part of a message is kept
  // until the rest has come.
  using Take = base::FunctionRef<void(int rank, const Message& message)>;
  void receive_words(Take take);

  // Sends each rank but 0 its message, at the same time, until the deadline. Returns the ranks that
  // have not taken theirs. Calls `turn` now and then. Frames can be said behind a whole message.
  using MessageOf = base::FunctionRef<const std::string&(int rank)>;
  std::vector<int> send(MessageOf message_of, base::Nanoseconds deadline,
                        base::FunctionRef<void()> turn);

 private:
  struct Line {
    base::Fd socket = {};
    Says says = Says::words;
    std::string heard = {};  // of a message that is not whole yet
  };

  std::vector<Line> lines_;
};

}  // namespace plait::comm::tcp
