// The connection to one other process: frames out in the order in which they were sent, frames in
// to the receivers that they name. It never blocks.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "comm/control/frame.h"

namespace plait::comm::tcp {

class Connection {
 public:
  // Finds a receiver by its number; null where there is none any more.
  using Find = std::function<Receiver*(std::uint32_t number)>;

  Connection() = default;
  Connection(int process, base::Fd socket);

  int socket() const { return socket_.get(); }
  std::string ends() const;  // "10.0.0.1 (eth0) to 10.0.0.2"
  bool has_unsent() const { return !unsent_.empty(); }

  // True if something is unsent that can't wait for the next frame to the process. One credit can,
  // if this call has sent a chunk there, as the next one probably will: each channel has room for
  // two chunks, so the process can still post to each.
  bool has_urgent() const {
    const Unsent* const first = has_unsent() ? &unsent_.front() : nullptr;
    return unsent_.size() > 1 || (first != nullptr && (first->frame.kind != Kind::credit ||
                                                       first->done > 0 || !has_sent_chunk_));
  }
  bool has_sent_chunk() const { return has_sent_chunk_; }
  void note_chunk(bool sent) { has_sent_chunk_ = sent; }

  // Why the process counts as lost; empty: it doesn't.
  const std::string& loss() const { return silence_.empty() ? end_ : silence_; }

  // True if frames still come and go. They do after a host has been silent for too long, as soon as
  // it answers again.
  bool is_open() const { return end_.empty(); }
  base::Nanoseconds ended_at() const { return ended_at_; }  // 0: they do

  // True if it has ended because the other kernel has closed it: the process there has ended. For
  // that, a process that lives never closes a connection because the other host is silent.
  bool is_closed_by_peer() const { return is_closed_by_peer_; }

  // `payload` of frame.bytes stays where it is as long as `owner` lives.
  void queue(const Frame& frame, const std::byte* payload, std::shared_ptr<const void> owner);

  // Sends what the kernel takes now.
  void flush();

  // The number of the frame that was queued last, and whether the kernel has that frame and all
  // before it.
  std::uint64_t last_queued() const { return last_queued_; }
  bool is_flushed(std::uint64_t number) const;

  // Receives what is here, and hands it on. Returns false if no whole frame arrived and the
  // connection is open.
  bool receive(const Find& find);

  // The receiver with this number is about to go: the rest of a chunk for it is thrown away.
  void forget(std::uint32_t receiver);

  // Asks the kernel whether the other host still answers, and takes the process for lost where it
  // has not for so long. Sends it a question where nothing has been heard of it for some time.
  void check_host(base::Nanoseconds lost_after);

  // True if the other host's kernel has all that was sent, or nothing more can be sent.
  bool is_delivered() const;

  void close(const std::string& why);

 private:
  struct Unsent {
    Frame frame;
    const std::byte* payload;
    std::shared_ptr<const void> owner;
    std::uint64_t number;
    std::size_t done = 0;  // bytes of the frame and its payload that the kernel has
  };

  // The frame that is being received: its header first, then its bytes.
  struct Incoming {
    Frame frame;
    std::size_t header_bytes = 0;
    std::byte* place = nullptr;  // of a chunk
    std::string text;            // of anything else
    std::size_t payload_bytes = 0;
    bool is_unwanted = false;  // its receiver is gone: the bytes are thrown away
  };

  void note_sent(std::size_t bytes);
  bool read_some(const Find& find);
  void take(const std::byte* bytes, std::size_t count, const Find& find);
  bool begin_payload(const Find& find);
  bool finish_frame(const Find& find);
  std::byte* rest_of_place();
  std::size_t missing_payload() const { return incoming_.frame.bytes - incoming_.payload_bytes; }

  int process_ = 0;
  base::Fd socket_;
  std::string end_ = "it was never made";  // why nothing comes or goes any more; empty: it is open
  base::Nanoseconds ended_at_ = 0;
  std::string silence_;  // that the host was silent, and for how long
  bool cannot_send_ = false;
  bool is_closed_by_peer_ = false;
  bool has_sent_chunk_ = false;  // in this call
  std::size_t received_ = 0;     // by this call of receive()
  bool has_whole_ = false;       // and whether a whole frame was among it
  std::deque<Unsent> unsent_;
  std::uint64_t last_queued_ = 0;
  Incoming incoming_;
  // A row of 4096 f32 fits with its header and a credit, so one call of the kernel receives it.
  std::array<std::byte, 16384 + 4 * sizeof(Frame)> buffer_;
};

}  // namespace plait::comm::tcp
